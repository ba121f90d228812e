"""How a request differs from the recorded one, for people: what is equal is left out."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from difflib import unified_diff
from itertools import zip_longest
from typing import Any

from arkdev.tape.format import HTTP, MCP, MODEL

_WIDTH = 96
_CONTEXT_LINES = 2
_MAX_LINES = 80


def difference(kind: str, *, recorded: Any, now: Any) -> str:
    """Return a unified diff of two requests; of a model call message by message."""
    if kind == MODEL:
        lines = list(_of_model_calls(recorded, now))
    else:
        lines = list(_diff("the request", _pretty(recorded), _pretty(now)))
    if len(lines) > _MAX_LINES:
        lines[_MAX_LINES:] = [f"... and {len(lines) - _MAX_LINES} more lines"]
    return "\n".join(lines)


def summary_of(kind: str, request: Any) -> str:
    """Name a request in a few words."""
    if kind == HTTP:
        return f"{request['method']} {request['url']}"
    if kind == MCP:
        name = (request.get("params") or {}).get("name")
        return f"{request.get('method')} {name}" if name else str(request.get("method"))
    messages = request.get("body", {}).get("messages") or [{}]
    text = _text(messages[-1].get("content")).replace("\n", " ")
    count = f"{len(messages)} message{'s' if len(messages) != 1 else ''}"
    return f"{count}, the last: {textwrap.shorten(text, 60, placeholder=' ...')}"


def _of_model_calls(recorded: Any, now: Any) -> Iterator[str]:
    before, after = recorded["body"], now["body"]
    messages = zip_longest(before.get("messages") or (), after.get("messages") or ())
    for index, (was, is_now) in enumerate(messages):
        if was == is_now:
            continue
        role = (is_now or was).get("role", "")
        title = f"messages[{index}] ({role})"
        if was is None:
            yield from _diff(f"{title}: new", [], _message(is_now))
        elif is_now is None:
            yield from _diff(f"{title}: gone", _message(was), [])
        else:
            yield from _diff(title, _message(was), _message(is_now))
    rest = [
        {name: value for name, value in body.items() if name != "messages"}
        for body in (before, after)
    ]
    if rest[0] != rest[1]:
        yield from _diff("rest of the body", _pretty(rest[0]), _pretty(rest[1]))
    sampling = recorded.get("sampling"), now.get("sampling")
    if sampling[0] != sampling[1]:
        yield from _diff("sampling", _pretty(sampling[0]), _pretty(sampling[1]))


def _message(message: Any) -> list[str]:
    content = message.get("content")
    rest = {name: value for name, value in message.items() if name not in ("role", "content")}
    text = [] if content is None else _wrapped(_text(content))
    return [f"role: {message.get('role')}", *text, *(_pretty(rest) if rest else ())]


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "\n".join(_pretty(content))


def _wrapped(text: str) -> list[str]:
    """Wrap long lines, so that one changed word does not show a whole page."""
    lines: list[str] = []
    for line in text.split("\n"):
        lines += textwrap.wrap(line, _WIDTH, replace_whitespace=False) or [""]
    return lines


def _pretty(value: Any) -> list[str]:
    text = json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True)
    return _wrapped(text)


def _diff(title: str, recorded: list[str], now: list[str]) -> Iterator[str]:
    diff = unified_diff(
        recorded, now, f"recorded {title}", f"now {title}", lineterm="", n=_CONTEXT_LINES
    )
    yield from diff
