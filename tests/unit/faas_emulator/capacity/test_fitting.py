"""What is fitted to measured calls is what they were made of."""

from __future__ import annotations

import pytest

from arkdev.faas_emulator.capacity.fitting import fit_service
from arkdev.faas_emulator.capacity.memory import HEADROOM, fit_memory
from arkdev.faas_emulator.capacity.slowdown import Slowdown
from tests.unit.faas_emulator.capacity.functions import measured


def test_calls_that_only_wait_do_not_hold_each_other_up():
    assert Slowdown(0.0).at(100) == 1


def test_calls_that_only_compute_share_the_cores():
    assert [Slowdown(1.0).at(k) for k in (1, 2, 8)] == pytest.approx([1, 2, 8])
    assert Slowdown(1.0, num_cores=4).at(100) == pytest.approx(25, rel=0.04)


def test_calls_that_do_both_are_held_up_by_what_is_computed():
    slowdown = Slowdown(0.2)
    assert 1 < slowdown.at(3) < 1.3
    assert slowdown.at(100) == pytest.approx(20, rel=0.02)


def alone(waves):
    """The mean of the same calls where none holds up another."""
    services = [call.service_s for call in measured(cpu_share=0.0, waves=waves).calls]
    return sum(services) / len(services)


@pytest.mark.parametrize("share", [0.0, 0.15, 0.6, 1.0])
def test_the_share_that_computes_is_found_from_cpu_seconds(share):
    fit = fit_service(measured(cpu_share=share, waves=[8] * 6))
    assert fit.is_told and "CPU seconds" in fit.evidence
    assert fit.cpu_share == pytest.approx(share, abs=0.05)
    assert fit.model.mean_s == pytest.approx(alone([8] * 6), rel=0.06)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.8])
def test_without_cpu_seconds_it_is_found_from_how_service_times_rise(share):
    fit = fit_service(measured(cpu_share=share, waves=[1, 4, 16] * 8, knows_cpu=False))
    assert fit.is_told
    low, high = fit.cpu_share_range
    assert low - 0.05 <= share <= high + 0.05 and high - low < 0.4
    assert fit.model.mean_s == pytest.approx(alone([1, 4, 16] * 8), rel=0.25)


def test_it_is_said_when_nothing_tells_it():
    fit = fit_service(measured(cpu_share=0.3, waves=[1] * 20, knows_cpu=False))
    assert not fit.is_told and "nothing measured tells" in fit.evidence
    assert fit.model.slowdown.is_flat


def test_service_times_are_believed_where_they_contradict_cpu_seconds():
    """Calls that wait for one lock: they rise as if they computed."""
    locked = measured(cpu_share=0.8, waves=[1, 4, 16] * 8)
    idle = tuple(
        type(one)(one.instance_id, one.ready_s, one.memory_peak_mb, 0.5) for one in locked.instances
    )
    fit = fit_service(type(locked)(**{**vars_of(locked), "instances": idle}))
    assert fit.cpu_share > 0.6
    assert "otherwise than CPU seconds explain" in fit.evidence


def vars_of(function):
    return {name: getattr(function, name) for name in type(function).__dataclass_fields__}


def test_memory_is_a_base_and_what_each_call_adds():
    peaks = [(1, 110.0), (5, 150.0), (10, 200.0)]
    memory = fit_memory(measured(cpu_share=0, waves=[1], peaks=peaks))
    assert memory.is_told
    assert memory.base_mb == pytest.approx(100, rel=0.1)
    assert memory.per_call_mb == pytest.approx(10, rel=0.1)
    assert 1 < memory.needed_mb(20) / (300 * HEADROOM) < 1.2  # by two standard errors


def test_with_one_instance_memory_is_a_bound_and_says_so():
    memory = fit_memory(measured(cpu_share=0, waves=[4]))
    assert not memory.is_told
    assert memory.needed_mb(2) == memory.needed_mb(4) == 100 * HEADROOM
    assert memory.needed_mb(8) == 200 * HEADROOM
