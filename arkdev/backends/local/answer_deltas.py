"""An answer while it comes: what of its reasoning and content is sure, token by token.

What may yet turn out to be something else is held back until that is known: a tool call (given
out once all is there, as its id follows from all tokens), the beginning of a mark or of a stop
text, and line breaks that the parser drops before a call.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from arkdev.backends.local.rendering import ParsedAnswer
from arkdev.endpoints.event_stream import call_deltas

_HALF_MARK = re.compile(r"(<[^\s<>]{0,40}|\[[A-Z_]{0,20})$")
_CALL = re.compile(r"<[^<>]{0,30}(tool|func|python_tag|think)[^<>]*>|\[TOOL_CALLS")
_HALF_CHARACTER = "\N{REPLACEMENT CHARACTER}"


class AnswerDeltas:
    """Turns what the tokens so far say into the deltas of a Chat Completions stream."""

    def __init__(self, *, has_tools: bool, stop: Sequence[str]) -> None:
        self._has_tools = has_tools
        self._stop = stop
        self._given = {"reasoning_content": "", "content": ""}

    def push(self, parsed: ParsedAnswer) -> Iterator[dict[str, Any]]:
        """Yield what is new and sure in `parsed`, the answer so far."""
        is_past_reasoning = bool(parsed.content.strip() or parsed.tool_calls)
        reasoning = parsed.reasoning or ""
        yield from self._more(
            "reasoning_content", reasoning if is_past_reasoning else self._sure(reasoning)
        )
        content = self._sure(parsed.content)
        if not (self._has_tools and content.lstrip()[:1] in ("{", "[")):
            yield from self._more("content", content)

    def finish(self, parsed: ParsedAnswer) -> Iterator[dict[str, Any]]:
        """Yield the rest of the complete answer."""
        yield from self._more("reasoning_content", parsed.reasoning or "")
        yield from self._more("content", parsed.content)
        for index, call in enumerate(parsed.tool_calls):
            yield from call_deltas(call, index)

    def _more(self, key: str, text: str) -> Iterator[dict[str, Any]]:
        given = self._given[key]
        if not text.startswith(given):
            given = given.lstrip("\n")  # a parser drops them once a call follows
        piece = text[len(given) :] if text.startswith(given) else ""
        if piece:
            self._given[key] += piece
            yield {key: piece}

    def _sure(self, text: str) -> str:
        call = _CALL.search(text)
        text = text[: call.start()] if call else text
        for stop in self._stop:
            text = text.partition(stop)[0]
        text = text.rstrip().rstrip(_HALF_CHARACTER)
        half = _HALF_MARK.search(text)
        text = text[: half.start()] if half else text
        begun = max((_overlap(text, stop) for stop in self._stop), default=0)
        return text[: len(text) - begun].rstrip()


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of `text` may be the beginning of `stop`."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
