"""Which tokens each slot of the cache holds, and where a new request finds its prefix.

The first `num_running` slots are the rows of the decode step. The others keep what finished
requests have left, until a new one needs the place: the one that was used longest ago goes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import numpy as np
import torch

from arkdev.backends.local.sampler.kv_cache import KeyValueCache


class Slots:
    """The tokens of all slots. Moves keys and values in the cache when slots change places."""

    def __init__(
        self, cache: KeyValueCache, *, max_running: int, reuses_decoded: bool = True
    ) -> None:
        """`reuses_decoded`: whether tokens that decode steps computed may be found again."""
        self._cache = cache
        self._reuses_decoded = reuses_decoded
        self.max_running = max_running
        self.num_running = 0
        self._tokens = np.zeros((cache.num_slots, cache.num_tokens), dtype=np.int64)
        self._held = np.zeros(cache.num_slots, dtype=np.int64)
        """How many tokens of a slot have keys and values."""
        self._reusable = np.zeros(cache.num_slots, dtype=np.int64)
        """How many tokens of a slot may be found again."""
        self._used = np.zeros(cache.num_slots, dtype=np.int64)
        """When a slot was used last, by a clock that counts; 0: never."""
        self._next_logits: list[tuple[int, torch.Tensor] | None] = [None] * cache.num_slots
        """The logits after the prompt, with its length."""
        self._clock = count(1)

    @property
    def has_room(self) -> bool:
        """Whether one more request may run."""
        return self.num_running < self.max_running

    def forget(self) -> None:
        """Nothing is found again. No request may be running."""
        self._held[:] = 0
        self._reusable[:] = 0
        self._used[:] = 0
        self._next_logits = [None] * self._cache.num_slots

    def longest_prefix(self, prompt: np.ndarray) -> tuple[int, int]:
        """Return the slot with the longest prefix of `prompt` and its length, 0 without any.

        Among equals, one that knows the logits after the prompt.
        """
        held = self._tokens[:, : len(prompt)]
        differs = held != prompt
        lengths = np.where(differs.any(axis=1), differs.argmax(axis=1), len(prompt))
        lengths = np.minimum(lengths, self._reusable)
        longest = int(lengths.max())
        slots = np.flatnonzero(lengths == longest)
        for slot in slots:
            known = self._next_logits[slot]
            if known is not None and known[0] == len(prompt) == longest:
                return int(slot), longest
        return int(slots[0]), longest

    def start(
        self, prompt: Sequence[int], *, reuse: bool = True
    ) -> tuple[int, int, torch.Tensor | None]:
        """Make room for a request and bring what is known of its prompt there.

        Returns its row, how many tokens need not be computed, and the logits after the prompt when
        all of it is known. At least the last token has to be computed otherwise.
        """
        ids = np.asarray(prompt, dtype=np.int64)
        source, length = self.longest_prefix(ids) if reuse else (0, 0)
        known = self._next_logits[source]
        logits = (
            known[1] if length and known is not None and known[0] == len(ids) == length else None
        )
        kept = length if logits is not None else min(length, len(ids) - 1)
        row = self.num_running
        self._bring(source if kept else None, row=row, num_tokens=kept)
        self.num_running += 1
        self._tokens[row, : len(ids)] = ids
        self._held[row] = self._reusable[row] = kept
        self._next_logits[row] = None if logits is None else (len(ids), logits)
        self._used[row] = next(self._clock)
        return row, kept, logits

    def _bring(self, source: int | None, *, row: int, num_tokens: int) -> None:
        """Give `row` the first tokens of `source`, and its own old content a better place."""
        idle = range(row, self._cache.num_slots)
        if source is not None and source >= row:
            continues = num_tokens >= self._reusable[source] - 1
            if continues or len(idle) == 1:
                self._swap(source, row)
                return
        candidates = [slot for slot in idle if slot != source]
        oldest = min(candidates, key=lambda slot: self._used[slot])
        if oldest != row:
            self._move(row, oldest)
            source = oldest if source == row else source
        if source is not None:
            self._cache.copy(source, row, num_tokens=num_tokens)

    def computed(self, row: int, *, num_tokens: int, next_logits: torch.Tensor | None) -> None:
        """Note that the prompt of a row has been computed."""
        self._held[row] = self._reusable[row] = num_tokens
        if next_logits is not None:
            self._next_logits[row] = (num_tokens, next_logits)

    def extend(self, token_ids: Sequence[int], positions: Sequence[int]) -> None:
        """Note that a decode step has computed one more token of each running row."""
        rows = np.arange(len(token_ids))
        self._tokens[rows, positions] = token_ids
        self._held[rows] = np.asarray(positions) + 1
        if self._reuses_decoded:
            self._reusable[rows] = self._held[rows]

    def end(self, row: int) -> None:
        """A request has ended; the last row takes its place, what it computed is kept."""
        self._used[row] = next(self._clock)
        self.num_running -= 1
        self._swap(row, self.num_running)

    @property
    def _arrays(self) -> tuple[np.ndarray, ...]:
        return self._tokens, self._held, self._reusable, self._used

    def _move(self, source: int, target: int) -> None:
        """Put what `source` holds where it overwrites what is needed least."""
        self._cache.copy(source, target, num_tokens=int(self._held[source]))
        for array in self._arrays:
            array[target] = array[source]
        self._next_logits[target] = self._next_logits[source]

    def _swap(self, one: int, other: int) -> None:
        if one == other:
            return
        longest = int(self._held[[one, other]].max())
        self._cache.swap(one, other, num_tokens=longest)
        for array in self._arrays:
            array[[one, other]] = array[[other, one]]
        logits = self._next_logits
        logits[one], logits[other] = logits[other], logits[one]
