"""What is odd about a model call. Counted in the report; question and answer are left alone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any


def notes_on_request(messages: Sequence[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield a note for each tool message that answers no tool call before it."""
    called: set[str] = set()
    for message in messages:
        if message.get("role") == "assistant":
            calls = message.get("tool_calls")
            called.update(
                str(call.get("id"))
                for call in (calls if isinstance(calls, list) else ())
                if isinstance(call, dict)
            )
        elif message.get("role") == "tool":
            call_id = message.get("tool_call_id")
            if not call_id:
                yield "tool_message_without_call", "a tool message has no tool_call_id"
            elif str(call_id) not in called:
                yield "tool_message_without_call", f"no call before it has the id {call_id}"


def notes_on_answer(answer: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (warning code, detail) for each oddity of a Chat Completions answer."""
    choice = answer["choices"][0]
    calls = choice["message"].get("tool_calls") or []
    finish_reason = choice.get("finish_reason")
    if calls and finish_reason == "stop":
        yield "tool_calls_with_finish_stop", ""
    if not calls and not choice["message"].get("content"):
        yield "empty_answer", ""
    if finish_reason == "tool_calls" and not calls:
        yield "finish_tool_calls_without_calls", ""
    for call in calls:
        yield from _notes_on_arguments(call)


def _notes_on_arguments(call: dict[str, Any]) -> Iterator[tuple[str, str]]:
    function = call.get("function") or {}
    name, arguments = function.get("name"), function.get("arguments") or ""
    try:
        decoded = json.loads(arguments)
    except RecursionError:
        yield "invalid_tool_arguments", f"tool call {call.get('id')} ({name}): nested too deeply"
        return
    except (TypeError, ValueError) as error:
        yield "invalid_tool_arguments", f"tool call {call.get('id')} ({name}): {error}"
        return
    if isinstance(decoded, str):
        yield "double_encoded_arguments", f"tool call {call.get('id')} ({name})"
    elif not isinstance(decoded, dict):
        yield (
            "invalid_tool_arguments",
            f"tool call {call.get('id')} ({name}): a JSON {type(decoded).__name__}, not an object",
        )
