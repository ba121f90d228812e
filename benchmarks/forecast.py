"""Whether the intervals of `arkdev forecast` hold what they say: their coverage, nominal 90 %.

Simulated runs of which the truth is known: a population of prompts, a run drawn from it, its
forecast, and then the truth and one fresh job of the size that was forecast. And real runs (``--run
FOLDER``): random halves of their prompts, one forecast from the other.

    python benchmarks/forecast.py                       1,000 simulations of each population
    python benchmarks/forecast.py --parts signal,time --simulations 200
    python benchmarks/forecast.py --run runs/20261129T231752Z-debug-eadf
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from arkdev.flows.forecast import observed_run  # noqa: E402
from arkdev.harness.advantages import grpo_advantages  # noqa: E402
from arkdev.harness.forecast.observed import (  # noqa: E402
    ObservedGrader,
    ObservedGroup,
    ObservedRun,
)
from arkdev.harness.forecast.quantity import Interval, Quantity  # noqa: E402
from arkdev.harness.forecast.signal import SignalSource, forecast_signal  # noqa: E402
from arkdev.harness.forecast.size import JobSize  # noqa: E402
from arkdev.harness.forecast.solving import forecast_solving  # noqa: E402
from arkdev.harness.forecast.spending import forecast_cost, forecast_tokens  # noqa: E402
from arkdev.harness.forecast.step_time import StepClock, forecast_time  # noqa: E402
from arkdev.job.prices import ModelPrice, Prices  # noqa: E402
from arkdev.runs.reader import RunReader  # noqa: E402

PRICES = Prices("money", None, {"m": ModelPrice(1.0, 4.0)})
PARTS = ("signal", "solving", "spending", "time", "sizes")
GRADERS = (ObservedGrader("one", max_calls=512, is_single=False),)
PER_1000 = "useful per 1,000"

Numbers = dict[str, float]
"""A quantity's name → its value in one run, or its truth."""


@dataclass(frozen=True)
class Prompt:
    """What is the same in all rollouts of a prompt."""

    rate: float
    slowness: float
    length: float


@dataclass(frozen=True)
class Population:
    """Where prompts come from, and what becomes of a rollout."""

    name: str
    rate: Callable[[Random], float]
    levels: int = 1
    """Rewards are k / levels, the mean of so many successes."""
    drop: float = 0.0
    """Share of groups that leave their batch."""

    def prompt(self, random: Random) -> Prompt:
        """Draw one."""
        return Prompt(self.rate(random), random.gauss(0, 0.5), random.lognormvariate(5, 0.6))

    def group(self, random: Random, index: int, n: int) -> ObservedGroup:
        """Draw a prompt and a group of `n` rollouts."""
        prompt = self.prompt(random)
        is_kept = random.random() >= self.drop
        rewards = tuple(
            sum(random.random() < prompt.rate for _ in range(self.levels)) / self.levels
            for _ in range(n)
        )
        calls = [random.lognormvariate(prompt.slowness, 0.4) for _ in range(n)]
        advantages = grpo_advantages(rewards) if is_kept else []
        return ObservedGroup(
            sample_index=index,
            num_members=n,
            rewards=rewards if is_kept else (),
            is_kept=is_kept,
            why_left="" if is_kept else "discarded",
            num_with_advantage=sum(map(bool, advantages)),
            has_own_advantages=False,
            calls_s=tuple(calls),
            gradings_s=(random.uniform(0.1, 0.5),) if is_kept else (),
            prompt_tokens=prompt.length * n,
            completion_tokens=sum(40 * call for call in calls),
        )


def _three_kinds(random: Random) -> float:
    kind = random.random()
    return 0.0 if kind < 0.3 else 1.0 if kind < 0.6 else 0.5


def _hard(random: Random) -> float:
    return 0.0 if random.random() < 0.4 else random.betavariate(0.5, 3)


def _two_peaks(random: Random) -> float:
    return random.betavariate(2, 30) if random.random() < 0.5 else random.betavariate(30, 3)


POPULATIONS = (
    Population("all rates alike", lambda random: random.random()),
    Population("U-shaped", lambda random: random.betavariate(0.4, 0.4), drop=0.1),
    Population("never, always, half", _three_kinds),
    Population("hard", _hard),
    Population("two peaks", _two_peaks),
    Population("rewards of 5 values", lambda random: random.betavariate(0.5, 1), levels=4),
)


def run_of(groups: Sequence[ObservedGroup], n: int, *, slots: int) -> ObservedRun:
    """Return a run with these groups."""
    return ObservedRun(
        groups=groups,
        prompts={},
        num_generations=n,
        concurrency=slots,
        graders=GRADERS,
        success_threshold=1.0,
        makes_groups=False,
        has_rewards_as_signal=True,
    )


def forecasts(run: ObservedRun, size: JobSize, part: str) -> Iterator[tuple[str, Quantity]]:
    """Yield what a part of the forecast says, by name."""
    source = SignalSource(run)
    if part == "signal":
        signal = forecast_signal(run, source, size, sizes=())
        yield "zero-variance share", signal.zero_variance
        yield PER_1000, signal.useful_per_1000
        yield "useful of a step", signal.useful_per_step
        yield "teaching trajectories of a step", signal.trajectories_per_step
    elif part == "sizes":
        for n in (run.num_generations // 2, run.num_generations * 2):
            yield f"useful share, n = {n}", source.useful(n, num_future=len(run.groups))[0]
    elif part == "solving":
        solving = forecast_solving(run, size)
        assert solving is not None
        for one in solving.pass_at_k:
            yield f"pass@{one.k}", one.chance
        for one_bin in solving.difficulty:
            last = one_bin.pass_at_k[-1]
            yield f"pass@{last.k}, solved {one_bin.low}-{one_bin.high}", last.chance
    elif part == "spending":
        tokens = forecast_tokens(run, size)
        cost = forecast_cost(run, size, prices=PRICES, model="m", total_s=Quantity(None))
        assert cost is not None
        yield "prompt tokens in all", tokens.prompt_total
        yield "completion tokens of a step", tokens.completion_per_step
        yield "cost in all", cost.tokens_total
    else:
        took = forecast_time(run, size, seed=0)
        yield "time of a step", took.step
        yield "time of all steps", took.total


def realized(run: ObservedRun, size: JobSize, part: str, random: Random) -> Numbers:
    """Return what a job gave whose groups are those of `run`, in order."""
    step = run_of(run.groups[: size.batch_size], run.num_generations, slots=size.batch_size)
    if part == "time":
        clock = StepClock(run, size)
        groups, of = run.groups, size.batch_size
        batches = [groups[i : i + of] for i in range(0, len(groups) - of + 1, of)]
        steps = [clock.step_s(batch, random=random) for batch in batches]
        mean = sum(steps) / len(steps)
        return {"time of a step": steps[0], "time of all steps": mean * (size.num_steps or 1)}
    if part == "sizes":
        return {}
    values = dict(_values(run, size, part))
    if part == "solving":
        return values
    of_step = dict(_values(step, size, part))
    return {name: (of_step if "of a step" in name else values)[name] for name in values}


def _values(run: ObservedRun, size: JobSize, part: str) -> Iterator[tuple[str, float]]:
    for name, quantity in forecasts(run, size, part):
        if quantity.value is not None:
            yield name, quantity.value


class Coverage:
    """Counts how often intervals held what they should."""

    def __init__(self) -> None:
        self._counts: dict[str, list[int]] = {}

    def add(self, name: str, interval: Interval | None, value: float | None) -> None:
        """Count one interval; one that is not known, and a value that is not, are passed over."""
        if interval is None or value is None:
            return
        slack = 1e-9 * (1 + abs(value))
        is_in = interval.low - slack <= value
        is_in = is_in and (interval.high is None or value <= interval.high + slack)
        count = self._counts.setdefault(name, [0, 0])
        count[0] += is_in
        count[1] += 1

    def shares(self) -> dict[str, tuple[float, int]]:
        """Return the coverage of each name and from how many intervals."""
        return {name: (hits / number, number) for name, (hits, number) in self._counts.items()}


def simulate(
    population: Population,
    design: tuple[int, int],
    part: str,
    *,
    simulations: int,
    seed: int,
    truth_groups: int = 20_000,
) -> dict[str, tuple[float, int]]:
    """Return the coverage of the part's intervals over that many simulated runs."""
    num_groups, n = design
    size = JobSize(num_steps=5, batch_size=8, num_generations=n)
    random = Random(seed)

    def drawn(number: int, n: int = n) -> ObservedRun:
        groups = [population.group(random, index, n) for index in range(number)]
        return run_of(groups, n, slots=size.batch_size)

    coverage = Coverage()
    truth = _truth(drawn, size, part, random, truth_groups)
    signals = [group.has_signal for group in drawn(truth_groups).groups] if part == "signal" else []
    for _ in range(simulations):
        run = drawn(num_groups)
        assert size.num_groups is not None
        job = realized(drawn(size.num_groups), size, part, random)
        if part == "signal":
            job[PER_1000] = sum(random.choices(signals, k=1000))
        for name, quantity in forecasts(run, size, part):
            coverage.add(f"{name}|true", quantity.true, truth.get(name))
            coverage.add(f"{name}|next", quantity.job, job.get(name))
    return coverage.shares()


def _truth(
    drawn: Callable[..., ObservedRun], size: JobSize, part: str, random: Random, num_groups: int
) -> Numbers:
    n = size.num_generations
    if part == "sizes":
        return {
            f"useful share, n = {m}": sum(g.has_signal for g in drawn(num_groups, m).groups)
            / num_groups
            for m in (n // 2, n * 2)
        }
    run = drawn(num_groups)
    if part == "time":
        mean = realized(run, replace(size, num_steps=1), part, random)["time of all steps"]
        return {"time of a step": mean, "time of all steps": mean * (size.num_steps or 1)}
    return dict(_values(run, size, part))


def halves(run: ObservedRun, part: str, *, splits: int, seed: int) -> dict[str, tuple[float, int]]:
    """Return how often one half's interval for a job of the other half's size held its values."""
    random = Random(seed)
    groups = list(run.groups)
    half = len(groups) // 2
    batch = min(8, half)
    size = JobSize(num_steps=half // batch, batch_size=batch, num_generations=run.num_generations)
    coverage = Coverage()
    for _ in range(splits):
        random.shuffle(groups)
        first = replace(run, groups=groups[:half])
        second = replace(run, groups=groups[half : half + batch * (half // batch)])
        job = realized(second, size, part, random)
        job.pop(PER_1000, None)
        for name, quantity in forecasts(first, size, part):
            coverage.add(f"{name}|next", quantity.job, job.get(name))
    return coverage.shares()


def _print(title: str, shares: dict[str, tuple[float, int]]) -> None:
    for name, (share, number) in shares.items():
        what, _, kind = name.partition("|")
        mark = "" if 0.85 <= share <= 0.95 else " <" if share < 0.85 else " >"
        print(f"{title:<32} {what:<34} {kind:<5} {share:6.1%} of {number}{mark}", flush=True)


def main() -> None:
    """Print the coverages; ``<`` and ``>`` mark those that are not within 85 to 95 %."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulations", type=int, default=1000)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--designs", default="20x4,20x8,60x8,200x8", help="groups x rollouts")
    parser.add_argument("--run", type=Path, action="append", default=[])
    arguments = parser.parse_args()
    started = time.perf_counter()
    for folder in arguments.run:
        run = observed_run(RunReader(folder))
        for part in arguments.parts.split(","):
            if part != "sizes":
                found = halves(run, part, splits=arguments.simulations, seed=1)
                _print(f"{folder.name[-20:]} {len(run.groups)} groups", found)
    for population in () if arguments.run else POPULATIONS:
        for design in arguments.designs.split(","):
            num_groups, n = map(int, design.split("x"))
            for part in arguments.parts.split(","):
                found = simulate(
                    population, (num_groups, n), part, simulations=arguments.simulations, seed=1
                )
                _print(f"{population.name} {design}", found)
    print(f"{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
