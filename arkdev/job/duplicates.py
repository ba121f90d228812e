"""Prompts that are there more than once, found in little memory: 16 bytes a sample.

Hashes are kept, no text: 64 bits of the prompt, 32 of ``extra``. They are put into 256 bins by
their first bits, so that sorting them at the end needs memory for one bin more.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from itertools import groupby

_NUM_BINS = 256
_MAX_SHOWN = 10


@dataclass(frozen=True)
class SamePrompt:
    """A prompt that several samples have."""

    samples: tuple[int, ...]
    """Their numbers, ascending; the first ten."""
    count: int
    """How many there are."""
    differs_in_extra: bool
    """Whether they do not all have the same ``extra``: one question with different answers."""


@dataclass(frozen=True)
class Duplicates:
    """What was found."""

    num_repeated: int
    """Samples whose prompt an earlier one has: what removing duplicates would take away."""
    num_conflicting: int
    """Prompts with different ``extra``."""
    num_leaked: int
    """Samples of the later sets whose prompt is in the first set."""
    shown: tuple[SamePrompt, ...]
    """The ten that most samples have."""
    leaked: tuple[tuple[int, int], ...]
    """The first ten of (sample of a later set, sample of the first set)."""


class PromptIndex:
    """Collects the hashes of samples numbered from 0, those of the first set first."""

    def __init__(self) -> None:
        self._prompts = [array("Q") for _ in range(_NUM_BINS)]
        self._extras = [array("I") for _ in range(_NUM_BINS)]
        self._numbers = [array("I") for _ in range(_NUM_BINS)]
        self._size = 0

    def add(self, prompt: int, *, extra: int) -> None:
        """Add the next sample by two hashes of 64 bits."""
        number = prompt >> 56
        self._prompts[number].append(prompt)
        self._extras[number].append(extra & 0xFFFFFFFF)
        self._numbers[number].append(self._size)
        self._size += 1

    def find(self, *, size_of_first_set: int) -> Duplicates:
        """Compare all samples."""
        num_repeated = num_conflicting = num_leaked = 0
        shown: list[SamePrompt] = []
        leaked: list[tuple[int, int]] = []
        for columns in zip(self._prompts, self._numbers, self._extras, strict=True):
            rows = sorted(zip(*columns, strict=True))
            for _, same in groupby(rows, key=lambda row: row[0]):
                members = list(same)
                if len(members) == 1:
                    continue
                numbers = [number for _, number, _ in members]
                differs = len({extra for _, _, extra in members}) > 1
                num_repeated += len(members) - 1
                num_conflicting += differs
                shown.append(SamePrompt(tuple(numbers[:_MAX_SHOWN]), len(numbers), differs))
                late = [number for number in numbers if number >= size_of_first_set]
                if numbers[0] < size_of_first_set and late:
                    num_leaked += len(late)
                    leaked += [(number, numbers[0]) for number in late]
            shown = sorted(shown, key=lambda item: (-item.count, item.samples))[:_MAX_SHOWN]
            leaked = sorted(leaked)[:_MAX_SHOWN]
        return Duplicates(num_repeated, num_conflicting, num_leaked, tuple(shown), tuple(leaked))
