"""Messages in the form that chat templates are written for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from arkdev.backends.local.rendering import Messages
from arkdev.errors import ConfigurationError


def template_messages(messages: Messages, *, blank_broken: bool = False) -> list[dict[str, Any]]:
    """Return messages with text for content and objects for the arguments of tool calls.

    Keys without a value are left out. Arguments that are no JSON object stay the text that they
    are; with `blank_broken` they are empty objects, for templates that go through their keys,
    where what is written of them is thrown away. Raises `ConfigurationError` for an image or other
    content that is no text.
    """
    return [_message(message, blank_broken=blank_broken) for message in messages]


def _message(message: Mapping[str, Any], *, blank_broken: bool) -> dict[str, Any]:
    plain = {key: value for key, value in message.items() if value not in (None, [], "")}
    plain["content"] = _text(message.get("content"))
    if "tool_calls" in plain:
        plain["tool_calls"] = [
            {**call, "function": _function(call["function"], blank_broken=blank_broken)}
            for call in plain["tool_calls"]
        ]
    return plain


def _text(content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    for part in content:
        if part.get("type") != "text":
            raise ConfigurationError(
                f"a message holds a part of type {part.get('type')!r}",
                hint="the policy reads text alone",
            )
    return "".join(part["text"] for part in content)


def _function(function: Mapping[str, Any], *, blank_broken: bool) -> dict[str, Any]:
    arguments = function.get("arguments")
    if isinstance(arguments, Mapping):
        return dict(function)
    try:
        parsed = json.loads(arguments or "")
    except ValueError:
        parsed = None
    if isinstance(parsed, dict):
        return {**function, "arguments": parsed}
    return {**function, "arguments": {} if blank_broken else arguments or ""}
