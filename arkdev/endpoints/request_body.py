"""The JSON body of a call to a remote endpoint: what is sent and what is left out.

Plugins hand back whole `model_dump()` results, full of explicit nulls that strict servers refuse.
Nulls are left out, with one exception: an assistant message keeps its ``content`` key, also when
null, because a server drops the turn otherwise and its tool results lose their parent (field case
2.3). ``reasoning_content`` goes back when there is any, because some servers demand it (2.8).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_LEFT_OUT_WHEN_EMPTY = ("reasoning_content", "tool_calls")


def write_body(
    body: Mapping[str, Any], *, model: str, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what is sent: `body` without nulls, `settings` (wire names), `stream` false."""
    payload = {key: value for key, value in body.items() if value is not None}
    payload.pop("stream_options", None)
    for key, set_value in settings.items():
        value, given = set_value, payload.get(key)
        if isinstance(value, dict) and isinstance(given, dict):
            value = {**given, **value}
        payload[key] = value
    payload["model"] = model
    payload["stream"] = False  # said explicitly: some servers stream when it is left out
    payload["messages"] = [write_message(message) for message in body["messages"]]
    return payload


def write_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return `message` as it is sent: no nulls but an assistant's ``content``, no empty extras."""
    sent = {key: value for key, value in message.items() if value is not None}
    for key in _LEFT_OUT_WHEN_EMPTY:
        if not sent.get(key, True):
            del sent[key]
    if "tool_calls" in sent:
        sent["tool_calls"] = [
            {key: value for key, value in call.items() if value is not None}
            for call in sent["tool_calls"]
        ]
    if message.get("role") == "assistant":
        sent.setdefault("content", None)
    return sent
