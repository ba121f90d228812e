"""Records and client objects as plain JSON values."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from arkdev.plugin.conversation import clean_message


def to_plain(value: Any) -> Any:
    """Return `value` with every pydantic object in it turned into a dict."""
    if isinstance(value, dict):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    dump = getattr(value, "model_dump", None)
    return to_plain(dump()) if callable(dump) else value


def plain_messages(messages: Iterable[Any]) -> list[dict[str, Any]]:
    """Return a copy of `messages` as JSON objects that later edits by the plugin cannot reach.

    Raises `TypeError` when a message holds something that is not JSON.
    """
    cleaned = [clean_message(to_plain(message)) for message in messages]
    copied: list[dict[str, Any]] = json.loads(json.dumps(cleaned))
    return copied
