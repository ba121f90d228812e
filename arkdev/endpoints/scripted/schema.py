"""JSON Schema as tools use it: resolve references, and tell whether a value fits.

Understood: type, enum, const, bounds, multipleOf, lengths, pattern, items, prefixItems,
uniqueItems, properties, required, additionalProperties, patternProperties, numbers of properties,
allOf, anyOf, oneOf, not, and ``$ref`` inside the document. Other keywords are taken as met.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from typing import Any

MAX_REFERENCES = 16
"""A chain of ``$ref`` longer than this is a circle."""

Schema = dict[str, Any]


def resolve(schema: object, root: Schema, depth: int = 0) -> Schema:
    """Return `schema` with its ``$ref`` and ``allOf`` merged in; ``true`` is the empty schema."""
    resolved = dict(schema) if isinstance(schema, dict) else {}
    for _ in range(MAX_REFERENCES):
        reference = resolved.pop("$ref", None)
        if reference is None:
            break
        resolved = merge(_look_up(reference, root), resolved)
    for part in resolved.pop("allOf", None) or []:
        if depth < MAX_REFERENCES:
            resolved = merge(resolved, resolve(part, root, depth + 1))
    return resolved


def merge(left: Schema, right: Schema) -> Schema:
    """Return a schema that asks for what both ask for; a plain keyword of `right` wins."""
    merged = {**left, **right}
    if "properties" in left and "properties" in right:
        merged["properties"] = {**left["properties"], **right["properties"]}
    if "required" in left and "required" in right:
        merged["required"] = list(dict.fromkeys([*left["required"], *right["required"]]))
    return merged


def _look_up(reference: object, root: Schema) -> Schema:
    found: Any = root
    for step in str(reference).removeprefix("#").split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        found = found.get(key) if isinstance(found, dict) else None
    return dict(found) if isinstance(found, dict) else {}


class SchemaError(ValueError):
    """A schema that is not JSON Schema; the message says where and what."""


def checked(schema: Any, *, where: str) -> Schema:
    """Return `schema`, a document, when all the keywords that this module reads are well formed.

    Raises `SchemaError`, as a server that compiles tool schemas answers 400.
    """
    pending = [(where, schema)]
    while pending:
        place, part = pending.pop()
        if isinstance(part, bool):
            continue
        if not isinstance(part, dict):
            raise SchemaError(f"{place}: {part!r} is not a JSON Schema")
        for keyword, value in part.items():
            is_valid, expected = _SHAPES.get(keyword, (None, ""))
            if is_valid and not is_valid(value):
                raise SchemaError(f"{place}: {keyword} is {value!r}, expected {expected}")
            pending += _parts(f"{place}.{keyword}", keyword, value)
    return schema if isinstance(schema, dict) else {}


def _parts(place: str, keyword: str, value: Any) -> list[tuple[str, Any]]:
    """The schemas inside a keyword."""
    if keyword in ("properties", "patternProperties", "$defs", "definitions"):
        return [(f"{place}.{name}", part) for name, part in value.items()]
    if keyword in ("allOf", "anyOf", "oneOf", "prefixItems"):
        return [(f"{place}[{index}]", part) for index, part in enumerate(value)]
    return [(place, value)] if keyword in ("items", "additionalProperties", "not") else []


def type_of(schema: Schema) -> str:
    """Return the JSON type to make: the first that is not null, or the one the keywords imply."""
    stated = schema.get("type")
    if isinstance(stated, list):
        stated = next((t for t in stated if t != "null"), "null")
    if isinstance(stated, str):
        return stated
    for kind, keywords in _IMPLIED:
        if any(k in schema for k in keywords):
            return kind
    return "string"


_IMPLIED = (
    ("object", ("properties", "required", "additionalProperties")),
    ("array", ("items", "prefixItems", "minItems")),
    ("number", ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")),
)

_TYPES: dict[str, Callable[[Any], bool]] = {
    "string": lambda v: isinstance(v, str),
    "boolean": lambda v: isinstance(v, bool),
    "null": lambda v: v is None,
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, list),
    "number": lambda v: _is_number(v),
    "integer": lambda v: _is_number(v) and v == int(v),
}


def fits(schema: object, value: Any, root: Schema) -> bool:
    """Whether `value` is valid for `schema`, whose references point into `root`."""
    if schema is False:
        return False
    resolved = resolve(schema, root)
    for keyword, asked in resolved.items():
        check = _CHECKS.get(keyword)
        if check and not check(asked, value, resolved, root):
            return False
    return True


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _same(left: Any, right: Any) -> bool:
    """JSON equality: true is not 1, 1.0 is 1."""
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


def _is_multiple(asked: Any, value: Any) -> bool:
    return bool(asked) and Decimal(str(value)) % Decimal(str(asked)) == 0


@lru_cache(maxsize=256)
def compiled(pattern: str) -> re.Pattern[str] | None:
    """Return the compiled pattern, or None when Python's `re` cannot read it."""
    try:
        return re.compile(pattern)
    except re.error:
        return None


def _matches(pattern: object, text: str) -> bool:
    expression = compiled(str(pattern))
    return expression is None or expression.search(text) is not None


def _are_unique(values: list[Any]) -> bool:
    return len({json.dumps(v, sort_keys=True) for v in values}) == len(values)


def _check_items(asked: Any, value: list[Any], schema: Schema, root: Schema) -> bool:
    first = len(schema.get("prefixItems") or [])
    return all(fits(asked, item, root) for item in value[first:])


def _check_additional(asked: Any, value: Schema, schema: Schema, root: Schema) -> bool:
    known = schema.get("properties") or {}
    patterns = schema.get("patternProperties") or {}
    extra = [k for k in value if k not in known and not any(_matches(p, k) for p in patterns)]
    return all(fits(asked, value[k], root) for k in extra)


_Check = Callable[[Any, Any, Schema, Schema], bool]


def _for(is_type: Callable[[Any], bool], check: Callable[[Any, Any], bool]) -> _Check:
    return lambda asked, value, _schema, _root: not is_type(value) or check(asked, value)


_number, _string = _TYPES["number"], _TYPES["string"]
_array, _object = _TYPES["array"], _TYPES["object"]
_TYPE_NAMES = ", ".join(_TYPES)
_OBJECT_SHAPE = (_object, "an object")
_LIST_SHAPE = (lambda v: _array(v) and len(v) > 0, "a list that is not empty")
_NUMBER_SHAPE = (_number, "a number")
_COUNT_SHAPE = (lambda v: _TYPES["integer"](v) and v >= 0, "a whole number from 0")
_SHAPES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "type": (
        lambda v: all(isinstance(t, str) and t in _TYPES for t in (v if _array(v) else [v])),
        f"one of {_TYPE_NAMES}",
    ),
    "required": (lambda v: _array(v) and all(map(_string, v)), "a list of names"),
    "pattern": (_string, "a string"),
    "$ref": (_string, "a string"),
    "multipleOf": (lambda v: _number(v) and v > 0, "a number above 0"),
    **dict.fromkeys(("properties", "patternProperties", "$defs", "definitions"), _OBJECT_SHAPE),
    **dict.fromkeys(("enum", "allOf", "anyOf", "oneOf", "prefixItems"), _LIST_SHAPE),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _NUMBER_SHAPE),
    **dict.fromkeys(
        ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
        _COUNT_SHAPE,
    ),
}
_CHECKS: dict[str, _Check] = {
    "type": lambda a, v, _s, _r: any(_TYPES[t](v) for t in ([a] if isinstance(a, str) else a)),
    "enum": lambda a, v, _s, _r: any(_same(v, member) for member in a),
    "const": lambda a, v, _s, _r: _same(v, a),
    "minimum": _for(_number, lambda a, v: v >= a),
    "maximum": _for(_number, lambda a, v: v <= a),
    "exclusiveMinimum": _for(_number, lambda a, v: v > a),
    "exclusiveMaximum": _for(_number, lambda a, v: v < a),
    "multipleOf": _for(_number, _is_multiple),
    "minLength": _for(_string, lambda a, v: len(v) >= a),
    "maxLength": _for(_string, lambda a, v: len(v) <= a),
    "pattern": _for(_string, _matches),
    "minItems": _for(_array, lambda a, v: len(v) >= a),
    "maxItems": _for(_array, lambda a, v: len(v) <= a),
    "uniqueItems": _for(_array, lambda a, v: not a or _are_unique(v)),
    "required": _for(_object, lambda a, v: all(name in v for name in a)),
    "minProperties": _for(_object, lambda a, v: len(v) >= a),
    "maxProperties": _for(_object, lambda a, v: len(v) <= a),
    "items": lambda a, v, s, r: not _array(v) or _check_items(a, v, s, r),
    "prefixItems": lambda a, v, _s, r: (
        not _array(v) or all(fits(part, item, r) for part, item in zip(a, v, strict=False))
    ),
    "properties": lambda a, v, _s, r: (
        not _object(v) or all(fits(part, v[name], r) for name, part in a.items() if name in v)
    ),
    "additionalProperties": lambda a, v, s, r: not _object(v) or _check_additional(a, v, s, r),
    "anyOf": lambda a, v, _s, r: any(fits(part, v, r) for part in a),
    "oneOf": lambda a, v, _s, r: sum(fits(part, v, r) for part in a) == 1,
    "not": lambda a, v, _s, r: not fits(a, v, r),
}
