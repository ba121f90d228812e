"""What slows down is found, what is merely noisy is not."""

from __future__ import annotations

import random

import pytest

from arkdev.harness.stability import (
    Instability,
    LatencyHistogram,
    Quarter,
    instabilities,
    instabilities_of_latencies,
)


def quarters(
    *sizes: int, errors: tuple[int, ...] = (0, 0, 0, 0), flight: tuple[int, ...] = (0,) * 4
):
    return [
        Quarter(LatencyHistogram([0.1] * size), num_errors, max_in_flight)
        for size, num_errors, max_in_flight in zip(sizes, errors, flight, strict=True)
    ]


def kinds(found: tuple[Instability, ...]) -> list[str]:
    return [one.kind for one in found]


def test_quantiles_are_right_to_two_percent():
    durations = [0.0001 * 1.01**i for i in range(1500)]
    histogram = LatencyHistogram(durations)
    for fraction in (0.5, 0.95, 1.0):
        exact = durations[max(0, round(fraction * 1500) - 1)]
        assert histogram.quantile(fraction) == pytest.approx(exact, rel=0.021)
    assert LatencyHistogram().quantile(0.5) is None
    assert LatencyHistogram([0.0]).quantile(0.5) == pytest.approx(1e-6, rel=0.05)


def test_the_deviation_is_the_hypergeometric_one():
    """10 of 20 calls are slow, 8 of them ours of 10: expected 5, variance 10·¼·10/19."""
    ours = LatencyHistogram([1.0] * 8 + [0.1] * 2)
    others = LatencyHistogram([1.0] * 2 + [0.1] * 8)
    assert ours.deviations_above(others, slowest=0.5) == pytest.approx(
        3 / (10 / 4 * 10 / 19) ** 0.5
    )
    assert others.deviations_above(ours, slowest=0.5) < 0
    assert ours.deviations_above(LatencyHistogram(), slowest=0.5) == 0


@pytest.mark.parametrize("sigma", [0.1, 0.5, 1.0])
def test_a_steady_service_is_not_called_unstable_however_noisy(sigma):
    for seed in range(200):
        rng = random.Random(seed)
        durations = [0.2 * rng.lognormvariate(0, sigma) for _ in range(rng.choice((80, 200, 600)))]
        assert instabilities_of_latencies(durations) == ()


def test_a_service_that_slows_down_is_found_with_few_calls():
    rng = random.Random(1)
    for size in (80, 400):
        durations = [0.2 * rng.lognormvariate(0, 0.4) * (1 + 9 * i / size) for i in range(size)]
        (found,) = instabilities_of_latencies(durations)
        assert (found.kind, found.quarter, found.measure) == ("latency", 4, "p95")
        assert 0.2 < found.before < 1.5 < found.after


def test_a_tail_that_grows_is_found_and_so_is_a_spike_in_the_middle():
    rng = random.Random(2)
    tail = [5.0 if i > 600 and rng.random() < 0.1 else 0.2 for i in range(800)]
    assert kinds(instabilities_of_latencies(tail)) == ["latency"]
    spike = [2.0 if 400 <= i < 450 else 0.2 for i in range(800)]
    (found,) = instabilities_of_latencies(spike)
    assert found.quarter == 3


def test_what_gets_slower_by_less_than_fifty_milliseconds_or_by_half_is_no_matter():
    assert instabilities_of_latencies([0.01] * 100 + [0.05] * 100) == ()
    assert instabilities_of_latencies([1.0] * 100 + [1.5] * 100) == ()


def test_fewer_than_twenty_calls_in_a_quarter_say_nothing():
    assert instabilities_of_latencies([0.1] * 57 + [9.0] * 19) == ()
    assert instabilities_of_latencies([0.1] * 60 + [9.0] * 20) != ()
    assert instabilities_of_latencies([]) == ()


def test_an_error_rate_that_rises_is_found():
    steady = quarters(100, 100, 100, 100, errors=(2, 3, 1, 4))
    assert kinds(instabilities(steady)) == ["errors"]
    rising = instabilities(quarters(100, 100, 100, 100, errors=(0, 1, 4, 20)))
    assert rising == (
        Instability("error_rate", 4, 0.0, 0.2),
        Instability("errors", 0, 25 / 400, 25 / 400),
    )


def test_a_few_errors_of_many_calls_are_no_instability():
    assert instabilities(quarters(100, 100, 100, 100, errors=(0, 2, 0, 0))) == ()
    assert instabilities(quarters(200, 200, 200, 200, errors=(2, 2, 1, 2))) == ()


def test_a_pile_up_is_found():
    assert instabilities(quarters(50, 50, 50, 50, flight=(9, 17, 12, 9))) == ()
    assert instabilities(quarters(50, 50, 50, 50, flight=(2, 4, 6, 9))) == ()
    found = instabilities(quarters(50, 50, 50, 50, flight=(4, 6, 9, 14)))
    assert found == (Instability("in_flight", 4, 4, 14),)
