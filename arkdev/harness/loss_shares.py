"""Who the loss of a step is made of: the share of each trajectory, group and length.

`arkdev.harness.loss_weights` says what a trajectory's tokens weigh. Its *share of the loss* is the
weight of its tokens over that of all. Its *share of the signal* is that with |advantage| beside
it: what it can move. Half of the signal on the longest quarter of the answers is what `token-mean`
makes of answers that differ in length.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from arkdev.harness.advantages import Advantage
from arkdev.harness.loss_weights import LossAggMode, sequence_scales
from arkdev.harness.token_counts import CountedBy, TokenCount

NUM_LENGTHS = 4
MAX_GROUPS = 3
"""Groups that are named: those with the largest shares."""


@dataclass(frozen=True)
class Member:
    """One trajectory of a step that is trained on."""

    trajectory_id: str
    sample_index: int
    counts: Mapping[CountedBy, TokenCount]
    advantage: Advantage | None = None
    """None where advantages do not say what is learned (PPO, OPD)."""
    loss_weight: Sequence[float] | None = None
    """Of each token, where the endpoint gave token ids."""


@dataclass(frozen=True)
class Share:
    """Of one trajectory."""

    num_kept: int
    loss: float
    signal: float | None
    """None: advantages do not say it, or all of them are 0."""


@dataclass(frozen=True)
class LengthShare:
    """Trajectories of like length; the lengths are those of what is trained on."""

    shortest: int
    longest: int
    num_trajectories: int
    loss: float
    signal: float | None


@dataclass(frozen=True)
class GroupShare:
    """All members of one sample."""

    sample_index: int
    num_kept: int
    loss: float
    signal: float | None


@dataclass(frozen=True)
class LossShares:
    """Of one step. Without a measure that all of it has, only `num_uncounted` says something."""

    mode: str
    counted_by: str | None
    num_uncounted: int
    """Trajectories whose tokens nobody counted; with one of them there are no shares."""
    num_kept: int = 0
    num_masked: int | None = None
    tokens: tuple[float, int, int] | None = None
    """Mean, shortest and longest of whole trajectories, masked tokens included; None: unknown."""
    lengths: tuple[LengthShare, ...] = ()
    """From the shortest to the longest, as many trajectories in each as can be."""
    groups: tuple[GroupShare, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> LossShares:
        """Read what `to_json` wrote."""
        lengths = tuple(LengthShare(**each) for each in document.get("lengths", ()))
        groups = tuple(GroupShare(**each) for each in document.get("groups", ()))
        tokens = document.get("tokens")
        whole = {**document, "lengths": lengths, "groups": groups}
        return cls(**{**whole, "tokens": tokens and tuple(tokens)})

    def metrics(self) -> dict[str, float]:
        """Return the metrics of a step that it makes, by names without the phase."""
        if self.counted_by is None:
            return {}
        found = {"tokens/kept": float(self.num_kept)}
        if self.num_masked is not None:
            found["tokens/masked"] = float(self.num_masked)
        if self.tokens is not None:
            names = ("tokens.mean", "tokens.min", "tokens.max")
            found |= zip(names, map(float, self.tokens), strict=True)
        longest, largest = self.lengths[-1], self.groups[0]
        found["loss_share->longest_quarter"] = longest.loss
        if longest.signal is not None:
            found["signal_share->longest_quarter"] = longest.signal
        found["loss_share->largest_group"] = largest.loss
        return found


def counted_by(members: Sequence[Member]) -> CountedBy | None:
    """Return the best measure that every trajectory has; None where there is none."""
    return next((by for by in CountedBy if all(by in m.counts for m in members)), None)


def shares_of(
    members: Sequence[Member], *, mode: LossAggMode, norm_tokens: int | None = None
) -> dict[str, Share]:
    """Return the share of each trajectory by its id; nothing where nobody counted all of them."""
    by = counted_by(members)
    if by is None or not members:
        return {}
    counts = [member.counts[by] for member in members]
    sizes = [count.kept_weight for count in counts]
    scales = sequence_scales(sizes, mode=mode, norm_tokens=norm_tokens)
    losses = [scale * size for scale, size in zip(scales, sizes, strict=True)]
    signals = [
        scale * _strength(member, size)
        for member, scale, size in zip(members, scales, sizes, strict=True)
    ]
    loss, signal = math.fsum(losses), math.fsum(signals)
    return {
        member.trajectory_id: Share(
            count.num_kept,
            loss=own / loss if loss else 0.0,
            signal=strength / signal if signal else None,
        )
        for member, count, own, strength in zip(members, counts, losses, signals, strict=True)
    }


def loss_shares(
    members: Sequence[Member], *, mode: LossAggMode, norm_tokens: int | None = None
) -> LossShares:
    """Return what a step's loss is made of."""
    by = counted_by(members)
    shares = shares_of(members, mode=mode, norm_tokens=norm_tokens)
    if by is None or not shares:
        num_counted = max(sum(each in m.counts for m in members) for each in CountedBy)
        return LossShares(mode.value, None, len(members) - num_counted)
    counts = [member.counts[by] for member in members]
    masked = [count.num_masked for count in counts]
    whole = [count.num_tokens for count in counts if count.num_tokens is not None]
    return LossShares(
        mode.value,
        by.value,
        0,
        num_kept=sum(share.num_kept for share in shares.values()),
        num_masked=None if None in masked else sum(number or 0 for number in masked),
        tokens=(math.fsum(whole) / len(whole), min(whole), max(whole))
        if len(whole) == len(members)
        else None,
        lengths=tuple(_lengths(list(shares.values()))),
        groups=tuple(_groups(members, shares)),
    )


_UNIT = 2.0**-64
"""Of the strengths, of which only ratios are told: sums of very large advantages stay floats."""


def _strength(member: Member, size: float) -> float:
    """Return Σ |advantage| × loss weight of the trajectory's tokens."""
    advantage, weights = member.advantage, member.loss_weight
    if advantage is None:
        return 0.0
    if not isinstance(advantage, tuple):
        return abs(advantage) * _UNIT * size
    if weights is not None and len(weights) == len(advantage):
        return math.fsum(abs(a) * _UNIT * w for a, w in zip(advantage, weights, strict=True))
    if not advantage:
        return 0.0
    return math.fsum(abs(a) * _UNIT / len(advantage) for a in advantage) * size


def _lengths(shares: list[Share]) -> list[LengthShare]:
    shares.sort(key=lambda share: share.num_kept)
    number = min(NUM_LENGTHS, len(shares))
    edges = [len(shares) * part // number for part in range(number + 1)]
    parts = [shares[start:end] for start, end in pairwise(edges)]
    return [
        LengthShare(
            shortest=part[0].num_kept,
            longest=part[-1].num_kept,
            num_trajectories=len(part),
            loss=math.fsum(share.loss for share in part),
            signal=_sum_of_signals(part),
        )
        for part in parts
    ]


def _groups(members: Sequence[Member], shares: Mapping[str, Share]) -> list[GroupShare]:
    by_sample: dict[int, list[Share]] = {}
    for member in members:
        by_sample.setdefault(member.sample_index, []).append(shares[member.trajectory_id])
    groups = [
        GroupShare(
            sample,
            num_kept=sum(share.num_kept for share in own),
            loss=math.fsum(share.loss for share in own),
            signal=_sum_of_signals(own),
        )
        for sample, own in by_sample.items()
    ]
    return sorted(groups, key=lambda group: -group.loss)[:MAX_GROUPS]


def _sum_of_signals(shares: Sequence[Share]) -> float | None:
    signals = [share.signal for share in shares if share.signal is not None]
    return math.fsum(signals) if len(signals) == len(shares) else None
