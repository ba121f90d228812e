"""The signal of a job: how many groups teach, in a batch, per 1,000 samples, by group size."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from arkdev.harness.distributions import unit_of
from arkdev.harness.forecast.observed import ObservedGroup, ObservedRun, by_prompt
from arkdev.harness.forecast.quantity import (
    Clusters,
    Interval,
    Quantity,
    share,
    too_few,
)
from arkdev.harness.forecast.size import JobSize
from arkdev.harness.forecast.success_model import SuccessModel
from arkdev.harness.thresholds import Z

SIZES = (4, 8, 16, 32)
"""Numbers of generations that are told besides the job's own."""
MEASURED, SUBSETS, MODEL, AT_LEAST = "measured", "subsets", "model", "at least"
UNKNOWN = "not known"
PER = 1000
_WANTED_HALF = 0.1
_ROUNDING = 1e-9


@dataclass(frozen=True)
class SignalAt:
    """Useful groups per 1,000 samples with groups of one size."""

    num_generations: int
    useful_per_1000: Quantity
    how: str
    """``measured``; ``subsets`` of the groups that were measured; ``model`` of success rates;
    ``at least``: rewards of many values, where larger groups can only have more signal; ``not
    known``."""


@dataclass(frozen=True)
class SignalForecast:
    """See the module. A group is useful when it is in the batch and an advantage in it is not 0."""

    zero_variance: Quantity
    """Share of the groups in a batch whose advantages are all 0."""
    useful_per_1000: Quantity
    useful_per_step: Quantity
    trajectories_per_step: Quantity
    """Trajectories whose advantage is not 0."""
    left: dict[str, int]
    """Why groups of the run were in no batch, and how many: they are not useful."""
    by_num_generations: tuple[SignalAt, ...]
    groups_wanted: int | None
    """Groups that would bring the useful share to ± 10 points; None: it is there already."""


class SignalSource:
    """The useful share for any size of groups."""

    def __init__(self, run: ObservedRun) -> None:
        self._run = run
        self._model: SuccessModel | None = None
        kept = [group for group in run.groups if group.is_kept]
        self._kept = kept
        self._has_own = any(group.has_own_advantages for group in kept)
        self._top = two_valued_top(kept, threshold=run.success_threshold)

    @property
    def is_two_valued(self) -> bool:
        """Whether rewards have two values at most."""
        return self._top is not None and not self._has_own

    def model(self) -> SuccessModel:
        """Return the distribution of success rates; for rewards of two values."""
        if self._model is None:
            assert self._top is not None
            self._model = SuccessModel(_successes(self._kept, top=self._top))
        return self._model

    def useful(self, size: int, *, num_future: float) -> tuple[Quantity, str]:
        """Return the share of useful groups among groups of `size`, and how it is known."""
        groups, measured = self._run.groups, self._run.num_generations
        if size == measured:
            values = by_prompt(groups, lambda group: float(group.has_signal))
            return share(values, num_future=num_future), MEASURED
        if self._has_own:
            return Quantity(None, why="graders give the advantages themselves"), UNKNOWN
        if measured == 1:
            return Quantity(None, why="groups of one do not tell which prompts vary"), UNKNOWN
        if size == 1:
            values = by_prompt(groups, _useful_alone)
            return share(values, num_future=num_future), SUBSETS
        if size < measured:
            values = by_prompt(groups, lambda group: _useful_in_subset(group, size))
            return share(values, num_future=num_future), SUBSETS
        problem = too_few(by_prompt(groups, lambda _: 0.0).num_prompts)
        if not self.is_two_valued or problem:
            found, _ = self.useful(measured, num_future=num_future)
            low = found.true.low if found.true else 0.0
            bound = Interval(low, None) if found.true else None
            return Quantity(found.value, bound, bound, found.why), AT_LEAST
        kept = share(by_prompt(groups, lambda g: float(g.is_kept)), num_future=num_future)
        return _product(self.model().signal(size, num_future=num_future), kept), MODEL


def forecast_signal(
    run: ObservedRun, source: SignalSource, size: JobSize, *, sizes: Sequence[int] = SIZES
) -> SignalForecast:
    """Return the signal of a job of that size, and how it would be with groups of `sizes`."""
    n, per_step = size.num_generations, size.groups_per_step
    useful, _ = source.useful(n, num_future=size.num_prompts(run))
    kept = by_prompt([g for g in run.groups if g.is_kept], lambda g: float(not g.has_signal))
    per_batch = source.useful(n, num_future=per_step)[0].times(size.groups_per_step)
    shown = sorted({*sizes, n}) if run.num_generations > 1 else [n]
    return SignalForecast(
        zero_variance=_zero_variance(run, source, size, kept),
        useful_per_1000=source.useful(n, num_future=PER)[0].times(PER),
        useful_per_step=per_batch,
        trajectories_per_step=_trajectories(run, source, size, per_batch),
        left=dict(Counter(g.why_left for g in run.groups if not g.is_kept)),
        by_num_generations=tuple(_at(source, one) for one in shown),
        groups_wanted=_groups_wanted(useful),
    )


def two_valued_top(groups: Sequence[ObservedGroup], *, threshold: float) -> float | None:
    """Return the reward from which on a rollout counts as solved; None for more than two values."""
    values = sorted({reward for group in groups for reward in group.rewards})
    distinct = [v for i, v in enumerate(values) if not i or not _same(v, values[i - 1])]
    if not distinct or len(distinct) > 2:
        return None
    return distinct[-1] - _ROUNDING if len(distinct) == 2 else threshold - _ROUNDING


def _same(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-12)


def _zero_variance(
    run: ObservedRun, source: SignalSource, size: JobSize, kept: Clusters
) -> Quantity:
    num_future = size.num_prompts(run)
    if size.num_generations == run.num_generations:
        return share(kept, num_future=num_future)
    found, how = source.useful(size.num_generations, num_future=num_future)
    num_kept, num_groups = sum(g.is_kept for g in run.groups), len(run.groups)
    if how in (AT_LEAST, UNKNOWN) or found.value is None or not num_kept:
        return Quantity(None, why=found.why or "rewards have more than two values")
    back = num_groups / num_kept
    return Quantity(1 - found.value * back, _rest(found.true, back), _rest(found.job, back))


def _rest(interval: Interval | None, factor: float) -> Interval | None:
    if interval is None or interval.high is None:
        return None
    return Interval(max(0.0, 1 - interval.high * factor), max(0.0, 1 - interval.low * factor))


def _trajectories(
    run: ObservedRun, source: SignalSource, size: JobSize, per_batch: Quantity
) -> Quantity:
    if size.num_generations == run.num_generations:
        values = by_prompt(run.groups, lambda g: g.num_with_advantage / g.num_members)
        found = share(values, num_future=size.groups_per_step, is_binary=False)
        return found.times(size.groups_per_step * size.num_generations)
    if source.is_two_valued:  # each member of a group with both values is off the mean
        return per_batch.times(size.num_generations)
    return Quantity(None, why=f"measured with {run.num_generations} rollouts of each sample")


def _at(source: SignalSource, num_generations: int) -> SignalAt:
    found, how = source.useful(num_generations, num_future=PER)
    return SignalAt(num_generations, found.times(PER), how)


def _groups_wanted(useful: Quantity) -> int | None:
    """By the normal approximation; a share of 0 or 1 so far is taken for one within it."""
    if useful.value is None:
        return None
    interval = useful.true
    if interval is not None and (
        interval.high is None or interval.high - interval.low <= 2 * _WANTED_HALF
    ):
        return None
    p = min(0.8, max(0.2, useful.value))
    return math.ceil(Z**2 * p * (1 - p) / _WANTED_HALF**2)


def _useful_alone(group: ObservedGroup) -> float:
    """A group of one keeps its reward as its advantage (ADV-05)."""
    if not group.is_kept:
        return 0.0
    return sum(bool(reward) for reward in group.rewards) / len(group.rewards)


def _useful_in_subset(group: ObservedGroup, size: int) -> float:
    """Return the share of its subsets of `size` whose rewards are not all equal (unbiased)."""
    if not group.is_kept:
        return 0.0
    size = min(size, len(group.rewards))
    unit = unit_of(group.rewards)
    counts = Counter(float(f"{reward / unit:.11g}") for reward in group.rewards)
    equal = sum(math.comb(count, size) for count in counts.values())
    return 1 - equal / math.comb(len(group.rewards), size)


def _successes(groups: Sequence[ObservedGroup], *, top: float) -> Counter[tuple[int, int]]:
    """Return prompts by (rollouts, successes) in all groups of each."""
    solved: dict[int, tuple[int, int]] = {}
    for group in groups:
        n, c = solved.get(group.sample_index, (0, 0))
        successes = sum(reward >= top for reward in group.rewards)
        solved[group.sample_index] = (n + len(group.rewards), c + successes)
    return Counter(solved.values())


def _product(first: Quantity, second: Quantity) -> Quantity:
    """Multiply two shares; their distances to each end add in quadrature (Zou and Donner 2008)."""
    a, b = first.value, second.value
    if a is None or b is None:
        return Quantity(None, why=first.why or second.why)
    if b == 1.0 or second.true is None or second.job is None:
        return first.times(b)
    return Quantity(
        a * b,
        _product_interval((a, b), first.true, second.true),
        _product_interval((a, b), first.job, second.true),
    )


def _product_interval(
    values: tuple[float, float], first: Interval | None, second: Interval
) -> Interval | None:
    if first is None or first.high is None or second.high is None:
        return None
    a, b = values
    below = math.hypot(b * (a - first.low), a * (b - second.low))
    above = math.hypot(b * (first.high - a), a * (second.high - b))
    return Interval(max(0.0, a * b - below), min(1.0, a * b + above))
