"""How long a step takes: the measured durations, scheduled as a job schedules them (decision 2).

A step is `batch_size` samples, each with its rollouts. One slot is one running rollout, there are
as many slots as `batch_size`, and a free slot takes the next rollout in order. A group is graded
once its rollouts are done; a grader runs at most `request_concurrency` times at once. The step is
over when the last group is graded. The smaller batch at the end of an epoch counts as a full one.
The update of the weights is not in it: no run here measures it.

Steps are drawn from whole prompts of the run, because rollouts of a prompt are alike, and the
intervals are those of a bootstrap over prompts: the true mean from the mean of a few steps of each
resample, what one step takes from one step of each. Both, and the forecast, are corrected for the
bias of the bootstrap: the slowest of few prompts is not the slowest of many.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from arkdev.harness.bootstrap import Estimate, bootstrapped
from arkdev.harness.distributions import mean_of
from arkdev.harness.forecast.observed import ObservedGrader, ObservedGroup, ObservedRun, by_prompt
from arkdev.harness.forecast.quantiles import t_quantile
from arkdev.harness.forecast.quantity import TAIL, Interval, Quantity, skewed_distances, too_few
from arkdev.harness.forecast.size import JobSize
from arkdev.harness.thresholds import Z

_STEPS_OF_MEAN = 8
_BUDGET = 1024
"""Rollouts that one resample for the mean schedules, about."""
_LARGE_BUDGET = 60_000
"""Those that the forecast itself schedules: its own chance must not show."""

Prompt = Sequence[ObservedGroup]
"""The groups of one sample."""


@dataclass(frozen=True)
class TimeForecast:
    """Seconds, without the update of the weights and without rounds on a validation set."""

    step: Quantity
    """`job` is what one step takes."""
    total: Quantity
    """Of all steps."""


class StepClock:
    """Schedules the rollouts and gradings of a step."""

    def __init__(self, run: ObservedRun, size: JobSize) -> None:
        self._size = size
        self._graders = run.graders
        self._num_calls = 1 if run.makes_groups else size.num_generations
        self._measured_calls = 1 if run.makes_groups else run.num_generations

    def mean_of(self, prompts: Sequence[Prompt], *, num_steps: int, random: Random) -> float:
        """Return the mean duration of steps whose samples are drawn from `prompts`."""
        return math.fsum(self._drawn(prompts, random) for _ in range(num_steps)) / num_steps

    def step_s(self, groups: Sequence[ObservedGroup], *, random: Random) -> float:
        """Return how long a step with these groups takes."""
        total = len(groups) * self._num_calls
        slots = [0.0] * min(self._size.batch_size, total)
        done = []
        for group in groups:
            end = 0.0
            for call_s in self._calls(group, random):
                free_at = slots[0] + call_s
                heapq.heapreplace(slots, free_at)
                if free_at > end:
                    end = free_at
            done.append((end, group))
        return max(max(end for end, _ in done), self._graded(done))

    def _drawn(self, prompts: Sequence[Prompt], random: Random) -> float:
        drawn = random.choices(prompts, k=self._size.groups_per_step)
        groups = [one[0] if len(one) == 1 else random.choice(one) for one in drawn]
        return self.step_s(groups, random=random)

    def _calls(self, group: ObservedGroup, random: Random) -> Sequence[float]:
        """Return the durations of a group's calls; for another group size drawn from these.

        A group that was dropped had fewer; it keeps them.
        """
        if self._num_calls == self._measured_calls or not group.calls_s:
            return group.calls_s
        number = round(len(group.calls_s) * self._num_calls / self._measured_calls)
        return random.choices(group.calls_s, k=max(1, number))

    def _graded(self, done: list[tuple[float, ObservedGroup]]) -> float:
        last = 0.0
        for index, grader in enumerate(self._graders):
            waiting = [
                (end, group.gradings_s[index])
                for end, group in done
                if len(group.gradings_s) > index
            ]
            last = max(last, _last_grading(waiting, self._places(grader, len(waiting))))
        return last

    def _places(self, grader: ObservedGrader, num_groups: int) -> int:
        """Return how many groups a grader grades at once: its calls for a group run together."""
        if grader.max_calls is None:
            return num_groups
        calls = self._size.num_generations if grader.is_single else 1
        return max(1, grader.max_calls // calls)


def _last_grading(waiting: list[tuple[float, float]], num_places: int) -> float:
    """Return when the last group is graded; each is ready at a time and takes a time."""
    if num_places >= len(waiting):
        return max((ready + takes for ready, takes in waiting), default=0.0)
    places = [0.0] * num_places
    last = 0.0
    for ready, takes in sorted(waiting):
        end = max(ready, places[0]) + takes
        heapq.heapreplace(places, end)
        last = max(last, end)
    return last


def forecast_time(run: ObservedRun, size: JobSize, *, seed: int) -> TimeForecast:
    """Return the time of a step and of all steps of a job of that size."""
    problem = _unknown(run, size)
    if problem:
        return TimeForecast(Quantity(None, why=problem), Quantity(None, why=problem))
    prompts = _by_prompt(run)
    clock, random = StepClock(run, size), Random(seed)
    work = size.groups_per_step * size.num_generations
    num_steps = max(1, min(_STEPS_OF_MEAN, _BUDGET // work))
    value = clock.mean_of(prompts, num_steps=max(8, _LARGE_BUDGET // work), random=random)

    why = too_few(len(prompts))
    if why:
        step = Quantity(value, why=why)
        return TimeForecast(step, _total(step, size))

    def resampled(count: int) -> _Resamples:
        means: list[float] = []

        def statistic(drawn: Sequence[Prompt]) -> float:
            means.append(clock.mean_of(drawn, num_steps=count, random=random))
            return means[-1]

        estimate = bootstrapped(prompts, statistic, seed=seed, work=count * work)
        return _Resamples(estimate, mean_of(means))

    one, few = resampled(1), resampled(num_steps)
    unbiased = 2 * value - few.mean
    num_prompts = len(prompts)
    job, true = (each.around(unbiased, num_prompts=num_prompts) for each in (one, few))
    true = _without_steps(true, job, unbiased, num_steps=num_steps)
    true = _with_slow_prompts(true, unbiased, run)
    step = Quantity(unbiased, true, job)
    return TimeForecast(step, _total(step, size))


@dataclass(frozen=True)
class _Resamples:
    estimate: Estimate
    mean: float
    """Of the resamples. Resamples hold fewer different prompts than the run, so that their steps
    end earlier, as those of the run end earlier than those of all prompts."""

    def around(self, value: float, *, num_prompts: int) -> Interval:
        """Return the interval moved to `value`, and widened for few prompts.

        As much wider as Student's t and a sample variance are at this size: percentiles of a
        bootstrap of few are too near (Hesterberg 2015, "What Teachers Should Know about the
        Bootstrap", section 4.3).
        """
        degrees = num_prompts - 1
        factor = t_quantile(1 - TAIL, degrees) / Z * math.sqrt(num_prompts / degrees)
        low, high = (
            value + factor * ((self.mean if end is None else end) - self.mean)
            for end in (self.estimate.low, self.estimate.high)
        )
        return Interval(max(0.0, low), high)


def _without_steps(few: Interval, one: Interval, value: float, *, num_steps: int) -> Interval:
    """Return what is left of the interval from a few steps without the chance in these steps.

    The squared distance of an end is B + W / n from n steps and B + W from one, where B is the
    chance in which prompts were measured; it is not known better than half of what there is.
    """
    if num_steps == 1 or few.high is None or one.high is None:
        return few
    ends = []
    for end, other in ((few.low, one.low), (few.high, one.high)):
        square, whole = (end - value) ** 2, (other - value) ** 2
        left = square - max(0.0, whole - square) / (num_steps - 1)
        ends.append(math.sqrt(max(left, square / 4)))
    return Interval(max(0.0, value - ends[0]), value + ends[1])


def _with_slow_prompts(true: Interval, value: float, run: ObservedRun) -> Interval:
    """Move the upper end out as far as Hall's correction for skewness does for a mean.

    The slowest prompts make a step's time, and few prompts seldom show them.
    """
    times = by_prompt(run.groups, lambda g: mean_of(g.calls_s) if g.calls_s else None)
    _, above = skewed_distances(times)
    even = t_quantile(1 - TAIL, times.num_prompts - 1)
    high = value if true.high is None else true.high
    return Interval(true.low, value + (high - value) * max(1.0, above / even))


def _total(step: Quantity, size: JobSize) -> Quantity:
    """Many steps average out what differs between them."""
    if size.num_steps is None:
        return Quantity(None, why="the job gives no num_steps")
    if step.value is None or step.true is None or step.job is None:
        return Quantity(step.value and step.value * size.num_steps, why=step.why)
    root = math.sqrt(size.num_steps)
    ends = [
        math.hypot(end - step.value, (one - step.value) / root)
        for end, one in ((step.true.low, step.job.low), (step.true.high, step.job.high))
        if end is not None and one is not None
    ]
    job = Interval(max(0.0, step.value - ends[0]), step.value + ends[1])
    return Quantity(step.value, step.true, job).times(size.num_steps)


def _by_prompt(run: ObservedRun) -> list[Prompt]:
    prompts: dict[int, list[ObservedGroup]] = {}
    for group in run.groups:
        if group.calls_s:
            prompts.setdefault(group.sample_index, []).append(group)
    return list(prompts.values())


def _unknown(run: ObservedRun, size: JobSize) -> str:
    if not any(group.calls_s for group in run.groups):
        return "no durations were recorded"
    if run.makes_groups and size.num_generations != run.num_generations:
        return "one call makes a group, and groups of another size were not timed"
    return ""
