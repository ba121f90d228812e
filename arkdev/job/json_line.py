"""Strict JSON: no duplicate keys, no NaN, no lone surrogates (field cases 6.2, 6.6)."""

from __future__ import annotations

import json
import math
import re
from typing import Any

_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_REPLACEMENT = "\ufffd"
MAX_DEPTH = 100
"""Levels of lists and objects; what keeps and sends a sample works up to about twice as many."""


class JsonProblem(ValueError):
    """Text that is not the JSON wanted; `line` and `column` from 1 where they are known."""

    def __init__(self, message: str, *, line: int | None = None, column: int | None = None) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


def parse_json(text: str) -> tuple[Any, bool]:
    """Return the value that `text` holds, and whether lone surrogates in it were replaced.

    Raises `JsonProblem`.
    """
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise JsonProblem(
            f"not valid JSON: {error.msg}", line=error.lineno, column=error.colno
        ) from None
    except RecursionError:
        raise JsonProblem("nested too deeply") from None
    except JsonProblem:
        raise
    except ValueError:  # more digits than Python converts
        raise JsonProblem("a whole number has too many digits; write it as text") from None
    if text.count("{") + text.count("[") > MAX_DEPTH and is_deeper(value, MAX_DEPTH):
        raise JsonProblem(f"nested more than {MAX_DEPTH} levels deep")
    if _may_hold_surrogates(text):
        return _without_surrogates(value)
    return value, False


def _may_hold_surrogates(text: str) -> bool:
    """Tell whether escapes, or characters (from a command line), may be halves of a pair."""
    if "\\u" in text and _SURROGATE_ESCAPE.search(text):
        return True
    try:
        text.encode("utf-8")  # far quicker than looking at each character
    except UnicodeEncodeError:
        return True
    return False


def is_deeper(value: Any, limit: int) -> bool:
    """Tell whether lists and dicts stand more than `limit` levels inside of each other."""
    level = [value]
    for _ in range(limit + 1):
        level = [
            item
            for parent in level
            if isinstance(parent, (dict, list))
            for item in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(item, (dict, list))
        ]
        if not level:
            return False
    return True


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise JsonProblem(f"key {key!r} is there more than once in one object")
            seen.add(key)
    return values


def _refuse_constant(name: str) -> float:
    raise JsonProblem(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise JsonProblem(f"{text} is too large for a number")
    return value


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_constant=_refuse_constant, parse_float=_finite
)


def _without_surrogates(value: Any) -> tuple[Any, bool]:
    if isinstance(value, str):
        clean = _SURROGATE.sub(_REPLACEMENT, value)
        return clean, clean != value
    if isinstance(value, list):
        items = [_without_surrogates(item) for item in value]
        return [item for item, _ in items], any(flag for _, flag in items)
    if isinstance(value, dict):
        entries = [(_without_surrogates(k), _without_surrogates(v)) for k, v in value.items()]
        clean_values = {key: item for (key, _), (item, _) in entries}
        if len(clean_values) != len(value):
            raise JsonProblem("two keys of one object differ in halves of surrogate pairs alone")
        return clean_values, any(
            is_key_changed or is_item_changed
            for (_, is_key_changed), (_, is_item_changed) in entries
        )
    return value, False
