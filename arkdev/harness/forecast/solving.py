"""pass@k, over all prompts and by how hard they are.

pass@k is the unbiased estimator of Chen et al. (2021, `group_numbers.pass_at_k`), over the complete
groups. Difficulty is a success rate, and prompts binned by the rollouts that are then averaged
would look more different than they are: those that were lucky would fall into the easy bins, and
their luck would be counted once more. So a group is binned by h = n // 2 of its rollouts and pass@k
taken from the other n - h, averaged over all ways to choose the h: of n with c successes, s of the
h are successes with the hypergeometric probability C(c, s) C(n-c, h-s) / C(n, h), and the others
give pass_at_k(n - h, c - s, k). That is unbiased for prompts that succeed s of h times, for
k ≤ n - h. A bin that holds fewer groups than an interval needs has none, in how many prompts' parts
they may come: simulated, intervals of bins with one group cover 30 to 60 % instead of 90 %.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from arkdev.harness.forecast.observed import ObservedGroup, ObservedRun, by_prompt
from arkdev.harness.forecast.quantity import Clusters, Quantity, share, too_few
from arkdev.harness.forecast.size import JobSize
from arkdev.harness.group_numbers import pass_at_k

_ROUNDING = 1e-9


@dataclass(frozen=True)
class PassAt:
    """The chance that at least one of k rollouts reaches the success threshold."""

    k: int
    chance: Quantity


@dataclass(frozen=True)
class DifficultyBin:
    """Prompts that were solved `low` to `high` times in `SolvingForecast.num_binning` rollouts."""

    low: int
    high: int
    num_groups: float
    """Expected number, since groups are binned in all ways."""
    pass_at_k: tuple[PassAt, ...]


@dataclass(frozen=True)
class SolvingForecast:
    """See the module."""

    num_groups: int
    """Complete ones: with a reward for every rollout."""
    num_incomplete: int
    pass_at_k: tuple[PassAt, ...]
    num_binning: int
    """Rollouts that say how hard a prompt is: h."""
    difficulty: tuple[DifficultyBin, ...]
    """The hardest first; empty bins are left out."""


def forecast_solving(run: ObservedRun, size: JobSize) -> SolvingForecast | None:
    """Return pass@k of prompts like those of the run; None when no group is complete."""
    n = run.num_generations
    complete = [group for group in run.groups if len(group.rewards) >= group.num_members]
    if not complete:
        return None
    successes = _counter(run.success_threshold)
    num_future = size.num_prompts(run)
    return SolvingForecast(
        num_groups=len(complete),
        num_incomplete=len(run.groups) - len(complete),
        pass_at_k=tuple(
            PassAt(
                k,
                share(
                    by_prompt(complete, _pass_at(k, successes)),
                    num_future=num_future,
                    is_binary=k == n,
                ),
            )
            for k in sorted({*powers_up_to(n), max(1, n - n // 2)})
        ),
        num_binning=n // 2,
        difficulty=tuple(_bins(complete, successes, n, num_future)) if n > 1 else (),
    )


def powers_up_to(n: int) -> list[int]:
    """Return 1, 2, 4, ... and `n` itself.

    >>> powers_up_to(6)
    [1, 2, 4, 6]
    """
    powers = [1]
    while powers[-1] * 2 <= n:
        powers.append(powers[-1] * 2)
    return [*powers, n] if powers[-1] != n else powers


def _counter(threshold: float) -> Callable[[ObservedGroup], int]:
    return lambda group: sum(reward >= threshold - _ROUNDING for reward in group.rewards)


def _pass_at(k: int, successes: Callable[[ObservedGroup], int]) -> Callable[[ObservedGroup], float]:
    return lambda group: pass_at_k(len(group.rewards), c=successes(group), k=k)


def _bins(
    groups: Sequence[ObservedGroup],
    successes: Callable[[ObservedGroup], int],
    n: int,
    num_future: int,
) -> list[DifficultyBin]:
    h = n // 2
    found = []
    for low, high in ((0, 0), (1, h // 2), (h // 2 + 1, h - 1), (h, h)):
        if low > high:
            continue
        passes = []
        for k in powers_up_to(n - h):
            clusters = _split(groups, successes, binned=(h, low, high), k=k)
            of_bin = math.fsum(clusters.counts)
            future = max(1.0, num_future * of_bin / len(groups))
            chance = share(clusters, num_future=future, is_binary=False)
            if problem := too_few(of_bin):  # a bin of one group is made of scraps of many
                chance = Quantity(chance.value, why=problem)
            passes.append(PassAt(k, chance))
        if of_bin > _ROUNDING:
            found.append(DifficultyBin(low, high, of_bin, tuple(passes)))
    return found


def _split(
    groups: Sequence[ObservedGroup],
    successes: Callable[[ObservedGroup], int],
    *,
    binned: tuple[int, int, int],
    k: int,
) -> Clusters:
    """Return the part of each prompt that falls into the bin, and its pass@k there."""
    h, low, high = binned
    sums: dict[int, float] = {}
    counts: dict[int, float] = {}
    for group in groups:
        n, c = len(group.rewards), successes(group)
        for s in range(max(low, h - (n - c)), min(high, c) + 1):
            weight = math.comb(c, s) * math.comb(n - c, h - s) / math.comb(n, h)
            name = group.sample_index
            passed = pass_at_k(n - h, c=c - s, k=k)
            sums[name] = sums.get(name, 0.0) + weight * passed
            counts[name] = counts.get(name, 0.0) + weight
    return Clusters(list(sums.values()), list(counts.values()))
