"""Values of plugins as spans keep them: plain, and never too long.

What is not data (clients, proxies, files) is named by its class alone: its repr may hold a key.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import Any

MAX_CHARS = 16_384
"""Of one text."""
MAX_ITEMS = 100
"""Of one list or dict."""
_MAX_DEPTH = 8
_MAX_INT_BITS = 64


def cut(text: str, limit: int = MAX_CHARS) -> str:
    """Return `text` with at most `limit` characters of it, and how many are left out.

    >>> cut("abcdef", 4)
    'abcd… (2 more characters)'
    """
    left_out = len(text) - limit
    return text if left_out <= 0 else f"{text[:limit]}… ({left_out:,} more characters)"


def plain(value: Any, depth: int = 0) -> Any:
    """Return what of `value` is data, as JSON has it; never raises."""
    try:
        return _plain(value, depth)
    except Exception as error:  # noqa: BLE001 (a plugin's own objects may do anything)
        return f"<{type(value).__name__}: {type(error).__name__} while it was read>"


def _plain(value: Any, depth: int) -> Any:
    if isinstance(value, Enum):
        value = value.value
    if value is None or isinstance(value, (bool, str, numbers.Number)):
        return _scalar(value)
    if depth == _MAX_DEPTH:
        return f"<{type(value).__name__}>"
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        value = dump()
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return _mapping(value, depth)
    if isinstance(value, (list, tuple, AbstractSet)):
        items = list(value)
        shown = [plain(item, depth + 1) for item in items[:MAX_ITEMS]]
        return shown if len(items) <= MAX_ITEMS else [*shown, f"… ({len(items) - MAX_ITEMS} more)"]
    if isinstance(value, (bytes, bytearray)):
        return f"<{len(value):,} bytes>"
    return f"<{type(value).__qualname__}>"


def _mapping(value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
    items = list(value.items())
    shown = {str(key): plain(item, depth + 1) for key, item in items[:MAX_ITEMS]}
    if len(items) > MAX_ITEMS:
        shown["…"] = f"({len(items) - MAX_ITEMS} more)"
    return shown


def _scalar(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return cut(str(value))
    if isinstance(value, numbers.Integral):
        whole = int(value)
        return whole if whole.bit_length() < _MAX_INT_BITS else cut(str(whole))
    try:
        real = float(value)
    except TypeError:  # a complex number
        return str(value)
    return real if math.isfinite(real) else str(real)
