"""The statistics of one grader over all groups."""

from __future__ import annotations

from collections import Counter

from arkdev.harness.distributions import LatencyDistribution, RewardDistribution, mean_of
from arkdev.harness.slowest import SlowestCalls
from arkdev.harness.summary import GraderSummary, MetricSummary
from arkdev.runs.records import GraderRecord, Verdict


class GraderNumbers:
    """Add the records of one grader; ask for `summary`."""

    def __init__(self, name: str, weight: float, *, place: str = "") -> None:
        self._name = name
        self._place = place
        self._slowest = SlowestCalls()
        self._weight = weight
        self._rewards = RewardDistribution()
        self._verdicts: Counter[Verdict] = Counter()
        self._attempts: Counter[int] = Counter()
        self._metrics: dict[str, list[float]] = {}
        self._latency = LatencyDistribution()

    def add(self, record: GraderRecord, *, num_members: int, example: str = "") -> None:
        """Count what it said of one group, `num_members` of which were to be graded.

        `example` is the group's first trajectory.
        """
        self._slowest.add(example, record.duration_s)
        self._verdicts[record.verdict] += 1
        self._attempts[record.attempts] += 1
        self._latency.add(record.duration_s)
        graded = [reward for reward in record.rewards if reward is not None]
        gave_up = record.verdict in (Verdict.DISCARD, Verdict.RETRY)
        num_ungraded = 0 if gave_up else max(0, num_members - len(graded))
        self._rewards.add_group(graded, num_ungraded=num_ungraded)
        for metrics in record.call_metrics or (record.metrics,):
            for key, value in metrics.items():
                self._metrics.setdefault(key, []).append(value)

    def summary(self) -> GraderSummary:
        """Return what was added so far."""
        return GraderSummary(
            name=self._name,
            weight=self._weight,
            reward=self._rewards.summary(),
            verdicts=by_name(self._verdicts),
            attempts=by_number(self._attempts),
            metrics={
                key: MetricSummary(len(values), min(values), mean_of(values), max(values))
                for key, values in self._metrics.items()
            },
            latency=self._latency.summary(),
            place=self._place,
            slowest=self._slowest.summary(),
        )


def by_name(counts: Counter[Verdict]) -> dict[str, int]:
    """Return the counts above 0 by the verdicts' names, in their order."""
    return {verdict.value: counts[verdict] for verdict in Verdict if counts[verdict]}


def by_number(counts: Counter[int]) -> dict[str, int]:
    """Return the counts by number, in order; JSON has text for keys."""
    return {str(number): counts[number] for number in sorted(counts)}
