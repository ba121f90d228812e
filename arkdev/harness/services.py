"""What the services that plugins call are like: the meter of a run (a `TrafficRule`)."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from arkdev.harness.stability import (
    Instability,
    LatencyHistogram,
    Quarter,
    QuarterSummary,
    instabilities,
)
from arkdev.observe.attempt import attempt_here
from arkdev.plugin.traffic.exchange import HttpFailure, HttpRequest, HttpResponse, Outcome
from arkdev.runs.records import FaultSide
from arkdev.sessions.faults.later_answers import LaterAnswers

MAX_SERVICES = 100
"""More hosts (a crawler's) are counted as one."""
OTHER_SERVICES = "other hosts"
_NUM_SLICES = 64
_FIRST_WIDTH_S = 0.05
_MAX_DETAIL = 200
_QUERY = re.compile(r"\?[^\s'\")]+")


@dataclass(frozen=True)
class ServiceSummary:
    """One service, a host and port that plugins called for themselves. Durations in seconds."""

    host: str
    num_calls: int
    """Calls that were sent, those included that the plugin gave up."""
    outcomes: dict[str, int]
    """By what came of them: ``2xx`` to ``5xx``, ``timeout``, ``unreachable``, ``raise`` (a broken
    connection), ``cancelled`` (the plugin gave up), ``injected`` (``--inject`` spoilt it)."""
    num_errors: int
    """Without an answer, or with a status of 400 and more. Cancelled and injected are neither."""
    p50_s: float
    p95_s: float
    max_s: float
    max_in_flight: int
    quarters: tuple[QuarterSummary, ...]
    """Four, in order."""
    unstable: tuple[Instability, ...]
    """What got worse over the run (`arkdev.harness.stability`)."""

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> ServiceSummary:
        """Read it back from a run's manifest."""
        return cls(
            **{
                **document,
                "quarters": tuple(QuarterSummary(**quarter) for quarter in document["quarters"]),
                "unstable": tuple(Instability(**one) for one in document["unstable"]),
            }
        )


class ServiceMeter:
    """Counts and times the calls of each service, and records real faults in their attempts.

    Stands last among a run's rules: what another rule answers is not sent, and is not counted.
    `names` are the services that have one for the report, by host.
    """

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self._lock = threading.Lock()
        self._services: dict[str, _Service] = {}
        self._later_answers = LaterAnswers()
        self._sent: dict[int, float] = {}
        """When the calls under way were sent, by the id of their request."""

    def before(self, request: HttpRequest) -> None:
        """Hold nothing back."""

    def answer(self, request: HttpRequest) -> None:
        """Note that the call is sent now."""
        now = time.perf_counter()
        with self._lock:
            self._sent[id(request)] = now
            self._service(request.host).begin(now)

    def changed(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        """Change nothing."""
        return response

    def after(self, request: HttpRequest, outcome: Outcome, *, duration_s: float) -> None:
        """Count the call, and record a fault that nobody injected."""
        kind, is_error = _kind(outcome)
        with self._lock:
            started = self._sent.pop(id(request), None)
            if started is not None:
                self._service(request.host).end(started, duration_s, kind, is_error=is_error)
        attempt = attempt_here()
        if attempt is None:
            return
        if is_error:
            fault = attempt.fault(
                FaultSide.TOOL,
                str(outcome.status) if isinstance(outcome, HttpResponse) else outcome.kind,
                self._name(request.host),
                detail=_detail(outcome),
            )
            self._later_answers.failed(attempt, request, fault)
        self._later_answers.ended(attempt, request, outcome)

    def summary(self) -> tuple[ServiceSummary, ...]:
        """Return the services so far, the one with most calls first."""
        with self._lock:
            found = [
                service.summary(self._name(host))
                for host, service in self._services.items()
                if service.outcomes
            ]
        return tuple(sorted(found, key=lambda service: -service.num_calls))

    def _name(self, host: str) -> str:
        return self.names.get(host, host)

    def _service(self, host: str) -> _Service:
        service = self._services.get(host)
        if service is None:
            if len(self._services) >= MAX_SERVICES:
                host = OTHER_SERVICES
            service = self._services.setdefault(host, _Service())
        return service


def _kind(outcome: Outcome) -> tuple[str, bool]:
    """Return what `ServiceSummary.outcomes` calls an outcome, and whether it is an error."""
    if outcome.is_injected:
        return "injected", False
    if isinstance(outcome, HttpResponse):
        return f"{outcome.status // 100}xx", outcome.status >= 400
    return outcome.kind, outcome.kind != "cancelled"


def _detail(outcome: Outcome) -> str:
    """Return the error's text; queries, which may hold keys, are left out."""
    if isinstance(outcome, HttpFailure):
        text = outcome.message
    else:
        text = (outcome.body or b"")[: 4 * _MAX_DETAIL].decode("utf-8", "replace")
    return _QUERY.sub("?...", text)[:_MAX_DETAIL]


@dataclass
class _Slice:
    """The calls that were sent in one stretch of time."""

    latency: LatencyHistogram = field(default_factory=LatencyHistogram)
    num_errors: int = 0
    max_in_flight: int = 0

    def merge(self, other: _Slice) -> None:
        self.latency.merge(other.latency)
        self.num_errors += other.num_errors
        self.max_in_flight = max(self.max_in_flight, other.max_in_flight)


class _Service:
    """The calls of one service, in at most `_NUM_SLICES` stretches of time of equal length.

    When the time is longer than that, two neighbours become one, and the length doubles.
    """

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self._max_s = 0.0
        self._in_flight = 0
        self._first: float | None = None
        self._width_s = _FIRST_WIDTH_S
        self._slices: list[_Slice] = []

    def begin(self, now: float) -> None:
        self._in_flight += 1
        slice_ = self._slice(now)
        slice_.max_in_flight = max(slice_.max_in_flight, self._in_flight)

    def end(self, started: float, duration_s: float, kind: str, *, is_error: bool) -> None:
        self._in_flight -= 1
        self.outcomes[kind] += 1
        self._max_s = max(self._max_s, duration_s)
        slice_ = self._slice(started)
        slice_.latency.add(duration_s)
        slice_.num_errors += is_error

    def _slice(self, started: float) -> _Slice:
        if self._first is None:
            self._first = started
        since_s = max(0.0, started - self._first)
        while since_s >= self._width_s * _NUM_SLICES:
            self._halve()
        index = int(since_s / self._width_s)
        while len(self._slices) <= index:
            self._slices.append(_Slice())
        return self._slices[index]

    def _halve(self) -> None:
        self._width_s *= 2
        for one, other in zip(self._slices[::2], self._slices[1::2], strict=False):
            one.merge(other)
        self._slices = self._slices[::2]

    def summary(self, host: str) -> ServiceSummary:
        quarters = self._quarters()
        whole = LatencyHistogram()
        for quarter in quarters:
            whole.merge(quarter.latency)
        return ServiceSummary(
            host=host,
            num_calls=whole.count,
            outcomes=dict(sorted(self.outcomes.items())),
            num_errors=sum(quarter.num_errors for quarter in quarters),
            p50_s=min(whole.quantile(0.5) or 0.0, self._max_s),
            p95_s=min(whole.quantile(0.95) or 0.0, self._max_s),
            max_s=self._max_s,
            max_in_flight=max(quarter.max_in_flight for quarter in quarters),
            quarters=tuple(quarter.summary() for quarter in quarters),
            unstable=instabilities(quarters),
        )

    def _quarters(self) -> list[Quarter]:
        size = len(self._slices)
        quarters = []
        for index in range(4):
            whole = _Slice()
            for part in self._slices[round(size * index / 4) : round(size * (index + 1) / 4)]:
                whole.merge(part)
            quarters.append(Quarter(whole.latency, whole.num_errors, whole.max_in_flight))
        return quarters
