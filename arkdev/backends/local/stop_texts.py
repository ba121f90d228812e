"""Ends an answer where its text reaches a stop text, also when tokens end elsewhere.

Texts are looked for in what the model writes, special tokens, reasoning and calls included. What
was sampled stays as it was: the tokens of an answer are those up to the one that completes the
text, while its content ends before the text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from arkdev.backends.local.rendering import ParsedAnswer
from arkdev.backends.local.text_stream import TextStream


class StopTexts:
    """Looks for stop texts while tokens come; used by one thread at a time."""

    def __init__(self, texts: Sequence[str], *, decode: Callable[[Sequence[int]], str]) -> None:
        self._texts = texts
        self._stream = TextStream(decode)
        self._tail = ""
        self._longest = max(map(len, texts), default=0)
        self.found: str | None = None
        """The text that ended the answer; of several the one that begins first."""

    def is_reached(self, token_id: int) -> bool:
        """Take a token; True when the answer ends with it."""
        text = self._tail + self._stream.push([token_id])
        places = [(at, stop) for stop in self._texts if (at := text.find(stop)) >= 0]
        if places:
            self.found = min(places)[1]
            return True
        self._tail = text[-(self._longest - 1) :] if self._longest > 1 else ""
        return False


def cut_at(parsed: ParsedAnswer, stop: str) -> ParsedAnswer:
    """Return an answer without `stop` and what its last token has after it."""
    if stop in parsed.content:
        return replace(parsed, content=parsed.content.partition(stop)[0])
    if parsed.reasoning and stop in parsed.reasoning:
        return replace(parsed, reasoning=parsed.reasoning.partition(stop)[0])
    return parsed
