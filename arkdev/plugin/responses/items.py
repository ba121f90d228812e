"""Input items of the Responses API and Chat messages.

One assistant message of Chat is up to three kinds of items: its reasoning, its text and its calls::

    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
    {"type": "message", "role": "assistant", "content": "I will look."}
    {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
    {"type": "function_call_output", "call_id": "c1", "output": "22"}

is ``{"role": "assistant", "reasoning_content": "hm", "content": "I will look.", "tool_calls": …}``
and a tool message.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from arkdev.errors import TranslationError
from arkdev.plugin.plain import to_plain
from arkdev.plugin.responses.content import (
    add_reasoning,
    chat_content,
    reasoning_text,
    responses_content,
    text_of,
)

_ROLES = ("user", "assistant", "system", "developer")


def messages_of_input(input: Any, *, instructions: str | None = None) -> list[dict[str, Any]]:
    """Return a Responses `input` (a text or a list of items) as Chat messages.

    `instructions` come first, as a system message. Items may be the client library's own objects,
    such as those of an earlier ``response.output``. Calls and reasoning join the assistant message
    that they belong to. Raises `TranslationError` for an item that only a server with a store or
    with built-in tools understands, and for one that is written as a Chat message.
    """
    if instructions is not None and not isinstance(instructions, str):
        raise TranslationError("instructions is not a text", param="instructions")
    reader = _ItemReader()
    if instructions:
        reader.messages.append({"role": "system", "content": instructions})
    items = to_plain(input)
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    if not isinstance(items, list):
        raise TranslationError("input is neither a text nor a list of items", param="input")
    for index, item in enumerate(items):
        reader.add(item, where=f"input[{index}]")
    return reader.messages


class _ItemReader:
    """Makes messages of items, in order."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self._turn: dict[str, Any] | None = None  # the assistant message that is being put together

    def add(self, item: Any, *, where: str) -> None:
        """Take the next item."""
        kind = _kind_of(item, where=where)
        if kind == "message":
            self._add_message(item, where=where)
        elif kind == "function_call":
            self._add_call(item, where=where)
        elif kind == "function_call_output":
            self._add_output(item, where=where)
        else:
            self._add_reasoning(item, where=where)

    def _add_message(self, item: dict[str, Any], *, where: str) -> None:
        role = item["role"]
        if role != "assistant":
            content = chat_content(item.get("content"), where=f"{where}.content", role=role)
            self._turn = None
            self.messages.append({"role": role, "content": content})
            return
        given = item.get("content")
        parts = given if isinstance(given, list) else []
        refusals = [p["refusal"] for p in parts if isinstance(p, dict) and "refusal" in p]
        said = [p for p in parts if not (isinstance(p, dict) and "refusal" in p)]
        text = chat_content(said if parts else given, where=f"{where}.content", role=role)
        turn = self._turn_with_room()
        if text or not refusals:
            turn["content"] = (turn["content"] or "") + text
        if refusals:
            turn["refusal"] = "".join(refusals)

    def _add_reasoning(self, item: dict[str, Any], *, where: str) -> None:
        text = reasoning_text(item)
        if not text and item.get("encrypted_content"):
            raise TranslationError(f"{where} holds encrypted reasoning and no text", param=where)
        if text:
            add_reasoning(self._turn_with_room(), text)

    def _add_call(self, item: dict[str, Any], *, where: str) -> None:
        call_id, name = (_text(item, key, where=where) for key in ("call_id", "name"))
        function = {"name": name, "arguments": _text(item, "arguments", where=where)}
        turn = self._turn or self._turn_with_room()
        calls = turn.setdefault("tool_calls", [])
        calls.append({"id": call_id, "type": "function", "function": function})

    def _add_output(self, item: dict[str, Any], *, where: str) -> None:
        call_id = _text(item, "call_id", where=where)
        content = chat_content(item.get("output"), where=f"{where}.output", role="tool")
        self._turn = None
        self.messages.append({"role": "tool", "tool_call_id": call_id, "content": content})

    def _turn_with_room(self) -> dict[str, Any]:
        """The open assistant message, or a new one when that has said its text.

        One with calls stays open: their results must follow it directly.
        """
        turn = self._turn
        if turn is None or (turn["content"] is not None and "tool_calls" not in turn):
            turn = {"role": "assistant", "content": None}
            self.messages.append(turn)
            self._turn = turn
        return turn


def _kind_of(item: Any, *, where: str) -> str:
    """The type of an item that can be translated."""
    if not isinstance(item, dict):
        raise TranslationError(f"{where} is not an object", param=where)
    kind, role = item.get("type") or ("message" if "role" in item else None), item.get("role")
    if role in ("tool", "function"):
        raise TranslationError(
            f"{where} is a Chat message with the role {role!r}",
            param=where,
            hint='in the Responses API a tool\'s result is {"type": "function_call_output", '
            '"call_id": ..., "output": ...}',
        )
    if item.get("tool_calls"):
        raise TranslationError(
            f"{where} is a Chat message with tool_calls",
            param=where,
            hint='in the Responses API each call is an item {"type": "function_call", "call_id": '
            '..., "name": ..., "arguments": ...}; items of response.output can be passed as they '
            "are",
        )
    if kind == "message" and role not in _ROLES:
        raise TranslationError(
            f"{where} has the role {role!r}, not one of {', '.join(_ROLES)}", param=f"{where}.role"
        )
    if kind in ("message", "function_call", "function_call_output", "reasoning"):
        return str(kind)
    if kind in (None, "item_reference"):
        raise TranslationError(
            f"{where} refers to an item that a server would have to remember",
            param=where,
            hint="pass the item itself, or continue a response with previous_response_id",
        )
    raise TranslationError(
        f"{where} is an item of type {kind!r}, which Chat Completions does not have", param=where
    )


def _text(item: dict[str, Any], key: str, *, where: str) -> str:
    value = item.get(key)
    if not isinstance(value, str) or (key != "arguments" and not value):
        raise TranslationError(f"{where}.{key} is missing or not a text", param=f"{where}.{key}")
    return value


def items_of_messages(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return Chat `messages` as Responses input items, the whole history as one list.

    Raises `TranslationError` for a role or a content part that the Responses API lacks.
    """
    items: list[dict[str, Any]] = []
    for index, message in enumerate(messages):
        where, role = f"messages[{index}]", message.get("role")
        if role == "assistant":
            items += _assistant_items(message, where=where, index=index)
        elif role == "tool":
            output = responses_content(message.get("content"), where=f"{where}.content")
            call_id = _text(message, "tool_call_id", where=where)
            items.append({"type": "function_call_output", "call_id": call_id, "output": output})
        elif role in _ROLES:
            content = responses_content(message.get("content"), where=f"{where}.content")
            items.append({"type": "message", "role": role, "content": content})
        else:
            raise TranslationError(
                f"{where} has the role {role!r}, which the Responses API does not have",
                param=f"{where}.role",
            )
    return items


def _assistant_items(
    message: dict[str, Any], *, where: str, index: int
) -> Iterator[dict[str, Any]]:
    reasoning = message.get("reasoning_content")
    calls = message.get("tool_calls") or []
    if reasoning:  # as a summary: Ark's reasoning items have no other text
        yield {
            "type": "reasoning",
            "id": f"rs_{index}",
            "summary": [{"type": "summary_text", "text": reasoning}],
            "status": "completed",
        }
    said = text_of(message.get("content"))
    if said or not (calls or reasoning or message.get("refusal")):
        yield {"type": "message", "role": "assistant", "content": said}
    if message.get("refusal"):
        refusal = {"type": "refusal", "refusal": message["refusal"]}
        yield {"type": "message", "role": "assistant", "content": [refusal]}
    for number, call in enumerate(calls):
        function = call.get("function") or {}
        place = f"{where}.tool_calls[{number}]"
        yield {
            "type": "function_call",
            "call_id": _text(call, "id", where=place),
            "name": _text(function, "name", where=f"{place}.function"),
            "arguments": function.get("arguments") or "",
            "status": "completed",
        }
