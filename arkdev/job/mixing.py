"""Mixing datasets, and splitting a validation set off (SURFACE JOB-22, 23, 26, 27, 31).

Samples are numbers here: nothing is read. All is a pure function of numbers and a seed, the same on
every machine (`arkdev.job.shuffling`). How many:

* A part of N samples with `multiplier` m gives round(m * N), a half goes up; with `sample_count` it
  gives so many; with neither all N. The platform's documents name the two and no more.
* The part is taken whole as often as it fits; the rest is drawn, with the labels ``mix`` and the
  part's number. So no sample is taken two times more often than another of its part.
* A split of p percent takes round(p / 100 * N), a half goes up, at least 1 and at most N - 1,
  drawn with the label ``validation``. It comes before the mixing, so that no sample is on both
  sides, and depends on N, p and the seed alone.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Decimal
from itertools import accumulate
from typing import overload

from arkdev.job.shuffling import drawn

MAX_SAMPLES = 100_000_000
"""The order of an epoch takes 8 bytes a sample, 800 MB here, and about a minute."""


@dataclass(frozen=True)
class MixPart:
    """A dataset of a mix; at most one of `multiplier` and `sample_count`, neither means all.

    Raises `ValueError`, also when the part would give nothing.
    """

    samples: Sequence[int]
    """Numbers of its samples."""
    multiplier: float | None = None
    sample_count: int | None = None

    def __post_init__(self) -> None:
        if self.multiplier is not None and self.sample_count is not None:
            raise ValueError("multiplier and sample_count exclude each other")
        if self.multiplier is not None and not 0 < self.multiplier < math.inf:
            raise ValueError(f"multiplier is {self.multiplier:g}; more than 0 is expected")
        if self.sample_count is not None and self.sample_count < 1:
            raise ValueError(f"sample_count is {self.sample_count}; at least 1 is expected")
        if not self.samples:
            raise ValueError("it has no samples to mix in")
        if self.wanted == 0:
            raise ValueError(
                f"multiplier is {self.multiplier:g}: none of {len(self.samples)} samples is taken"
            )
        if self.wanted > MAX_SAMPLES:
            name = "multiplier" if self.sample_count is None else "sample_count"
            raise ValueError(f"{name}: more than {MAX_SAMPLES:,} samples cannot be mixed")

    @property
    def wanted(self) -> int:
        """Samples that it gives to the mix."""
        if self.sample_count is not None:
            return self.sample_count
        if self.multiplier is None:
            return len(self.samples)
        return _rounded(Decimal(repr(self.multiplier)) * len(self.samples))


class Mix(Sequence[int]):
    """The samples of several parts, one part after the other.

    Memory: 8 bytes for each sample that is drawn; whole copies take none. Raises `ValueError` for
    more than `MAX_SAMPLES`.
    """

    def __init__(self, parts: Sequence[MixPart], *, seed: int) -> None:
        self._parts = tuple(parts)
        self._ends = list(accumulate(part.wanted for part in self._parts))
        if len(self) > MAX_SAMPLES:
            raise ValueError(f"more than {MAX_SAMPLES:,} samples cannot be mixed")
        self._drawn = [_rest(part, seed=seed, number=n) for n, part in enumerate(self._parts)]

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...
    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        """Return the number of the sample at `index` of the mix."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(f"there is no sample {index}; the mix has {len(self)}")
        number = bisect_right(self._ends, index)
        part, drawn_ones = self._parts[number], self._drawn[number]
        offset = index - (self._ends[number] - part.wanted)
        num_in_copies = part.wanted - len(drawn_ones)
        if offset >= num_in_copies:
            return part.samples[drawn_ones[offset - num_in_copies]]
        return part.samples[offset % len(part.samples)]


def _rest(part: MixPart, *, seed: int, number: int) -> array[int]:
    """What a part gives beside whole copies: places in its `samples`, ascending."""
    count = part.wanted % len(part.samples)
    if not count:
        return array("Q")
    return drawn(count, size=len(part.samples), seed=seed, labels=("mix", number))


def split_off(
    parts: Sequence[MixPart], *, percentage: float, seed: int
) -> tuple[list[MixPart], array[int]]:
    """Take a validation set out of `parts`; return what they keep, and the set's samples.

    Raises `ValueError` for a percentage that is not between 0 and 100, for fewer than two samples,
    and when a part would be left with nothing.
    """
    if not 0 < percentage < 100:
        raise ValueError(f"validation_percentage is {percentage:g}; between 0 and 100 is expected")
    size = sum(len(part.samples) for part in parts)
    if size < 2:
        raise ValueError("a validation set cannot be split off fewer than 2 samples")
    count = min(max(_rounded(Decimal(repr(percentage)) * size / 100), 1), size - 1)
    held_out = bytearray(size)
    for place in drawn(count, size=size, seed=seed, labels=("validation",)):
        held_out[place] = 1
    places = iter(held_out)
    kept, validation = [], array("Q")
    for part in parts:
        rest = array("Q")
        for number, is_held_out in zip(part.samples, places, strict=False):
            (validation if is_held_out else rest).append(number)
        kept.append(replace(part, samples=rest))
    return kept, validation


def _rounded(value: Decimal) -> int:
    """The nearest whole number, a half goes up."""
    return int(value.to_integral_value(ROUND_HALF_UP))
