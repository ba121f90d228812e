"""Messages in the form that chat templates are written for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from arkdev.backends.local.answer_text import is_whole_text
from arkdev.backends.local.rendering import Messages
from arkdev.errors import ConfigurationError


def template_messages(messages: Messages, *, blank_broken: bool = False) -> list[dict[str, Any]]:
    """Return messages with text for content and objects for the arguments of tool calls.

    Keys without a value are left out. Arguments that are no JSON object, or one with half a
    character in it, stay the text that they are; with `blank_broken` they are empty objects, for
    templates that go through their keys, where what is written of them is thrown away. Raises
    `ConfigurationError` for an image or other content that is no text, and for a call without a
    name or with arguments of another type.
    """
    return [_message(message, blank_broken=blank_broken) for message in messages]


def _message(message: Mapping[str, Any], *, blank_broken: bool) -> dict[str, Any]:
    plain = {key: value for key, value in message.items() if value not in (None, [], "")}
    plain["content"] = _text(message.get("content"))
    if "tool_calls" in plain:
        plain["tool_calls"] = [
            {**call, "function": _function(call.get("function"), blank_broken=blank_broken)}
            for call in plain["tool_calls"]
        ]
    return plain


def _text(content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "".join(map(_part, content if isinstance(content, list | tuple) else [content]))


def _part(part: Any) -> str:
    kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
    if kind != "text":
        raise ConfigurationError(
            f"a message holds a part of type {kind!r}", hint="the policy reads text alone"
        )
    text = part.get("text")
    if not isinstance(text, str):
        raise ConfigurationError(
            "a message holds a part of type 'text' without a text",
            hint='write it as {"type": "text", "text": "..."}',
        )
    return text


def _function(function: Any, *, blank_broken: bool) -> dict[str, Any]:
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise ConfigurationError(
            "a message holds a tool call without a function's name",
            hint='write it as {"type": "function", "function": {"name": ..., "arguments": ...}}',
        )
    arguments = function.get("arguments")
    if isinstance(arguments, Mapping):
        return dict(function)
    if not isinstance(arguments, str | None):
        raise ConfigurationError(
            f"a message holds a tool call whose arguments are of type {type(arguments).__name__!r}",
            hint='write them as JSON in a text: "{\\"city\\": \\"Oslo\\"}"',
        )
    parsed = _object(arguments or "")
    if parsed is not None:
        return {**function, "arguments": parsed}
    return {**function, "arguments": {} if blank_broken else arguments or ""}


def _object(text: str) -> dict[str, Any] | None:
    """Return the JSON object in `text`; None where there is none that can be written again."""
    try:
        value = json.loads(text)
        if "\\u" in text and not is_whole_text(json.dumps(value, ensure_ascii=False)):
            return None
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
