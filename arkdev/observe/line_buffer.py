"""Output that arrives in parts, put together to lines."""

from __future__ import annotations

import codecs
from collections.abc import Callable

from arkdev.observe.log_lines import MAX_CHARS


class LineBuffer:
    """The part of a line that has come so far. Not safe to use from two threads at once.

    Once there are more than `max_chars` characters of a line that does not end, it comes in pieces
    of at most `MAX_CHARS`, so that memory is bounded.
    `mask` takes the secrets out before a line is cut into pieces: the last `MAX_CHARS` characters
    are held back then, since a secret may go on after them.
    """

    def __init__(
        self,
        mask: Callable[[str], str],
        *,
        max_chars: int = 2 * MAX_CHARS,
        errors: str = "replace",
    ) -> None:
        self._mask = mask
        self._max_chars = max_chars
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors)
        self._parts: list[str] = []
        self._num_chars = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not self._num_chars and not self._decoder.getstate()[0]

    def add_bytes(self, data: bytes) -> list[str]:
        """Like `add`; a character may be split between two calls."""
        return self.add(self._decoder.decode(data))

    def add(self, text: str) -> list[str]:
        """Take the next part; return the lines, without their ends, that are whole now."""
        first, *others = text.split("\n")
        self._keep(first)
        if not others:
            return self._pieces()
        lines = [self._taken(), *others[:-1]]
        self._keep(others[-1])
        return lines + self._pieces()

    def rest(self) -> str:
        """Take what waits: the line has no end."""
        self._keep(self._decoder.decode(b"", final=True))
        return self._taken()

    def _keep(self, text: str) -> None:
        if text:
            self._parts.append(text)
            self._num_chars += len(text)

    def _taken(self) -> str:
        text = "".join(self._parts)
        self._parts, self._num_chars = [], 0
        return text

    def _pieces(self) -> list[str]:
        if self._num_chars <= self._max_chars:
            return []
        text = self._mask(self._taken())
        self._keep(text[-MAX_CHARS:])
        return [
            text[begin : min(begin + MAX_CHARS, len(text) - MAX_CHARS)]
            for begin in range(0, len(text) - MAX_CHARS, MAX_CHARS)
        ]
