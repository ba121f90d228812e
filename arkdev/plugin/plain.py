"""Records and client objects as plain JSON values."""

from __future__ import annotations

import copy
import inspect
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
    asks_await = "; did you forget await?" if inspect.isawaitable(value) else ""
    raise TypeError(f"{value!r} ({type(value).__name__}) is not JSON{asks_await}")


def plain_messages(messages: Iterable[Any]) -> list[dict[str, Any]]:
    """Return a copy of `messages` as JSON objects, without what says nothing."""
    return [clean_message(message) for message in to_plain(list(messages))]


_MAX_DEPTH = 100
"""As deep as a run record holds values (runs.lines)."""


def frozen_copy(value: Any, *, depth: int = 0) -> Any:
    """Return a copy of `value` that later changes of the original do not reach.

    Dicts and lists are copied one by one, so that one thing that cannot be copied (a client, a
    lock) is kept as it is and the rest is still copied.
    """
    if value is None or isinstance(value, (str, int, float)) or depth > _MAX_DEPTH:
        return value
    if type(value) is dict:
        return {key: frozen_copy(item, depth=depth + 1) for key, item in list(value.items())}
    if type(value) in (list, tuple):
        return type(value)(frozen_copy(item, depth=depth + 1) for item in list(value))
    try:
        return copy.deepcopy(value)
    except Exception:  # noqa: BLE001 (a plugin may put anything there)
        return value
