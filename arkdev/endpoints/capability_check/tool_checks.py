"""Tool calls, several at once, and the answer to their results."""

from __future__ import annotations

import json
from typing import Any

from arkdev.endpoints.capability_check.chat_checks import (
    chat_request,
    clipped,
    mended_completion,
    with_habits,
)
from arkdev.endpoints.capability_check.records import (
    Check,
    Exchange,
    Finding,
    Request,
    Support,
    found,
    not_asked,
    refused,
)

_TOOL_NAME = "get_weather"
_TOOL = {
    "type": "function",
    "function": {
        "name": _TOOL_NAME,
        "description": "Return the weather in a city now.",
        "parameters": {
            "type": "object",
            "properties": {"location": {"type": "string", "enum": ["Paris", "London"]}},
            "required": ["location"],
            "additionalProperties": False,
        },
    },
}
_ONE_CITY = f"What is the weather in Paris now? Call the tool {_TOOL_NAME}."
_TWO_CITIES = (
    f"What is the weather in Paris and in London now? Call the tool {_TOOL_NAME} twice, once for "
    "each city, both calls in one answer."
)
_MAX_TOKENS = 512
_TEMPERATURE = 31


def check_tool_calls(model: str) -> Check:
    """Ask for one call, then for two in one answer; `tool_calls` and `parallel_tool_calls`.

    Where ``tool_choice: "auto"`` brings no call, ``"required"`` is tried: it shows whether the
    server can, when the model alone does not.
    """
    choice = "auto"
    finding = _read_call((yield _request(model, _ONE_CITY, choice=choice)), model=model)
    if finding.support is Support.NO:
        required = _read_call((yield _request(model, _ONE_CITY, choice="required")), model=model)
        if required.support is Support.YES:
            choice = "required"
            finding = Finding(
                "tool_calls",
                Support.PARTLY,
                f'{required.evidence} with tool_choice "required"; with "auto": {finding.evidence}',
                status=finding.status,
                server_said=finding.server_said,
                kind=f"{finding.kind}_unless_required",
                duration_s=required.duration_s,
            )
    if finding.support in (Support.NO, Support.UNKNOWN):
        why = "there are no tool calls" if finding.support is Support.NO else "tool calls failed"
        return [finding, not_asked("parallel_tool_calls", why, support=finding.support)]
    exchange = yield _request(model, _TWO_CITIES, choice=choice)
    return [finding, _read_calls(exchange, model=model)]


def _request(model: str, question: str, *, choice: str) -> Request:
    return chat_request(model, question, max_tokens=_MAX_TOKENS, tools=[_TOOL], tool_choice=choice)


def _read_call(exchange: Exchange, *, model: str) -> Finding:
    completion, mended = mended_completion(exchange, model=model)
    if completion is None:
        return refused("tool_calls", exchange)
    message = completion["choices"][0]["message"]
    calls = message.get("tool_calls")
    if not calls:
        if completion["choices"][0]["finish_reason"] == "length":
            evidence = f"no call within {_MAX_TOKENS} tokens"
            return found("tool_calls", Support.NO, evidence, exchange=exchange, kind="no_call")
        text = message["content"] or message.get("reasoning_content") or ""
        is_text = _TOOL_NAME in text and "{" in text
        evidence = f"the call came as text: {clipped(text)}" if is_text else "no call, but words"
        kind = "as_text" if is_text else "no_call"
        return found("tool_calls", Support.NO, evidence, exchange=exchange, kind=kind)
    shown, problem = _shown_call(calls[0])
    if problem:
        evidence = with_habits(f"{shown}: {problem}", mended)
        return found(
            "tool_calls", Support.PARTLY, evidence, exchange=exchange, kind="bad_arguments"
        )
    return found("tool_calls", Support.YES, with_habits(shown, mended), exchange=exchange)


def _shown_call(call: Any) -> tuple[str, str]:
    """(the call as a person writes it, what is wrong with it)."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return clipped(call), "not a function call"
    name, arguments = function.get("name"), str(function.get("arguments"))
    shown = f"{name}({clipped(arguments)[1:-1]})"
    if name != _TOOL_NAME:
        return shown, "not the name of the tool"
    try:
        is_object = isinstance(json.loads(arguments), dict)
    except ValueError:
        return shown, "the arguments are not JSON"
    return shown, "" if is_object else "the arguments are not a JSON object"


def _read_calls(exchange: Exchange, *, model: str) -> Finding:
    completion, mended = mended_completion(exchange, model=model)
    if completion is None:
        return refused("parallel_tool_calls", exchange)
    calls = completion["choices"][0]["message"].get("tool_calls") or []
    evidence = {0: "no call", 1: "one call"}.get(len(calls), f"{len(calls)} calls in one answer")
    is_parallel = len(calls) > 1
    return found(
        "parallel_tool_calls",
        Support.YES if is_parallel else Support.NO,
        with_habits(evidence, mended) if is_parallel else f"{evidence}, two were asked for",
        exchange=exchange,
    )


def check_tool_results(model: str) -> Check:
    """Hand back a tool's result after a turn as rollouts keep it: no content, but reasoning.

    Where that is refused, once more without the reasoning.
    """
    exchange = yield _follow_up(model, reasoning="I need the weather.")
    completion, mended = mended_completion(exchange, model=model)
    if completion is not None:
        text = completion["choices"][0]["message"]["content"] or ""
        used = "repeats" if str(_TEMPERATURE) in text else "does not repeat"
        evidence = with_habits(f"accepted; the answer {used} the tool's number", mended)
        return [found("tool_results", Support.YES, evidence, exchange=exchange)]
    refusal = refused("tool_results", exchange)
    if refusal.support is Support.UNKNOWN:
        return [refusal]
    again = yield _follow_up(model, reasoning=None)
    if again.completion() is None:
        return [refusal]
    evidence = f"only without reasoning_content; with it {refusal.evidence}"
    return [
        Finding(
            "tool_results",
            Support.PARTLY,
            evidence,
            status=refusal.status,
            server_said=refusal.server_said,
            kind="without_reasoning",
            duration_s=again.duration_s,
        )
    ]


def _follow_up(model: str, *, reasoning: str | None) -> Request:
    function = {"name": _TOOL_NAME, "arguments": '{"location": "Paris"}'}
    turn: dict[str, Any] = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
    }
    if reasoning is not None:
        turn["reasoning_content"] = reasoning
    result = json.dumps({"temperature_celsius": _TEMPERATURE})
    messages = [
        {"role": "user", "content": "What is the weather in Paris now?"},
        turn,
        {"role": "tool", "tool_call_id": "call_1", "content": result},
    ]
    return chat_request(
        model, messages, max_tokens=_MAX_TOKENS // 2, tools=[_TOOL], tool_choice="none"
    )
