"""Records and client objects as plain JSON values."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from arkdev.plugin.conversation import clean_message

_ATOMS = frozenset({str, int, float, bool, type(None)})


def to_plain(value: Any) -> Any:
    """Return a copy of `value` as plain JSON, with every pydantic object in it turned into a dict.

    The copy shares nothing with the plugin's own objects. Raises `TypeError` when something in it
    is not JSON.
    """
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is list or kind is tuple:
        return [to_plain(item) for item in value]
    if kind is dict and all(type(key) is str for key in value):
        return {key: to_plain(item) for key, item in value.items()}
    # whatever else JSON takes (numbers as keys, enums), as JSON writes it
    return json.loads(json.dumps(value, default=_dumped))


def _dumped(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump()
    raise TypeError(f"{value!r} ({type(value).__name__}) is not JSON")


def plain_messages(messages: Iterable[Any]) -> list[dict[str, Any]]:
    """Return a copy of `messages` as JSON objects, without what says nothing."""
    return [clean_message(message) for message in to_plain(list(messages))]
