"""Reading an answer's text: its reasoning and its tool calls, in the Hermes and Qwen form.

::

    <think>\\nit rains there\\n</think>\\n\\nLet me look.\\n
    <tool_call>\\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\\n</tool_call>

Templates in the form of Llama 3 have no marks: an answer that is one JSON object is a call there::

    {"name": "get_weather", "parameters": {"city": "Oslo"}}
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

THINK, END_THINK = "<think>", "</think>"
CALL, END_CALL = "<tool_call>", "</tool_call>"
PYTHON_TAG = "<|python_tag|>"
_NAME = re.compile(r'"name"\s*:\s*"((?:[^"\\]|\\.)+)"')
_SPACE = re.compile(r"[ \t\n\r]*")


@dataclass(frozen=True)
class CallText:
    """One tool call as it was written."""

    name: str
    arguments: str


def split_reasoning(text: str, *, has_begun: bool) -> tuple[str | None, str]:
    """Return the reasoning, None without any, and the rest.

    Reasoning stands at the beginning alone; `has_begun` says that the prompt opened it. One that
    was not closed is all there is. Line breaks around it, which templates write, are not part of
    it.
    """
    start = text.lstrip()
    if start.startswith(THINK):
        text = start[len(THINK) :]
    elif not has_begun:
        return None, text
    reasoning, _, rest = text.partition(END_THINK)
    return reasoning.strip("\n"), rest.lstrip("\n")


def split_calls(text: str) -> tuple[str, list[CallText]]:
    """Return the text outside of tool calls, without the line breaks beside them, and the calls."""
    outside, calls = [], []
    before, *blocks = text.split(CALL)
    outside.append(before)
    for block in blocks:
        written, mark, after = block.partition(END_CALL)
        call = read_call(written.strip())
        if call is None:  # in sight, as it was written
            outside.append(CALL + written + mark + after)
        else:
            calls.append(call)
            outside.append(after)
    if not blocks:
        return text, []
    if not calls:
        return "".join(outside), []
    return "\n".join(part.strip("\n") for part in outside if part.strip()), calls


def split_bare_call(text: str) -> tuple[str, list[CallText]]:
    """Do the same where an answer is either a text or, whole, one call with ``parameters``."""
    written = text.strip().removeprefix(PYTHON_TAG).strip()
    try:
        document = _decoded(written)
    except ValueError:
        return text, []
    if not isinstance(document, dict) or not is_name(document.get("name")):
        return text, []
    arguments = _values_as_written(written).get("parameters")
    return (text, []) if arguments is None else ("", [CallText(document["name"], arguments)])


def read_call(text: str) -> CallText | None:
    """Read the text of one tool call; None where no name can be read.

    Arguments that are not an object, and calls that are no JSON, are not mended: their arguments
    are the raw text, of the value or of the whole call.

    >>> read_call('{"name": "f", "arguments": {"a":1}}')
    CallText(name='f', arguments='{"a":1}')
    >>> read_call('{"name": "f", "arguments": {"a":1}')
    CallText(name='f', arguments='{"name": "f", "arguments": {"a":1}')
    """
    try:
        document = _decoded(text)
    except ValueError:
        found = _NAME.search(text)
        return CallText(found[1], text) if found else None
    if not isinstance(document, dict) or not is_name(document.get("name")):
        return None
    return CallText(document["name"], _values_as_written(text).get("arguments", ""))


def is_name(value: object) -> bool:
    """Whether a function can be called so: a text of whole characters, which is not empty."""
    return isinstance(value, str) and bool(value) and is_whole_text(value)


def is_whole_text(text: str) -> bool:
    """Whether no half of a surrogate pair is in it: JSON can name one, no tokenizer takes it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _decoded(text: str) -> Any:
    """Return a JSON value; raise `ValueError` for what is none, or is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError as error:  # a policy that says the same again and again
        raise ValueError("nested too deeply") from error


def _values_as_written(text: str) -> dict[str, str]:
    """Return the values of a JSON object, which must be one, as they stand in the text."""
    decoder = json.JSONDecoder()
    values: dict[str, str] = {}
    at = _after_space(text, text.index("{") + 1)
    while text[at] != "}":
        key, at = decoder.raw_decode(text, at)
        start = _after_space(text, _after_space(text, at) + 1)
        _, end = decoder.raw_decode(text, start)
        values[key] = text[start:end]
        at = _after_space(text, end)
        if text[at] == ",":
            at = _after_space(text, at + 1)
    return values


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()


def tool_call_documents(
    calls: Sequence[CallText], *, token_ids: Sequence[int], prompt_token_ids: Sequence[int]
) -> tuple[dict[str, Any], ...]:
    """Return calls in the OpenAI form.

    An id depends on what was sampled after what: no two calls of a conversation share one, and a
    repeated run has the same, which matters to templates that write ids into the prompt.
    """
    text = repr((tuple(prompt_token_ids), tuple(token_ids))).encode()
    digest = blake2b(text, digest_size=8).hexdigest() if calls else ""
    return tuple(
        {
            "id": f"call_{digest}{number:02d}",
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for number, call in enumerate(calls)
    )
