"""Play the server in a check: bodies in, findings out."""

from __future__ import annotations

from typing import Any

from arkdev.endpoints.capability_check.records import Check, Exchange, Finding, Request


def play(check: Check, *answers: Exchange) -> tuple[dict[str, Finding], list[Request]]:
    """Answer each request with the next of `answers`; (findings by name, the requests)."""
    requests = [next(check)]
    for position, answer in enumerate(answers, start=1):
        try:
            requests.append(check.send(answer))
        except StopIteration as end:
            assert position == len(answers), "the check ended before the answers did"
            return {finding.capability: finding for finding in end.value}, requests
    raise AssertionError(f"one more request came: {requests[-1]}")


def said(message: dict[str, Any] | str, *, finish: str = "stop", **fields: Any) -> Exchange:
    """A good answer; a str is its text. Fields named `choice_*` go into the choice."""
    if isinstance(message, str):
        message = {"role": "assistant", "content": message}
    inner = {key[7:]: value for key, value in fields.items() if key.startswith("choice_")}
    choice = {"index": 0, "message": message, "finish_reason": finish, **inner}
    outer = {key: value for key, value in fields.items() if not key.startswith("choice_")}
    usage = {"prompt_tokens": 5, "completion_tokens": 3}
    return Exchange(200, {"id": "r1", "usage": usage, "choices": [choice], **outer})


def error(status: int, message: str = "not here") -> Exchange:
    """An error answer in OpenAI's envelope."""
    return Exchange(status, {"error": {"message": message, "code": "Refused"}})


def calling(*arguments: Any, ids: tuple[str, ...] = ("c1", "c2", "c3")) -> Exchange:
    """An answer with a call of get_weather for each of `arguments`."""
    calls = [
        {"id": i, "type": "function", "function": {"name": "get_weather", "arguments": a}}
        for i, a in zip(ids, arguments, strict=False)
    ]
    return said({"role": "assistant", "content": None, "tool_calls": calls}, finish="tool_calls")
