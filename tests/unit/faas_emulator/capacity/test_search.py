"""The cheapest setting that meets a target is found."""

from __future__ import annotations

from arkdev.faas_emulator.capacity.fitting import fit_service
from arkdev.faas_emulator.capacity.forecast import Arrivals, Job
from arkdev.faas_emulator.capacity.loads import Batch
from arkdev.faas_emulator.capacity.memory import MemoryFit
from arkdev.faas_emulator.capacity.search import Effort, Planner, Target
from arkdev.plugin.decorators import PluginKind
from arkdev.plugin.runtime import PluginInstance
from tests.unit.faas_emulator.capacity.functions import measured

EFFORT = Effort((1, 4, 8, 16), 64, 2)
ENOUGH = MemoryFit(100.0, 1.0, 0.0, 120.0, 16, is_told=True)


def planner(*, cpu_share=0.0, target=Target(), memory=ENOUGH, load=None, effort=EFFORT, **more):  # noqa: B008
    fit = fit_service(measured(cpu_share=cpu_share, waves=[8] * 6))
    job = Job({"answer": fit}, load or Batch(16, 2, 16))
    return Planner(job, {"answer": memory}, target, effort=effort, **more)


def plan(**what):
    return planner(**what).plan()["answer"]


def test_calls_that_wait_share_one_instance():
    found = plan()
    assert found.chosen.meets and found.chosen.is_chosen
    assert (found.chosen.runtime.max_concurrency, found.chosen.runtime.max_replicas) == (16, 1)
    assert found.chosen.runtime.min_replicas == 1
    cheaper = [r for r in found.rows if r.core_hours.value < 0.98 * found.chosen.core_hours.value]
    assert not any(row.meets for row in cheaper)


def test_calls_that_compute_need_instances_of_their_own():
    found = plan(cpu_share=0.8)
    assert found.chosen.runtime.max_concurrency * found.chosen.runtime.max_replicas >= 14
    assert found.chosen.runtime.max_replicas > 8


def test_a_looser_target_is_cheaper():
    tight = plan(cpu_share=0.8, target=Target(p99_s=17))
    loose = plan(cpu_share=0.8, target=Target(p99_s=100))
    assert loose.chosen.core_hours.value < tight.chosen.core_hours.value
    assert loose.chosen.forecast.total_p99.value <= 100


def test_a_target_that_nothing_meets_says_what_is_possible():
    found = plan(target=Target(p99_s=3))
    assert found.chosen is None
    assert "p99 3 s is not met by any setting" in found.why_none
    assert found.best_p99_s > 3
    assert "makespan of 2 s is not met" in plan(target=Target(makespan_s=2)).why_none


def test_a_makespan_is_met_in_nine_of_ten_batches():
    found = plan(target=Target(makespan_s=60))
    assert found.chosen.makespan.high <= 60


def test_the_smallest_instance_with_the_memory_is_taken():
    large = MemoryFit(500.0, 400.0, 0.0, 900.0, 16, is_told=True)
    sizes = {row.runtime.max_concurrency: row.runtime.instance for row in plan(memory=large).rows}
    assert sizes[16] is PluginInstance.CPU2MEM16  # (500 + 16 * 400) * 1.25 MiB
    assert sizes[4] is PluginInstance.CPU1MEM4
    only = plan(memory=large, only_size=PluginInstance.CPU1MEM2)
    assert {row.runtime.max_concurrency for row in only.rows if not row.is_today} == {1}


def test_todays_settings_are_in_the_table_and_less_certain_rows_are_marked():
    found = plan()
    assert found.today in found.rows and found.today.is_today
    beyond = [row for row in found.rows if row.runtime.max_concurrency > 8]
    assert beyond and all("more calls in an instance" in row.marks[0] for row in beyond)


def test_a_poisson_load_gets_enough_places():
    found = plan(load=Arrivals(1.0), target=Target(p99_s=20), effort=Effort((8,), 0, 1))
    chosen = found.chosen
    assert chosen.runtime.max_concurrency * chosen.runtime.max_replicas > 10  # 10 s at 1 a second
    assert chosen.forecast.utilisation.value < 1
    assert found.today.forecast.total_p99.value > 20 and not found.today.meets


def test_graders_are_sized_after_the_rollout():
    grader = measured(cpu_share=0, waves=[8] * 3, kind=PluginKind.SINGLE_GRADER, name="one")
    fits = {"one": fit_service(grader), "answer": fit_service(measured(cpu_share=0, waves=[8] * 3))}
    found = Planner(
        Job(fits, Batch(4, 2, 4)), dict.fromkeys(fits, ENOUGH), Target(), effort=EFFORT
    ).plan()
    assert [*found] == ["answer", "one"]
    assert all(one.chosen is not None for one in found.values())


def test_ranges_hold_the_number():
    planned = planner()
    forecast = planned.plan()["answer"].chosen.forecast
    for estimate in (forecast.total_p50, forecast.total_p99, forecast.instance_s):
        assert estimate.low <= estimate.value <= estimate.high
    assert 7 < forecast.total_p50.value < 12  # what calls take is from 5 to 15
