"""Text as its tokens are sampled, never half a character (field case 1.6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

_HALF = "\N{REPLACEMENT CHARACTER}"
"""What a decoder writes for bytes that are not yet, or never, a character."""


class TextStream:
    """Gives out the text of ids as they come; all of it together is the text of all ids.

    A character may be spread over several tokens: it is held back until it is whole. Earlier ids
    are decoded along with new ones for as long as a decoder's answer depends on what is before.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._ids: list[int] = []
        self._begin = 0
        """Ids before it no longer matter."""
        self._seen = 0
        """Ids before it have been given out whole, those from `_begin` on are the context."""
        self._num_given = 0
        """Characters given out after the context."""

    def push(self, token_ids: Sequence[int]) -> str:
        """Take ids and return the text that is sure now."""
        self._ids += token_ids
        text = self._new_text()
        is_whole = not text.endswith(_HALF)
        sure = text if is_whole else text[:-1]
        given, self._num_given = sure[self._num_given :], max(self._num_given, len(sure))
        if is_whole and text:
            self._begin, self._seen, self._num_given = self._seen, len(self._ids), 0
        return given

    def finish(self) -> str:
        """Return what was held back: bytes that never became a character."""
        text = self._new_text()
        rest, self._num_given = text[self._num_given :], len(text)
        return rest

    def _new_text(self) -> str:
        context = self._decode(self._ids[self._begin : self._seen])
        return self._decode(self._ids[self._begin :])[len(context) :]
