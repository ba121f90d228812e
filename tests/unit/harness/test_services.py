"""The meter of the services that plugins call."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Any

import pytest

from arkdev.harness import services
from arkdev.harness.services import MAX_SERVICES, OTHER_SERVICES, ServiceMeter, ServiceSummary
from arkdev.plugin.traffic.exchange import HttpFailure, HttpRequest, HttpResponse, Outcome
from tests.unit.plugin.traffic.service import attempted

OK = HttpResponse(200, {}, b"{}")


class Clock:
    now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(services, "time", clock)
    return clock


def request(host: str = "weather.test", path: str = "/") -> HttpRequest:
    return HttpRequest("httpx", "GET", f"http://{host}{path}", {}, b"")


def call(
    meter: ServiceMeter, outcome: Outcome = OK, *, duration_s: float = 0.1, **where: Any
) -> None:
    one = request(**where)
    meter.before(one)
    meter.answer(one)
    meter.after(one, outcome, duration_s=duration_s)


def only(meter: ServiceMeter) -> ServiceSummary:
    (service,) = meter.summary()
    return service


def test_calls_are_counted_by_host_and_outcome(clock):
    meter = ServiceMeter()
    meter.names["judge.test:80"] = "the judge"
    for status in (200, 201, 302, 404, 503):
        call(meter, HttpResponse(status, {}, b""), duration_s=status / 1000)
    for kind in ("timeout", "unreachable", "raise", "cancelled"):
        call(meter, HttpFailure(kind, ""))
    call(meter, OK, host="judge.test:80")
    weather, judge = meter.summary()
    assert (weather.host, weather.num_calls, weather.num_errors) == ("weather.test", 9, 5)
    assert weather.outcomes == {
        **{"2xx": 2, "3xx": 1, "4xx": 1, "5xx": 1},
        **{"timeout": 1, "unreachable": 1, "raise": 1, "cancelled": 1},
    }
    assert weather.max_s == 0.503
    assert weather.p50_s == pytest.approx(0.2, rel=0.03)
    assert (judge.host, judge.num_calls) == ("the judge", 1)


def test_calls_in_flight_are_counted_at_the_peak(clock):
    meter = ServiceMeter()
    under_way = [request() for _ in range(3)]
    for one in under_way:
        meter.answer(one)
    for one in under_way:
        meter.after(one, OK, duration_s=1.0)
    call(meter)
    assert only(meter).max_in_flight == 3


def test_real_faults_are_recorded_and_injected_ones_are_not_twice(clock):
    meter = ServiceMeter()
    with attempted() as attempt:
        call(meter, HttpResponse(500, {}, b"out of memory"))
        call(meter, HttpFailure("timeout", "ReadTimeout: /search?key=s3cret too slow"))
        call(meter, HttpFailure("cancelled", ""))
        call(meter, HttpFailure("timeout", "as asked", is_injected=True))
        call(meter, HttpResponse(429, {}, b"", is_injected=True))
        call(meter)
    expected = {"side": "tool", "target": "weather.test"}
    assert attempt.faults == [
        {**expected, "kind": "500", "detail": "out of memory"},
        {**expected, "kind": "timeout", "detail": "ReadTimeout: /search?... too slow"},
    ]
    assert only(meter).outcomes == {"2xx": 1, "5xx": 1, "timeout": 1, "cancelled": 1, "injected": 2}
    assert only(meter).num_errors == 2


def test_a_fault_is_made_good_by_a_later_answer_to_the_same_call_of_the_attempt(clock):
    meter = ServiceMeter()
    with attempted() as attempt:
        call(meter, HttpResponse(503, {}, b"busy"), path="/a")
        call(meter, HttpResponse(503, {}, b"busy"), path="/b")
        call(meter, HttpResponse(500, {}, b"broken"), path="/b")
        call(meter, path="/b")
    with attempted() as other:
        call(meter, path="/a")
    assert [fault["kind"] for fault in attempt.faults] == ["503", "503", "500"]
    assert (attempt.answered, other.answered) == (attempt.faults[1:], [])


def test_what_another_rule_answers_was_not_sent(clock):
    meter = ServiceMeter()
    one = request()
    meter.before(one)
    meter.after(one, HttpResponse(200, {}, b"", is_injected=True), duration_s=0.0)
    assert meter.summary() == ()


def test_a_service_that_slows_down_over_hours_is_found_in_little_memory(clock):
    meter = ServiceMeter()
    sizes = []
    for i in range(20_000):
        clock.now += 0.5
        call(meter, duration_s=0.2 if i < 10_000 else 2.0)
        if i in (4_000, 19_999):
            sizes.append(_size(meter))
    service = only(meter)
    assert [quarter.num_calls for quarter in service.quarters] == pytest.approx([5000] * 4, rel=0.1)
    (found,) = service.unstable
    assert (found.kind, found.quarter) == ("latency", 4)
    assert found.before == pytest.approx(0.2, rel=0.03)
    assert found.after == pytest.approx(2.0, rel=0.03)
    assert sizes[1] < 1.5 * sizes[0]


def _size(meter: ServiceMeter) -> int:
    (service,) = meter._services.values()
    bins = [part.latency._bins for part in service._slices]
    return sum(map(sys.getsizeof, bins)) + sys.getsizeof(service._slices)


def test_a_pile_up_is_found(clock):
    meter = ServiceMeter()
    for burst in range(40):
        clock.now += 1.0
        under_way = [request() for _ in range(3 if burst < 20 else 14)]
        for one in under_way:
            meter.answer(one)
        for one in under_way:
            meter.after(one, OK, duration_s=0.1)
    (found,) = only(meter).unstable
    assert (found.kind, found.before, found.after) == ("in_flight", 3, 14)


def test_a_crawlers_hosts_do_not_grow_the_report(clock):
    meter = ServiceMeter()
    for number in range(3 * MAX_SERVICES):
        call(meter, host=f"site-{number}.test")
    found = meter.summary()
    assert len(found) == MAX_SERVICES + 1
    assert (found[0].host, found[0].num_calls) == (OTHER_SERVICES, 2 * MAX_SERVICES)


def test_a_summary_survives_the_manifest(clock):
    meter = ServiceMeter()
    for i in range(200):
        clock.now += 1
        call(meter, duration_s=0.1 + (i > 100))
    written = json.loads(json.dumps(asdict(only(meter))))
    assert ServiceSummary.from_json(written) == only(meter)
    assert only(meter).unstable
