"""Is what stands in a choice of an answer of the right kind? What is not cannot be understood.

What says the same in another form is mended instead (`endpoints.normal_form`).
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Mapping
from typing import Any

_SHOWN = reprlib.Repr()
_SHOWN.maxother = _SHOWN.maxstring = 80


def shape_problem(answer: Mapping[str, Any]) -> str:
    """Return what is wrong with a Chat Completions answer whose choices have messages, or ""."""
    for number, choice in enumerate(answer["choices"]):
        problem = next(_problems(choice["message"], place=f"choices[{number}].message"), "")
        if problem:
            return problem
    return ""


def _problems(message: Mapping[str, Any], *, place: str) -> Iterator[str]:
    content = message.get("content")
    if content is not None and not isinstance(content, (str, list)):
        yield _wrong(f"{place}.content", content, wanted="text or a list of parts")
    calls = message.get("tool_calls")
    if calls and not isinstance(calls, list):
        yield _wrong(f"{place}.tool_calls", calls, wanted="a list of objects")
        return
    for index, call in enumerate(calls or ()):
        at = f"{place}.tool_calls[{index}]"
        if not isinstance(call, dict):
            yield _wrong(at, call, wanted="an object")
        elif not isinstance(call.get("function"), dict):
            yield _wrong(f"{at}.function", call.get("function"), wanted="an object")
        elif not isinstance(call["function"].get("name"), (str, type(None))):
            yield _wrong(f"{at}.function.name", call["function"]["name"], wanted="text")


def _wrong(place: str, value: Any, *, wanted: str) -> str:
    return f"{place} is {_SHOWN.repr(value)}; {wanted} is expected"
