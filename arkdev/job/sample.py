"""What one dataset line must hold to be a sample (SURFACE X-37, ROLL-19..33, Y-09, Y-10)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from arkdev.job.content_parts import SampleProblem, check_part
from arkdev.job.ranges import range_missed
from arkdev.job.spelling import closest, unknown_name
from arkdev.types import ChatCompletionSample

ROLES = ("system", "user", "assistant", "tool")
LAST_ROLES = ("user", "tool")
THINKING_TYPES = ("enabled", "disabled", "auto", "custom")

_WHOLE_NUMBERS = ("n", "max_new_tokens", "top_k")
_NUMBERS = ("top_p", "temperature")
_KNOWN_KEYS = frozenset({*ChatCompletionSample.model_fields, "model"})


def make_sample(raw: Mapping[str, Any], *, warn: Callable[[str], None]) -> ChatCompletionSample:
    """Return the sample that a dataset line holds; `raw` stays as it is.

    A content that is one part becomes a list of one (Y-09); a sampling parameter that is null
    counts as not given. `warn` gets what is accepted but may not be meant. Raises `SampleProblem`.
    """
    values = {
        key: value
        for key, value in raw.items()
        if not (value is None and key in (*_WHOLE_NUMBERS, *_NUMBERS))
    }
    _warn_of_unknown_keys(values, warn=warn)
    values["messages"] = _messages(values, warn=warn)
    for key in (*_WHOLE_NUMBERS, *_NUMBERS):
        if key in values:
            values[key] = _number(key, values[key])
    if values.get("n", 1) != 1:
        raise SampleProblem(
            f"n is {values['n']}, which has no effect in a line: how many rollouts a sample gets "
            "is set for all, with --n-sample or as num_generations in the job; take n out"
        )
    _check_objects(values)
    try:
        return ChatCompletionSample.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in first["loc"])
        raise SampleProblem(f"{place.removeprefix('.')}: {first['msg']}") from None


def _warn_of_unknown_keys(values: Mapping[str, Any], *, warn: Callable[[str], None]) -> None:
    for key in values:
        if key not in _KNOWN_KEYS:
            match = closest(key, _KNOWN_KEYS)
            advice = f"did you mean {match!r}?" if match else "data of your own goes in 'extra'"
            warn(f"unknown key {key!r}; {advice}")


def _messages(values: Mapping[str, Any], *, warn: Callable[[str], None]) -> list[dict[str, Any]]:
    if "messages" not in values:
        near = next((key for key in values if closest(key, ["messages"])), None)
        advice = f"; is {near!r} meant to be it?" if near else ""
        raise SampleProblem(f"messages is missing{advice}")
    messages = values["messages"]
    if isinstance(messages, dict):
        raise SampleProblem("messages is one object; wrap it in a list: [{...}]")
    if not isinstance(messages, list):
        raise SampleProblem(f"messages is {_kind(messages)}; a list of objects is expected")
    if not messages:
        raise SampleProblem("messages is empty")
    checked = [_message(item, place=f"messages[{i}]", warn=warn) for i, item in enumerate(messages)]
    last = checked[-1]["role"]
    if last not in LAST_ROLES:
        raise SampleProblem(f"the last message has the role {last!r}; it must be 'user' or 'tool'")
    return checked


def _message(message: Any, *, place: str, warn: Callable[[str], None]) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise SampleProblem(f"{place} is {_kind(message)}; an object is expected")
    role = message.get("role")
    if not isinstance(role, str):
        given = "is missing" if "role" not in message else f"is {_kind(role)}; text is expected"
        raise SampleProblem(f"{place}.role {given}")
    if role == "developer":
        warn(f"{place} has the role 'developer', which many models refuse; use 'system'")
    elif role not in ROLES:
        raise SampleProblem(f"{place}: {unknown_name('role', role, known=ROLES)}")
    if role == "tool" and not message.get("tool_call_id"):
        warn("a tool message has no tool_call_id, without which most servers refuse it")
    content = message.get("content")
    if isinstance(content, dict):
        content = [content]
    _check_content(content, role=role, place=f"{place}.content", warn=warn)
    return {**message, "content": content}


def _check_content(content: Any, *, role: str, place: str, warn: Callable[[str], None]) -> None:
    if content is None:
        if role in ("system", "user"):
            raise SampleProblem(f"{place} is missing or null; a {role} message needs one")
        return
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        raise SampleProblem(f"{place} is {_kind(content)}; text or a list of parts is expected")
    for index, part in enumerate(content):
        if not isinstance(part, dict) or not isinstance(part.get("type"), str):
            raise SampleProblem(f"{place}[{index}] is no part: an object with a type is expected")
        check_part(part, role=role, place=f"{place}[{index}]", warn=warn)


def _number(name: str, value: Any) -> int | float:
    is_whole = name in _WHOLE_NUMBERS
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or (is_whole and value != int(value)):
        wanted = "a whole number" if is_whole else "a number"
        given = value if is_number else _kind(value)
        raise SampleProblem(f"{name} is {given}; {wanted} is expected")
    wanted = range_missed(name, value)
    if wanted:
        raise SampleProblem(f"{name} is {value}; {wanted} is expected")
    return int(value) if is_whole else float(value)


def _check_objects(values: Mapping[str, Any]) -> None:
    extra, tools, thinking = (values.get(key) for key in ("extra", "tools", "thinking"))
    if extra is not None and not isinstance(extra, dict):
        raise SampleProblem(f"extra is {_kind(extra)}; an object is expected")
    if tools is not None and not (
        isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools)
    ):
        raise SampleProblem("tools: a list of objects is expected")
    for index, tool in enumerate(tools or ()):
        _check_tool(tool, place=f"tools[{index}]")
    if thinking is None:
        return
    if not isinstance(thinking, dict) or not isinstance(thinking.get("type"), str):
        raise SampleProblem('thinking: an object such as {"type": "enabled"} is expected')
    if thinking["type"] not in THINKING_TYPES:
        kind = unknown_name("type", thinking["type"], known=THINKING_TYPES)
        raise SampleProblem(f"thinking: {kind}")


def _check_tool(tool: Mapping[str, Any], *, place: str) -> None:
    """A function has a name: in ``function``, or beside its type as the Responses API has it."""
    if tool.get("type", "function") != "function":
        return
    function = tool.get("function", tool)
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str) or not name:
        raise SampleProblem(
            f'{place} has no name; {{..., "function": {{"name": ...}}}} is expected'
        )


def _kind(value: Any) -> str:
    """Name a JSON value's type as JSON does."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    names = {str: "text", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return names[type(value)]
