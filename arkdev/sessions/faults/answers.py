"""What injected faults make of an answer, and the errors that stand in for one."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from arkdev.endpoints.answers import check_answer
from arkdev.errors import EndpointError, EndpointResponseError, EndpointUnreachableError
from arkdev.sessions.faults.grammar import Fault
from arkdev.sessions.faults.plan import Strike

INJECTED = "injected"
"""How the text of every injected error begins."""

CHANGES_ANSWERS = ("garbage", "cut_json", "empty")
"""These kinds let the call through and change what comes back."""

_TOKEN_EVIDENCE = ("token_ids", "logprobs")
_SYLLABLES = ("ka", " zu", "\ufffd", "的", "}}", "<|", "qe", "\\u00", "##", " 7,", "ño", ";;", "了")
_DECODER = json.JSONDecoder()


def detail_of(fault: Fault) -> str:
    """Return what a fault's record says of it: the error's text, or the delay."""
    if fault.kind == "slow":
        return f"{fault.duration_s:g} s"
    return f"{INJECTED} {fault.kind}"


def error_body(fault: Fault) -> dict[str, Any]:
    """Return the JSON body of an injected error status."""
    return {"error": {"code": "InjectedFault", "message": detail_of(fault)}}


def error_headers(fault: Fault) -> dict[str, str]:
    """Return the headers of an injected error status, Retry-After included where it has one."""
    headers = {"content-type": "application/json"}
    return (
        headers if fault.duration_s is None else {**headers, "retry-after": f"{fault.duration_s:g}"}
    )


def error_of(fault: Fault) -> EndpointError:
    """Return the error that a model call ends with: as for a server that did the same."""
    if fault.status is None:
        return EndpointUnreachableError(detail_of(fault), is_timeout=fault.kind == "timeout")
    try:
        check_answer(error_body(fault), status=fault.status, headers=error_headers(fault))
    except EndpointResponseError as error:
        return error
    raise AssertionError("an error status was taken for an answer")


def changed_answer(answer: dict[str, Any], strike: Strike) -> dict[str, Any] | None:
    """Return a Chat Completions answer as the fault leaves it; None where it finds nothing to do.

    The tokens of a changed text are not those that were sampled, so token evidence is left out.
    """
    first, *others = answer["choices"]
    message = _changed_message(first["message"], strike)
    if message is None:
        return None
    choice = {k: v for k, v in first.items() if k not in _TOKEN_EVIDENCE}
    choice["message"] = message
    if not message.get("tool_calls") and choice.get("finish_reason") == "tool_calls":
        choice["finish_reason"] = "stop"
    return {**answer, "choices": [choice, *others]}


def _changed_message(message: dict[str, Any], strike: Strike) -> dict[str, Any] | None:
    if strike.fault.kind == "cut_json":
        return _with_json_cut(message)
    text = "" if strike.fault.kind == "empty" else nonsense(strike.seed)
    return {**{k: v for k, v in message.items() if k != "tool_calls"}, "content": text}


def _with_json_cut(message: dict[str, Any]) -> dict[str, Any] | None:
    """Cut the arguments of the last tool call; without one, the JSON in the text."""
    calls = message.get("tool_calls")
    if calls:
        *others, last = calls
        arguments = last["function"].get("arguments") or ""
        if not arguments:
            return None
        function = {**last["function"], "arguments": arguments[: len(arguments) // 2]}
        return {**message, "tool_calls": [*others, {**last, "function": function}]}
    content = message.get("content")
    cut = cut_json(content) if isinstance(content, str) else None
    return None if cut is None else {**message, "content": cut}


def cut_json(text: str) -> str | None:
    """Return `text` up to the middle of the first JSON object or array in it; None without one."""
    starts = [at for at in (text.find("{"), text.find("[")) if at >= 0]
    if not starts:
        return None
    start = min(starts)
    try:
        _, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    return text[: (start + end) // 2]


def nonsense(seed: int) -> str:
    """Return a text that means nothing: always the same for a seed."""
    random = Random(seed)
    return "".join(random.choices(_SYLLABLES, k=random.randint(8, 24)))
