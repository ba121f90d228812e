"""What a sample asks: its canonical form, its length, and a rough number of its tokens."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from arkdev.plugin.conversation import canonical

ASCII_PER_TOKEN = 4.0
OTHER_PER_TOKEN = 1.5
TOKENS_PER_MESSAGE = 4
"""What a chat template puts around a message."""

_ENCODER = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True)
class PromptSize:
    """How long a prompt is. Pictures and other media are no part of it."""

    num_characters: int
    """Of all texts: contents, arguments of tool calls, tool definitions as JSON."""
    num_tokens: int
    """Estimated, see `prompt_size`."""


def prompt_hash(raw: Mapping[str, Any]) -> int:
    """Return 64 bits of a hash of a dataset line's prompt: messages and tools, nothing else.

    Messages count as in `arkdev.plugin.conversation.canonical`: a text is one text part; missing,
    null and empty are the same. Two prompts in 4 million share a hash by chance with 0.00004 %.
    """
    messages = [canonical(message) for message in _list(raw.get("messages"))]
    return json_hash([messages, raw.get("tools") or []])


def json_hash(value: Any) -> int:
    """Return 64 bits of a hash of a JSON value, whatever the order of its keys."""
    text = _ENCODER.encode(value)
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def prompt_size(raw: Mapping[str, Any]) -> PromptSize:
    """Estimate without a tokenizer: 4 ASCII characters a token, 1.5 of all others, 4 a message.

    It is for orders of magnitude: a tokenizer may count a third more or less, and for scripts other
    than Latin and Chinese twice as many or half.
    """
    num_ascii = num_other = 0
    for text in prompt_texts(raw):
        if text.isascii():
            num_ascii += len(text)
        else:
            plain = len(text.encode("ascii", "ignore"))
            num_ascii += plain
            num_other += len(text) - plain
    tokens = num_ascii / ASCII_PER_TOKEN + num_other / OTHER_PER_TOKEN
    tokens += TOKENS_PER_MESSAGE * len(_list(raw.get("messages")))
    return PromptSize(num_ascii + num_other, round(tokens))


def prompt_texts(raw: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts of a dataset line's prompt: contents, calls of tools, tools as JSON."""
    for message in _list(raw.get("messages")):
        content = message.get("content")
        if isinstance(content, str):
            yield content
        else:
            for part in _list(content):
                if isinstance(part.get("text"), str):
                    yield part["text"]
        for call in _list(message.get("tool_calls")):
            function = call.get("function")
            if isinstance(function, dict):
                yield f"{function.get('name') or ''}{function.get('arguments') or ''}"
    if raw.get("tools"):
        yield _ENCODER.encode(raw["tools"])


def _list(value: Any) -> list[dict[str, Any]]:
    """A list of objects; one object alone is taken for a list of one (Y-09)."""
    if isinstance(value, dict):
        return [value]
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
