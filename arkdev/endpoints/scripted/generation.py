"""Make a value that is valid for a JSON Schema, from what a text offers.

``{"location": {"type": "string"}, "unit": {"enum": ["摄氏度", "华氏度"]}}`` and the question
北京今天多少摄氏度？ give ``{"location": "北京", "unit": "摄氏度"}``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from arkdev.endpoints.scripted.evidence import FORMATS, Evidence
from arkdev.endpoints.scripted.patterns import example_of
from arkdev.endpoints.scripted.schema import Schema, compiled, fits, merge, resolve, type_of
from arkdev.endpoints.scripted.vocabulary import EXAMPLE_SEPARATOR, EXAMPLES

MAX_DEPTH = 8
"""Below this depth only what is required is made, so that recursive schemas end."""

_FORMAT_SAMPLES = {
    "email": "user@example.com",
    "uri": "https://example.com",
    "url": "https://example.com",
    "date": "2025-01-01",
    "date-time": "2025-01-01T00:00:00Z",
    "time": "00:00:00Z",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "ipv4": "127.0.0.1",
    "hostname": "example.com",
}
_FREE_TEXT = re.compile(
    r"query|question|text|prompt|input|content|message|sentence|keyword|(^|_)q$|body|answer|"
    r"description|title|reason|rationale|note|summary|task|instruction|问题|查询|内容",
    re.IGNORECASE,
)
_EXPRESSION = re.compile(r"expression|formula|equation|^expr$|表达式|算式", re.IGNORECASE)
_CODE = re.compile(r"(^|_)(id|no|number|code|sku)$|Id$|编号|单号")
_ASKING = re.compile(
    r"^(?:请|帮我|帮忙)*(?:搜索|查询|查一下|搜一下|检索|查找)(?:一下)?|"
    r"^(?:please\s+)?(?:search(?: the web)? for|look up|find|google)\s+",
    re.IGNORECASE,
)
_ENDING = " ?？!！。.,，;；"


def value_for(
    schema: object, evidence: Evidence, *, root: Schema, name: str = "", depth: int = 0
) -> Any:
    """Return a value for `schema`, valid unless the schema is beyond what `schema.fits` knows.

    `root` is the document that ``$ref`` points into, `name` the property that the value is for.
    """
    if depth > 2 * MAX_DEPTH:
        return None  # a schema that requires itself has no valid value
    resolved = resolve(schema, root)
    if "const" in resolved:
        return resolved["const"]
    if resolved.get("enum"):
        return _member(resolved, evidence)
    for keyword in ("anyOf", "oneOf"):
        if resolved.get(keyword):
            return _branch(resolved, keyword, evidence, root=root, name=name, depth=depth)
    kind = type_of(resolved)
    if kind == "object":
        return arguments_for(resolved, evidence, root=root, depth=depth)
    if kind == "array":
        return _array(resolved, evidence, root=root, name=name, depth=depth)
    if kind in ("number", "integer"):
        return _number(resolved, evidence, root=root, is_integer=kind == "integer")
    if kind == "string":
        return _string(resolved, evidence, root=root, name=name)
    return None if kind == "null" else bool(resolved.get("default", True))


def arguments_for(
    schema: Schema, evidence: Evidence, *, root: Schema, depth: int = 0, fixed: Schema | None = None
) -> Schema:
    """Return an object for the resolved `schema`: what it requires, and what the text speaks of.

    Properties in `fixed` have the values given there. A schema that requires nothing gets its
    first property all the same, since most such schemas only forgot the list.
    """
    properties = schema.get("properties") or {}
    required = wanted_properties(schema)
    made = {}
    for name, part in properties.items():
        if fixed and name in fixed:
            made[name] = fixed[name]
        elif name in required or (
            depth < MAX_DEPTH and _speaks_of(resolve(part, root), evidence, name)
        ):
            made[name] = value_for(part, evidence, root=root, name=name, depth=depth + 1)
    extra = schema.get("additionalProperties")
    for name in required:
        if name not in made:
            made[name] = value_for(extra or {}, evidence, root=root, name=name, depth=depth + 1)
    spare = (n for n in (*properties, *map("key{}".format, range(64))) if n not in made)
    while len(made) < schema.get("minProperties", 0):
        name = next(spare)
        part = properties.get(name, extra or {})
        made[name] = value_for(part, evidence, root=root, name=name, depth=depth + 1)
    return made


def wanted_properties(schema: Schema) -> list[str]:
    """Return the names that must have a value, in order."""
    if schema.get("required"):
        return list(schema["required"])
    return list(schema.get("properties") or {})[:1]


def mentioned_members(members: list[Any], evidence: Evidence) -> list[Any]:
    """Return the members that the text mentions, in its order; of overlapping ones the longer."""
    found = []
    for member in members:
        at = evidence.position(str(member)) if isinstance(member, (str, int, float)) else -1
        if at >= 0:
            found.append((at, -len(str(member)), member))
    found.sort(key=lambda item: item[:2])
    kept: list[Any] = []
    end = -1
    for at, negative_length, member in found:
        if at >= end:
            kept.append(member)
            end = at - negative_length
    return kept


def _member(schema: Schema, evidence: Evidence) -> Any:
    members = [m for m in schema["enum"] if fits({**schema, "enum": [m]}, m, {})]
    if found := mentioned_members(members, evidence):
        return found[0]
    if "default" in schema and schema["default"] in members:
        return schema["default"]
    return next((m for m in members or schema["enum"] if m is not None), None)


def _branch(
    schema: Schema, keyword: str, evidence: Evidence, *, root: Schema, name: str, depth: int
) -> Any:
    """The first branch that gives a valid value; null only when nothing else does."""
    base = {k: v for k, v in schema.items() if k != keyword}
    branches = [merge(base, resolve(part, root)) for part in schema[keyword]]
    branches.sort(key=lambda branch: branch.get("type") == "null")
    made = None
    for branch in branches:
        made = value_for(branch, evidence, root=root, name=name, depth=depth + 1)
        if fits(schema, made, root):
            break
    return made


def _speaks_of(schema: Schema, evidence: Evidence, name: str) -> bool:
    """Whether the text gives a reason to fill in an optional property."""
    if schema.get("enum"):
        return bool(mentioned_members(schema["enum"], evidence))
    kind = type_of(schema)
    if kind in ("number", "integer"):
        return evidence.count is not None or (evidence.mentions(name) and bool(evidence.numbers))
    if kind == "boolean":
        return evidence.mentions(name.replace("_", " "))
    if kind == "array":
        members = (schema.get("items") or {}).get("enum") or []
        return bool(mentioned_members(members, evidence))
    if kind == "string":
        return _example(schema, evidence) is not None or _formatted(schema, evidence) is not None
    return False


def _example(schema: Schema, evidence: Evidence) -> str | None:
    """An example that the schema names and the text uses."""
    named = [e for e in schema.get("examples") or [] if isinstance(e, str)]
    if match := EXAMPLES.search(str(schema.get("description") or "")):
        named += [
            part.strip(_ENDING + "\"'“”()（）等") for part in EXAMPLE_SEPARATOR.split(match[1])
        ]
    found = mentioned_members([e for e in named if e], evidence)
    return found[0] if found else None


def _formatted(schema: Schema, evidence: Evidence) -> str | None:
    pattern = FORMATS.get(str(schema.get("format")))
    if pattern is None and schema.get("pattern"):
        pattern = compiled(str(schema["pattern"]).removeprefix("^").removesuffix("$"))
    match = pattern.search(evidence.text) if pattern else None
    return match.group() if match and match.group() else None


def _string(schema: Schema, evidence: Evidence, *, root: Schema, name: str) -> str:
    for candidate in _candidates(schema, evidence, name):
        cut = candidate[: schema.get("maxLength", len(candidate))]
        if cut and fits(schema, cut, root):
            return cut
    pattern = str(schema.get("pattern") or "")
    fallback = example_of(pattern) if pattern else (evidence.text or name or "text")
    missing = schema.get("minLength", 0) - len(fallback)
    if missing > 0:
        padding = fallback[-1:] if pattern else f" {fallback}"
        fallback += (padding * missing)[:missing]
    return fallback[: schema.get("maxLength", len(fallback))]


def _candidates(schema: Schema, evidence: Evidence, name: str) -> Iterator[str]:
    """Values for a string property, the best first."""
    has_form = "pattern" in schema or schema.get("format") in _FORMAT_SAMPLES
    if has_form:
        yield _formatted(schema, evidence) or ""
        yield _FORMAT_SAMPLES.get(str(schema.get("format")), "")
    yield evidence.expression or "" if _EXPRESSION.search(name) else ""
    yield evidence.code or "" if _CODE.search(name) else ""
    if _FREE_TEXT.search(name) and not evidence.quoted:
        yield _ASKING.sub("", evidence.text).strip(_ENDING)
    yield _example(schema, evidence) or ""
    yield evidence.take_name() or ""
    yield str(schema.get("default") or "")
    yield evidence.text.strip(_ENDING)


def _number(schema: Schema, evidence: Evidence, *, root: Schema, is_integer: bool) -> float | int:
    written = evidence.take_number() or evidence.count
    if written is not None:
        value = int(float(written)) if is_integer or "." not in written else float(written)
        if fits(schema, value, root):
            return value
    else:
        value = 1
    default = schema.get("default")
    if isinstance(default, (int, float)) and fits(schema, default, root):
        return default
    return next((n for n in _near(schema, value) if fits(schema, n, root)), value)


def _near(schema: Schema, value: float | int) -> Iterator[float | int]:
    """Numbers at and inside the bounds, those near `value` first, on the step if there is one."""
    lows = [schema[k] for k in ("minimum", "exclusiveMinimum") if k in schema]
    highs = [schema[k] for k in ("maximum", "exclusiveMaximum") if k in schema]
    bounds = [*([max(lows)] if lows else []), *([min(highs)] if highs else [])]
    bounds.sort(key=lambda bound: abs(bound - value))
    step = schema.get("multipleOf") or 1
    for near in (value, *bounds):
        yield near
        for multiple in (near // step, near // step + 1, near // step - 1):
            product = round(multiple * step, 9)
            yield int(product) if product == int(product) else product
    if len(bounds) == 2:
        yield sum(bounds) / 2


def _array(schema: Schema, evidence: Evidence, *, root: Schema, name: str, depth: int) -> list[Any]:
    if schema.get("prefixItems"):
        return [
            value_for(part, evidence, root=root, name=name, depth=depth + 1)
            for part in schema["prefixItems"]
        ]
    items = resolve(schema.get("items"), root)
    made = _listed(items, evidence, root)
    least = schema.get("minItems", 0 if depth >= MAX_DEPTH else 1)
    attempts = 0
    while len(made) < least and attempts < least + 64:
        value = value_for(items, evidence, root=root, name=name, depth=depth + 1)
        attempts += 1
        if schema.get("uniqueItems") and value in made:
            value = _another(items, value, made, root)
            if value in made:
                continue
        made.append(value)
    return made[: schema.get("maxItems", len(made))]


def _listed(items: Schema, evidence: Evidence, root: Schema) -> list[Any]:
    """All of the text's values that are valid items."""
    kind = type_of(items)
    found: list[Any] = []
    if items.get("enum"):
        found = mentioned_members(items["enum"], evidence)
    elif kind == "string" and evidence.names:
        found = list(evidence.names[0])
    elif kind in ("number", "integer"):
        found = [float(n) if "." in n else int(n) for n in evidence.numbers]
    return list(dict.fromkeys(value for value in found if fits(items, value, root)))


def _another(items: Schema, value: Any, taken: list[Any], root: Schema) -> Any:
    """A valid item that is not taken, or `value` when none is found."""
    pool: list[Any] = list(items.get("enum") or [])
    if isinstance(value, str):
        pool += [f"{value} {n}" for n in range(2, 66)] + [f"{value}{n}" for n in range(2, 66)]
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        pool += [value + n for n in range(1, 65)] + [value - n for n in range(1, 65)]
    elif isinstance(value, bool):
        pool = [not value]
    return next((v for v in pool if v not in taken and fits(items, v, root)), value)
