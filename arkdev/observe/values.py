"""Values of plugins as spans keep them: plain, masked where they are cut, and never too long.

What is not data (clients, proxies, files) is named by its class alone: its repr may hold a key. No
method of a plugin's own object is called that could have an effect: of a pydantic model or a
dataclass the fields are read.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from enum import Enum
from itertools import islice
from typing import Any

MAX_CHARS = 16_384
"""Of one text."""
MAX_ITEMS = 100
"""Of one list or dict."""
MAX_TOTAL = 65_536
"""Characters of one value with all that is in it, roughly."""
_MAX_DEPTH = 8
_MAX_INT_BITS = 64
_PER_VALUE = 8
"""What a number, a bracket or a comma takes of the total, on average."""
_MIN_CHARS = 64
"""Of a text, also when nothing is left of the total."""


class _Secrets:
    """How the secrets of the run are taken out of a text."""

    mask: Callable[[str], str] | None = None


@contextmanager
def masked_before_cut(mask: Callable[[str], str]) -> Iterator[None]:
    """Let `cut` mask texts inside the block: what is left of half a secret nobody would find."""
    before, _Secrets.mask = _Secrets.mask, mask
    try:
        yield
    finally:
        _Secrets.mask = before


def cut(text: str, limit: int = MAX_CHARS) -> str:
    """Return `text` with at most `limit` characters of it, and how many are left out.

    >>> cut("abcdef", 4)
    'abcd… (2 more characters)'
    """
    if len(text) <= limit:
        return text
    if _Secrets.mask is not None:
        text = _Secrets.mask(text)
    left_out = len(text) - limit
    return text if left_out <= 0 else f"{text[:limit]}… ({left_out:,} more characters)"


def error_text(error: BaseException) -> str:
    """Return an exception's text, cut; never raises."""
    try:
        return cut(str(error))
    except (Exception, SystemExit) as unreadable:  # noqa: BLE001 (a plugin's own class)
        return f"<its text raised {type(unreadable).__name__}>"


def plain(value: Any) -> Any:
    """Return what of `value` is data, as JSON has it; never raises."""
    return _Reader().plain(value, 0)


class _Reader:
    """Reads one value, as much of it as fits."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = MAX_TOTAL

    def plain(self, value: Any, depth: int) -> Any:
        try:
            return self._plain(value, depth)
        except (Exception, SystemExit) as error:  # noqa: BLE001 (a plugin's objects do anything)
            return f"<{type(value).__name__}: {type(error).__name__} while it was read>"

    def _plain(self, value: Any, depth: int) -> Any:
        self._left -= _PER_VALUE
        if isinstance(value, Enum):
            value = value.value
        if value is None or isinstance(value, (bool, str, numbers.Number)):
            return self._scalar(value)
        if depth == _MAX_DEPTH:
            return f"<{type(value).__name__}>"
        fields = _fields(value)
        if fields is not None:
            value = fields
        if isinstance(value, Mapping):
            return self._mapping(value, depth)
        if isinstance(value, (list, tuple, AbstractSet)):
            return self._items(value, len(value), depth)
        if isinstance(value, (bytes, bytearray)):
            return f"<{len(value):,} bytes>"
        return f"<{type(value).__qualname__}>"

    def _items(self, items: Iterable[Any], count: int, depth: int) -> list[Any]:
        shown: list[Any] = []
        for item in islice(items, MAX_ITEMS):
            if self._left <= 0:
                break
            shown.append(self.plain(item, depth + 1))
        return shown if len(shown) >= count else [*shown, f"… ({count - len(shown)} more)"]

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        num_read = 0
        for key, item in islice(value.items(), MAX_ITEMS):
            if self._left <= 0:
                break
            num_read += 1
            name = self._text(str(key))
            shown[name] = self.plain(item, depth + 1)
        if num_read < len(value):
            shown["…"] = f"({len(value) - num_read} more)"
        return shown

    def _scalar(self, value: Any) -> Any:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self._text(str.__str__(value))
        if isinstance(value, numbers.Integral):
            whole = int(value)
            return whole if whole.bit_length() < _MAX_INT_BITS else self._text(_digits(whole))
        try:
            real = float(value)
        except TypeError:  # a complex number
            return self._text(str(value))
        return real if math.isfinite(real) else str(real)

    def _text(self, text: str) -> str:
        text = cut(text, min(MAX_CHARS, max(_MIN_CHARS, self._left)))
        self._left -= len(text)
        return text


def _digits(whole: int) -> str:
    try:
        return str(whole)
    except ValueError:  # more digits than Python writes out
        return hex(whole)


def _fields(value: Any) -> dict[str, Any] | None:
    """Return the fields of a pydantic model or a dataclass; None for anything else."""
    known = getattr(type(value), "model_fields", None)
    if isinstance(known, dict):
        held = {
            name: item
            for name, item in object.__getattribute__(value, "__dict__").items()
            if name in known and not known[name].exclude
        }
        return {**held, **(value.__pydantic_extra__ or {})}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    return None
