"""The advantages of a batch, in plain Python: the documented GRPO, and graders' own (SURFACE ADV).

For a group of n rewards r::

    A_i = (r_i - mean) / (std + 1e-6)      std² = Σ (r_i - mean)² / (n - 1)

A group of one has mean 0 and std 1, so that it keeps its reward; a group of equal rewards has 0
everywhere. A grader may give its own advantages instead, one for each trajectory or for each token;
what one call may return is checked where it is read (`arkdev.plugin.results`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from arkdev.errors import PluginResultError
from arkdev.harness.distributions import unit_of
from arkdev.runs.records import GraderRecord, GroupRecord

EPSILON = 1e-6
_SAME = 1e-12
"""Relative and absolute: 0.1 + 0.2 is the same reward as 0.3."""

Advantage = float | tuple[float, ...]
"""Of a trajectory: of all its tokens, or of each."""


def grpo_advantages(rewards: Sequence[float]) -> list[float]:
    """Return the advantage of each member of a group with these rewards (decision 21).

    >>> [round(advantage, 4) for advantage in grpo_advantages([1.0, 0.0, 0.0, 0.0])]
    [1.5, -0.5, -0.5, -0.5]
    """
    if len(rewards) == 1:
        return [float(rewards[0])]
    if are_equal(rewards):
        return [0.0] * len(rewards)
    unit = unit_of(rewards)
    mean = math.fsum(reward / unit for reward in rewards) / len(rewards)
    deviations = [reward / unit - mean for reward in rewards]
    std = math.hypot(*deviations) / math.sqrt(len(rewards) - 1)
    return [deviation / (std + EPSILON / unit) for deviation in deviations]


def are_equal(rewards: Sequence[float]) -> bool:
    """Whether the rewards are the same but for the rounding of sums: a group without a signal."""
    return not rewards or math.isclose(min(rewards), max(rewards), rel_tol=_SAME, abs_tol=_SAME)


def advantage_grader(graders: Sequence[GraderRecord]) -> GraderRecord | None:
    """Return the grader whose own advantages a group is trained on; None means the built-in GRPO.

    They stand as they were given, whatever the grader's weight, and whatever the other graders'
    rewards: those only count in the reward that is shown. A grader of weight 0 is only observed.
    Raises `PluginResultError` when two graders gave advantages, which no rule says how to join.
    """
    given = [g for g in graders if g.weight != 0 and has_own_advantages(g)]
    if len(given) > 1:
        raise PluginResultError(
            f"graders {' and '.join(grader.name for grader in given)} both gave advantages",
            hint="let one grader give them (rewards are summed by weight, advantages are not)",
        )
    return given[0] if given else None


def has_own_advantages(grader: GraderRecord) -> bool:
    """Whether the grader gave advantages of its own, of either kind."""
    return grader.seq_advantages is not None or grader.tok_advantages is not None


def group_advantages(group: GroupRecord) -> tuple[Advantage | None, ...]:
    """Return the advantage of each of the group's `trajectory_ids`; None where there is no reward.

    The built-in GRPO looks at the rewarded members alone. Raises what `advantage_grader` raises.
    """
    grader = advantage_grader(group.graders)
    if grader is None:
        built_in = iter(grpo_advantages([reward for reward in group.rewards if reward is not None]))
        return tuple(None if reward is None else next(built_in) for reward in group.rewards)
    own = grader.seq_advantages if grader.tok_advantages is None else grader.tok_advantages
    assert own is not None
    return tuple(
        None if reward is None else advantage
        for reward, advantage in zip(group.rewards, own, strict=True)
    )


def batch_advantages(groups: Sequence[GroupRecord]) -> dict[str, Advantage]:
    """Return the advantages of a batch by trajectory id, of each that has a reward.

    Raises `PluginResultError` when only some of its groups have advantages of a grader's own
    (ADV-09). Both kinds may be in one batch: `token_advantages` makes one of them (ADV-10).
    """
    rewarded = [group for group in groups if any(reward is not None for reward in group.rewards)]
    graders = [advantage_grader(group.graders) for group in rewarded]
    without = [group.sample_index for group, g in zip(rewarded, graders, strict=True) if g is None]
    names = dict.fromkeys(grader.name for grader in graders if grader is not None)
    if without and names:
        raise PluginResultError(
            f"{' and '.join(names)} gave advantages for {len(rewarded) - len(without)} of "
            f"{len(rewarded)} groups of a batch, none for sample {without[0]}",
            hint="give them for every sample, or for none",
        )
    return {
        trajectory_id: advantage
        for group in rewarded
        for trajectory_id, advantage in zip(
            group.trajectory_ids, group_advantages(group), strict=True
        )
        if advantage is not None
    }


def token_advantages(advantage: Advantage, *, loss_weight: Sequence[float]) -> list[float]:
    """Return the advantage of each token, 0 where `loss_weight` is 0 (ADV-02, ADV-04).

    The weight itself is left to the loss. Raises `PluginResultError` when there is not one
    advantage for each token.
    """
    if isinstance(advantage, tuple):
        if len(advantage) != len(loss_weight):
            raise PluginResultError(
                f"{len(advantage)} tok_advantages for {len(loss_weight)} tokens",
                hint="give one for each of total_token_ids",
            )
        return [a if w else 0.0 for a, w in zip(advantage, loss_weight, strict=True)]
    return [advantage if weight else 0.0 for weight in loss_weight]
