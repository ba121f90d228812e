"""Waiting times in closed form: against worked values, and the simulation against them."""

from __future__ import annotations

import pytest

from arkdev.faas_emulator.capacity.loads import simulate_arrivals
from arkdev.faas_emulator.capacity.queueing import (
    Load,
    erlang_c,
    mdc_mean_wait,
    mgc_mean_wait,
    mmc_mean_wait,
    mmc_wait_quantile,
)
from tests.unit.faas_emulator.capacity.functions import exponential, fixed, setting

LOAD = Load(rate=2.8, service_s=1.0, num_servers=4)


def waits(works, *, num_calls=6000, num_runs=4):
    found = []
    for seed in range(num_runs):
        # two instances of two calls each: four servers
        outcome = simulate_arrivals(
            setting(works, fixed(2, 2)), rate=LOAD.rate, num_calls=num_calls, seed=seed
        )
        found += outcome.functions["function"].queued_s[300:]
    return sorted(found)


def test_erlang_c_has_the_values_of_its_tables():
    assert erlang_c(Load(0.5, 1.0, 1)) == pytest.approx(0.5)
    assert erlang_c(Load(1.0, 1.0, 2)) == pytest.approx(1 / 3)
    assert erlang_c(Load(2.0, 1.0, 3)) == pytest.approx(4 / 9)
    assert erlang_c(Load(90.0, 1.0, 100)) == pytest.approx(0.217, abs=0.001)


def test_one_server_is_exact_by_the_formula_of_pollaczek_and_khinchine():
    load = Load(0.8, 1.0, 1)
    assert mmc_mean_wait(load) == pytest.approx(4.0)
    assert mdc_mean_wait(load) == pytest.approx(2.0)
    assert mgc_mean_wait(load, squared_variation=0.5) == pytest.approx(3.0)


def test_a_load_over_capacity_has_no_wait_to_tell():
    with pytest.raises(ValueError, match="too few"):
        erlang_c(Load(2.0, 1.0, 2))


def test_a_quantile_below_the_share_that_waits_is_zero():
    assert mmc_wait_quantile(Load(0.1, 1.0, 4), 0.99) == 0


def test_the_simulated_pool_waits_as_m_m_c_does():
    found = waits(exponential())
    assert sum(found) / len(found) == pytest.approx(mmc_mean_wait(LOAD), rel=0.15)
    p99 = found[int(0.99 * len(found))]
    assert p99 == pytest.approx(mmc_wait_quantile(LOAD, 0.99), rel=0.15)


def test_the_simulated_pool_waits_as_m_d_c_does():
    found = waits([1.0])
    assert sum(found) / len(found) == pytest.approx(mdc_mean_wait(LOAD), rel=0.12)
