"""What the lines of a tape must hold, so that whoever edits one is told where it went wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

_TEXT, _WHOLE, _NUMBER, _OBJECT, _LIST = str, int, (int, float), dict, list
_REQUESTS: dict[str, dict[str, Any]] = {
    "model": {"body": _OBJECT},
    "http": {"method": _TEXT, "url": _TEXT, "headers": _OBJECT},
    "mcp": {"method": _TEXT},
}
_ANSWERS: dict[str, dict[str, dict[str, Any]]] = {
    "model": {"answer": {}, "error": {"type": _TEXT, "message": _TEXT}},
    "http": {
        "response": {"status": _WHOLE, "headers": _OBJECT},
        "failure": {"kind": _TEXT, "message": _TEXT},
    },
    "mcp": {
        "result": {},
        "error": {"code": _WHOLE, "message": _TEXT},
        "failure": {"type": _TEXT, "message": _TEXT},
    },
}
"""By kind, what may have come of a request, beside an `outcome`."""
_FIELDS: dict[str, dict[str, Any]] = {
    "sample": {"index": _WHOLE, "line": _TEXT, "sampling": _OBJECT},
    "group": {"sample_index": _WHOLE},
    "attempt": {"at": _NUMBER},
    "timeout": {},
    "clock": {"name": _TEXT, "value": (int, float, str)},
    **{kind: {"n": _WHOLE, "request": _OBJECT} for kind in _REQUESTS},
}
_HEADER = {
    "schema_version": _WHOLE,
    "arkdev": _TEXT,
    "recorded_at": _TEXT,
    "seed": _WHOLE,
    "settings": _OBJECT,
    "flags": _OBJECT,
    "hashes": _OBJECT,
}
_SETTINGS = {
    "workspace": _TEXT,
    "rollout": _TEXT,
    "graders": _LIST,
    "num_generations": _WHOLE,
    "endpoint": _OBJECT,
    "seed": _WHOLE,
}
_TEXT_OR_NULL = (str, type(None))
_ENDPOINT = {"name": _TEXT, "base_url": _TEXT_OR_NULL, "model": _TEXT_OR_NULL}
_FLAGS = {
    "rollout": _TEXT,
    "job": _TEXT,
    "graders": _LIST,
    "data": _LIST,
    "sampling": _OBJECT,
    "num_generations": _WHOLE,
    "seed": _WHOLE,
    "success_threshold": _NUMBER,
    "min_reward_mean": _NUMBER,
    "min_success_rate": _NUMBER,
}
"""Those that a replay takes over, where they are set."""
_NAMES = {str: "text", int: "a whole number", dict: "an object", list: "a list"}


def problem_of(line: Mapping[str, Any]) -> str | None:
    """Say what is wrong with a line that is not the header; None when nothing is."""
    return next(_problems(line), None)


def problem_of_header(line: Mapping[str, Any]) -> str | None:
    """Say what is wrong with a header; None when nothing is."""
    seed = line.get("hash_seed")
    if seed is not None and not (isinstance(seed, str) and seed.isdecimal()):
        return "hash_seed is not the text of a whole number"
    return next(_wrong(line, _HEADER), None)


def problem_of_settings(settings: Mapping[str, Any], flags: Mapping[str, Any]) -> str | None:
    """Say what is wrong with a header's settings and flags; None when nothing is."""
    return next(_wrong_settings(settings, flags), None)


def _wrong_settings(settings: Mapping[str, Any], flags: Mapping[str, Any]) -> Iterator[str]:
    yield from _wrong(settings, _SETTINGS, path="settings.")
    yield from _wrong(settings["endpoint"], _ENDPOINT, path="settings.endpoint.")
    if settings["num_generations"] < 1:
        yield "settings.num_generations is less than 1"
    for index, grader in enumerate(settings["graders"]):
        fields = {"reference": _TEXT, "weight": _NUMBER}
        yield from _wrong(grader, fields, path=f"settings.graders[{index}].")
    given = {name: type_ for name, type_ in _FLAGS.items() if name in flags}
    yield from _wrong(flags, given, path="flags.")


def _problems(line: Mapping[str, Any]) -> Iterator[str]:
    kind = line["kind"]
    if not isinstance(kind, str) or kind not in _FIELDS:
        yield f"{kind!r} is no kind of line"
        return
    if not isinstance(line.get("of", ""), str) or not isinstance(line.get("attempt", 0), int):
        yield "of is the name of an attempt and attempt its number"
    yield from _wrong(line, _FIELDS[kind])
    if kind == "sample":
        yield from _wrong_sample(line["line"])
    elif kind in _REQUESTS:
        yield from _wrong(line["request"], _REQUESTS[kind], path="request.")
        yield from _wrong_answer(line, _ANSWERS[kind])
        if kind == "http":
            yield from _wrong_body(line["request"], "request.body")
            yield from _wrong_body(line.get("response", {"body": None}), "response.body")


def _wrong(document: Any, fields: Mapping[str, Any], *, path: str = "") -> Iterator[str]:
    if not isinstance(document, Mapping):
        yield f"{path.rstrip('.')} is not an object"
        return
    for name, type_ in fields.items():
        value = document.get(name)
        if name not in document:
            yield f"it has no {path}{name}"
        elif not isinstance(value, type_) or isinstance(value, bool):
            yield f"{path}{name} is not {_NAMES.get(type_, 'a number or text')}"


def _wrong_sample(text: str) -> Iterator[str]:
    try:
        is_object = isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        is_object = False
    if not is_object:
        yield "line is no JSON object"


def _wrong_answer(line: Mapping[str, Any], answers: Mapping[str, dict[str, Any]]) -> Iterator[str]:
    name = next((name for name in answers if name in line), None)
    if name is not None:
        yield from _wrong(line[name], answers[name], path=f"{name}.")
    elif line.get("outcome") != "cancelled":
        yield f"it has none of {', '.join(answers)} and outcome"


def _wrong_body(document: Mapping[str, Any], path: str) -> Iterator[str]:
    body = document.get("body")
    texts = [body.get("text", body.get("base64"))] if isinstance(body, dict) else [None]
    if "body" not in document or (body is not None and not isinstance(texts[0], str)):
        yield f"{path} is none: text, base64 or null"
