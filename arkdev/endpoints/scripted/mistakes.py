"""The ways in which the scripted model fails, all of them still valid for the API."""

from __future__ import annotations

import re
from random import Random
from typing import Any

from arkdev.endpoints.scripted.schema import Schema, fits, resolve
from arkdev.endpoints.scripted.tools import Call
from arkdev.endpoints.scripted.vocabulary import CJK, PLACES

_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_LONG_CHARS = 12
"""A string longer than this is a text rather than a name."""


def with_wrong_argument(call: Call, random: Random) -> Call | None:
    """Return `call` with one argument changed to another valid value, None when there is none."""
    changed = altered(call.arguments, call.schema, call.root, random)
    if changed is None or not fits(call.schema, changed, call.root):
        return None
    return Call(call.name, changed, call.schema, call.root)


def altered(value: Any, schema: Schema, root: Schema, random: Random) -> Any:
    """Return another value that fits `schema`, or None."""
    if isinstance(value, dict):
        return _altered_object(value, schema, root, random)
    if isinstance(value, list):
        items = resolve(schema.get("items"), root)
        other = altered(value[0], items, root, random) if value else None
        return None if other is None else [other, *value[1:]]
    options = [o for o in _options(value, schema) if o != value and fits(schema, o, root)]
    return random.choice(options) if options else None


def _altered_object(value: Schema, schema: Schema, root: Schema, random: Random) -> Schema | None:
    names = list(value)
    random.shuffle(names)
    for name in names:
        part = resolve((schema.get("properties") or {}).get(name), root)
        other = altered(value[name], part, root, random)
        if other is not None:
            return {**value, name: other}
    return None


def _options(value: Any, schema: Schema) -> list[Any]:
    if schema.get("enum"):
        return list(schema["enum"])
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, (int, float)):
        return [value + step for step in (-7, -3, -2, -1, 1, 2, 3, 7)]
    if not isinstance(value, str):
        return []
    if len(value) > _LONG_CHARS:
        return [value[: len(value) // 3].strip(), value[: len(value) // 2].strip()]
    return list(PLACES[CJK.search(value) is not None])


def with_wrong_numbers(text: str, random: Random) -> str | None:
    """Return `text` with every number changed, None when an old number would still be in it."""
    numbers = set(_NUMBER.findall(text))
    if not numbers:
        return None
    shift = random.choice((2, 3, 4, 6, 7, 8))
    changed = _NUMBER.sub(lambda match: _shifted(match.group(), shift), text)
    return None if any(number in changed for number in numbers) else changed


def wrong_result(right: str, random: Random) -> str:
    """Return a number near `right` in whose text `right` does not occur."""
    steps = [step for step in range(-9, 10) if step]
    random.shuffle(steps)
    wrong = (_shifted(right, step) for step in steps)
    return next((text for text in wrong if right not in text and text not in right), "0")


def _shifted(number: str, step: int) -> str:
    if "." not in number:
        return str(int(number) + step)
    decimals = len(number.partition(".")[2])
    return f"{float(number) + step:.{decimals}f}"
