"""Whether a service kept up over a run's time: its calls in four quarters, and what got worse.

The documentation asks that latency and error rates stay as they are under concurrency, without
spikes and without a pile-up (LT-14). A later quarter is compared with the first one:

* ``latency``: the median or the 95th percentile has at least doubled and grown by 50 ms, and the
  slowest of the calls in both quarters (a quarter or a tenth of them) are in the later one more
  often than chance would have it.
* ``error_rate``: at least 5 % of the calls more fail, and that is no chance either.
* ``in_flight``: at least twice as many calls, and at least 10, were under way at once.

"No chance" is 3.5 standard deviations: about one false alarm in 4,000 comparisons of independent
calls. Quarters of fewer than 20 calls are not compared. ``errors`` is the share of failed calls of
the whole run, from 1 % and 3 calls on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

MIN_CALLS = 20
_MIN_RATIO = 2.0
_MIN_GROWTH_S = 0.05
_MIN_DEVIATIONS = 3.5
_SLOWEST = (0.25, 0.1)
_MIN_ERROR_GROWTH = 0.05
_MIN_ERRORS = 3
_MIN_ERROR_SHARE = 0.01
_MIN_PILE = 10
_BIN_RATIO = 1.04
"""Of the durations in one bin: quantiles are right to 2 %."""
_LOG_RATIO = math.log(_BIN_RATIO)
_SHORTEST_S = 1e-6


@dataclass(frozen=True)
class Instability:
    """Something that got worse."""

    kind: str
    """``latency``, ``error_rate``, ``in_flight``, ``errors``; see the module."""
    quarter: int
    """The quarter of the run, 2 to 4, that is compared with the first; 0: the whole run."""
    before: float
    after: float
    """In the two quarters: seconds, share of the calls that failed, calls in flight. Of ``errors``
    both are the share."""
    measure: str = ""
    """Of ``latency``: ``p95``, or ``p50`` where that alone grew."""


@dataclass(frozen=True)
class QuarterSummary:
    """A quarter of a service's time, by the start of the calls; from its first call to its last."""

    num_calls: int
    num_errors: int
    p50_s: float | None
    p95_s: float | None
    max_in_flight: int


class LatencyHistogram:
    """Durations, in memory that does not grow with their number."""

    def __init__(self, durations_s: Iterable[float] = ()) -> None:
        self.count = 0
        self._bins: dict[int, int] = {}
        for duration_s in durations_s:
            self.add(duration_s)

    def add(self, duration_s: float) -> None:
        """Add one duration in seconds."""
        index = math.floor(math.log(max(duration_s, _SHORTEST_S)) / _LOG_RATIO)
        self._bins[index] = self._bins.get(index, 0) + 1
        self.count += 1

    def merge(self, other: LatencyHistogram) -> None:
        """Add what `other` holds."""
        for index, count in other._bins.items():
            self._bins[index] = self._bins.get(index, 0) + count
        self.count += other.count

    def quantile(self, fraction: float) -> float | None:
        """Return a quantile in seconds, None of nothing."""
        wanted = max(1, math.ceil(fraction * self.count))
        seen = 0
        for index in sorted(self._bins):
            seen += self._bins[index]
            if seen >= wanted:
                return math.exp((index + 0.5) * _LOG_RATIO)
        return None

    def deviations_above(self, other: LatencyHistogram, *, slowest: float) -> float:
        """Say how far the share of this one in the `slowest` calls of both is above chance.

        In standard deviations of the hypergeometric distribution, which holds when all orders of
        the calls are equally likely. Where equal durations leave no cut at `slowest`, the better of
        the cuts around it.
        """
        total = self.count + other.count
        chosen = own = 0
        found = 0.0
        for index in sorted(self._bins.keys() | other._bins.keys(), reverse=True):
            before = self._deviations(own, chosen, total)
            own += self._bins.get(index, 0)
            chosen += self._bins.get(index, 0) + other._bins.get(index, 0)
            if chosen >= slowest * total:
                found = max((before, self._deviations(own, chosen, total)), key=abs)
                break
        return found

    def _deviations(self, own: int, chosen: int, total: int) -> float:
        """Compare `own` of `chosen` calls, out of `total`, with what chance would give this one."""
        spread = chosen * self.count * (total - self.count) * (total - chosen)
        if spread == 0:
            return 0.0
        expected = chosen * self.count / total
        return (own - expected) / math.sqrt(spread / (total**2 * (total - 1)))


@dataclass
class Quarter:
    """What is known of the calls of one quarter."""

    latency: LatencyHistogram
    num_errors: int = 0
    max_in_flight: int = 0

    @property
    def num_calls(self) -> int:
        """How many calls began in it."""
        return self.latency.count

    @property
    def error_rate(self) -> float:
        """Share of its calls that failed."""
        return self.num_errors / self.num_calls if self.num_calls else 0.0

    def summary(self) -> QuarterSummary:
        """Return it as plain data."""
        return QuarterSummary(
            self.num_calls,
            self.num_errors,
            self.latency.quantile(0.5),
            self.latency.quantile(0.95),
            self.max_in_flight,
        )


def instabilities(quarters: Sequence[Quarter]) -> tuple[Instability, ...]:
    """Return what got worse over the quarters, of each kind the worst."""
    return tuple(
        found
        for find in (_latency, _error_rate, _in_flight, _errors)
        for found in [find(quarters)]
        if found is not None
    )


def instabilities_of_latencies(durations_s: Sequence[float]) -> tuple[Instability, ...]:
    """Return what got worse in durations that are given in the order of time."""
    size = len(durations_s)
    edges = [round(size * i / 4) for i in range(5)]
    return instabilities(
        [Quarter(LatencyHistogram(durations_s[low:high])) for low, high in pairwise(edges)]
    )


def _later(quarters: Sequence[Quarter]) -> list[tuple[int, Quarter]]:
    """Return the quarters, 2 to 4, that can be compared with the first."""
    if quarters[0].num_calls < MIN_CALLS:
        return []
    return [(i, q) for i, q in enumerate(quarters[1:], start=2) if q.num_calls >= MIN_CALLS]


def _worst(found: Iterable[Instability]) -> Instability | None:
    """Choose the last quarter, which tells how it goes on, else the worse of the others."""
    return max(found, key=lambda one: (one.quarter == 4, one.after), default=None)


def _latency(quarters: Sequence[Quarter]) -> Instability | None:
    for fraction, measure in ((0.95, "p95"), (0.5, "p50")):
        before = quarters[0].latency.quantile(fraction) or 0.0
        found = []
        for number, quarter in _later(quarters):
            after = quarter.latency.quantile(fraction) or 0.0
            if after < max(_MIN_RATIO * before, before + _MIN_GROWTH_S):
                continue
            deviations = (
                quarter.latency.deviations_above(quarters[0].latency, slowest=slowest)
                for slowest in _SLOWEST
            )
            if max(deviations) >= _MIN_DEVIATIONS:
                found.append(Instability("latency", number, before, after, measure))
        if found:
            return _worst(found)
    return None


def _error_rate(quarters: Sequence[Quarter]) -> Instability | None:
    first = quarters[0]
    found = []
    for number, quarter in _later(quarters):
        growth = quarter.error_rate - first.error_rate
        total = first.num_calls + quarter.num_calls
        pooled = (first.num_errors + quarter.num_errors) / total
        spread = pooled * (1 - pooled) * (1 / first.num_calls + 1 / quarter.num_calls)
        is_more = growth >= _MIN_ERROR_GROWTH and growth >= _MIN_DEVIATIONS * math.sqrt(spread)
        if is_more:
            found.append(Instability("error_rate", number, first.error_rate, quarter.error_rate))
    return _worst(found)


def _in_flight(quarters: Sequence[Quarter]) -> Instability | None:
    before = quarters[0].max_in_flight
    return _worst(
        Instability("in_flight", number, before, quarter.max_in_flight)
        for number, quarter in _later(quarters)
        if quarter.max_in_flight >= max(_MIN_RATIO * before, _MIN_PILE)
    )


def _errors(quarters: Sequence[Quarter]) -> Instability | None:
    num_calls = sum(quarter.num_calls for quarter in quarters)
    num_errors = sum(quarter.num_errors for quarter in quarters)
    if num_errors < _MIN_ERRORS or num_errors < _MIN_ERROR_SHARE * num_calls:
        return None
    return Instability("errors", 0, num_errors / num_calls, num_errors / num_calls)
