"""Prompts that gave no signal: always solved (to drop), or never (to make easier)."""

from __future__ import annotations

from dataclasses import dataclass

from arkdev.harness.forecast.observed import ObservedRun
from arkdev.harness.forecast.quantiles import beta_quantile
from arkdev.harness.forecast.quantity import TAIL, Quantity, too_few
from arkdev.harness.forecast.signal import SignalSource
from arkdev.harness.forecast.size import JobSize

ENOUGH_ROLLOUTS = 8
"""Of a prompt. With fewer, one that is solved two times in three may well look always solved."""
_ROUNDING = 1e-9


@dataclass(frozen=True)
class SettledPrompt:
    """A prompt whose groups all had the same reward throughout."""

    sample_index: int
    num_rollouts: int
    reward: float
    text: str
    """The beginning of its question."""


@dataclass(frozen=True)
class SettledPrompts:
    """See the module."""

    num_prompts: int
    """Of the run with a group in a batch."""
    always_solved: tuple[SettledPrompt, ...]
    never_solved: tuple[SettledPrompt, ...]
    signal_after_solved: Quantity
    """The chance that the next group of a prompt that was always solved has a signal."""
    signal_after_unsolved: Quantity
    fewest_rollouts: int
    """Of a prompt in these lists."""
    rate_bound: float | None
    """A prompt that was always solved in so many rollouts is solved at least so often, to 95 %
    (and one that never was at most 1 - this): the interval of Jeffreys."""

    @property
    def is_too_few(self) -> bool:
        """Whether there are too few rollouts of a prompt to tell."""
        return self.fewest_rollouts < ENOUGH_ROLLOUTS


def settled_prompts(run: ObservedRun, source: SignalSource, size: JobSize) -> SettledPrompts:
    """Return the prompts without a signal; none where rewards are not what teaches."""
    rewards: dict[int, list[float]] = {}
    lively: set[int] = set()
    for group in run.groups:
        if not group.is_kept:
            continue
        rewards.setdefault(group.sample_index, []).extend(group.rewards)
        if group.has_signal or not group.is_settled:
            lively.add(group.sample_index)
    found = [
        SettledPrompt(index, len(values), values[0], run.prompts.get(index, ""))
        for index, values in sorted(rewards.items())
        if index not in lively and len(values) > 1
    ]
    enough = run.success_threshold - _ROUNDING
    always = tuple(one for one in found if one.reward >= enough)
    never = tuple(one for one in found if one.reward < enough)
    fewest = min((one.num_rollouts for one in found), default=0)
    return SettledPrompts(
        num_prompts=len(rewards),
        always_solved=always,
        never_solved=never,
        signal_after_solved=_signal_after(always, source, size, is_solved=True, of=len(rewards)),
        signal_after_unsolved=_signal_after(never, source, size, is_solved=False, of=len(rewards)),
        fewest_rollouts=fewest,
        rate_bound=beta_quantile(TAIL, fewest + 0.5, 0.5) if fewest else None,
    )


def _signal_after(
    found: tuple[SettledPrompt, ...],
    source: SignalSource,
    size: JobSize,
    *,
    is_solved: bool,
    of: int,
) -> Quantity:
    if not found:
        return Quantity(None)
    if not source.is_two_valued:
        return Quantity(None, why="rewards have more than two values")
    if problem := too_few(of):
        return Quantity(None, why=problem)
    fewest = min(one.num_rollouts for one in found)
    return source.model().signal_after(fewest, size.num_generations, is_solved=is_solved)
