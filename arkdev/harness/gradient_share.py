"""Which part of a gradient changes its sign when other advantages take the place of the first ones.

A policy gradient adds up, over all tokens that are trained on, the token's own gradient times its
advantage. So a trajectory weighs |A| × its trained tokens (`token-mean`, the default of the loss).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from arkdev.harness.advantages import Advantage
from arkdev.runs.recorded import RecordedTrajectory
from arkdev.runs.records import TokenRecord

TOKENS = "trained tokens"
COMPLETION_TOKENS = "completion tokens"
TRAJECTORIES = "trajectories"
ZERO = 1e-9
"""An advantage below it is 0: what is left of a sum that should be 0 has no sign."""

_UNIT = 2.0**-64
"""Of the weights, of which only ratios are told: sums of very large advantages stay floats."""
_MEASURES = (TOKENS, COMPLETION_TOKENS, TRAJECTORIES)
"""The first that all trajectories have is used."""


@dataclass(frozen=True)
class GradientShare:
    """Shares of the first grader's gradient weight; None when it gives no signal at all."""

    counted_by: str
    """What a trajectory's advantage was multiplied by: ``trained tokens`` (token evidence),
    ``completion tokens`` (usage) or ``trajectories`` (1 each: nothing better was recorded)."""
    flipped: float | None
    """Where the second grader's advantage has the other sign."""
    lost: float | None
    """Where the second grader's advantage is 0."""


@dataclass
class _Sums:
    total: float = 0.0
    flipped: float = 0.0
    lost: float = 0.0


@dataclass
class GradientWeights:
    """Add trajectories with their two advantages; ask for `summary`."""

    _sums: dict[str, _Sums] = field(default_factory=lambda: {name: _Sums() for name in _MEASURES})

    def add(self, trajectory: RecordedTrajectory, a: Advantage, b: Advantage) -> None:
        """Count one trajectory under every measure that it has; the others are given up."""
        sizes = _sizes(trajectory)
        for measure in [measure for measure in self._sums if measure not in sizes]:
            del self._sums[measure]
        before, after = _by_token(a, trajectory.tokens), _by_token(b, trajectory.tokens)
        for measure, sums in self._sums.items():
            _add(sums, before, after, size=sizes[measure])

    def summary(self) -> GradientShare:
        """Return the shares by the best measure that every trajectory has."""
        measure, sums = next(iter(self._sums.items()))
        if not sums.total:
            return GradientShare(measure, flipped=None, lost=None)
        return GradientShare(
            measure, flipped=sums.flipped / sums.total, lost=sums.lost / sums.total
        )


def trained_advantages(advantage: Sequence[float], tokens: TokenRecord | None) -> Sequence[float]:
    """Return the advantages of the tokens that are trained on; of all when nobody knows which."""
    if tokens is None or len(tokens.loss_weight) != len(advantage):
        return advantage
    return [a for a, weight in zip(advantage, tokens.loss_weight, strict=True) if weight]


def _sizes(trajectory: RecordedTrajectory) -> dict[str, float]:
    sizes: dict[str, float] = {TRAJECTORIES: 1}
    completion_tokens = (trajectory.record.usage or {}).get("completion_tokens")
    if completion_tokens is not None:
        sizes[COMPLETION_TOKENS] = completion_tokens
    if trajectory.tokens is not None:
        sizes[TOKENS] = sum(1 for weight in trajectory.tokens.loss_weight if weight)
    return sizes


def _by_token(advantage: Advantage, tokens: TokenRecord | None) -> Sequence[float]:
    """Return the advantages of a trajectory's trained tokens, one in place of equal ones."""
    if isinstance(advantage, tuple):
        return trained_advantages(advantage, tokens)
    return (advantage,)


def _add(sums: _Sums, a: Sequence[float], b: Sequence[float], *, size: float) -> None:
    """Add the weight of a trajectory of `size`, spread evenly over what is given of its tokens."""
    number = max(len(a), len(b))
    if not number:
        return
    for before, after in zip(_spread(a, number), _spread(b, number), strict=True):
        weight = abs(before) * _UNIT * size / number
        sums.total += weight
        if abs(after) < ZERO:
            sums.lost += weight
        elif before * after < 0:
            sums.flipped += weight


def _spread(values: Sequence[float], number: int) -> Sequence[float]:
    return list(values) * number if len(values) == 1 else values
