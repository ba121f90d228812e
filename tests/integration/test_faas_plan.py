"""`arkdev faas plan`: what a run measured, forecast for other settings, and asked for."""

from __future__ import annotations

import json
import re

import pytest

from arkdev.faas_emulator.capacity.fitting import fit_service
from arkdev.faas_emulator.capacity.forecast import Job
from arkdev.faas_emulator.capacity.loads import Batch
from arkdev.faas_emulator.capacity.measured import quantile
from arkdev.flows.faas_capacity import measured_functions
from tests.integration.workspace import GIVE_ONE

SLEEPS = """
    import asyncio, random
    from arkdev import RolloutResult, Runtime, rollout

    @rollout(runtime=Runtime(max_concurrency=%d, min_replicas=%d, max_replicas=%d))
    async def answer(context, proxy, sample):
        await asyncio.sleep(random.Random(sample.extra["seed"]).uniform(0.1, 0.3))
        return RolloutResult(extra={"text": ""})
"""
NUM_CALLS = 100


@pytest.fixture
def measure(workspace):
    """Run the rollout with (max_concurrency, replicas, in flight), and other draws each time."""
    workspace.write("requirements.txt", "")
    workspace.write("plugins/grader.py", GIVE_ONE)

    def run(concurrency, replicas, in_flight, *, seed):
        # a module of its own, since each is imported once
        name = f"sleeps_{concurrency}_{replicas}"
        workspace.write(f"plugins/{name}.py", SLEEPS % (concurrency, replicas, replicas))
        workspace.lines(
            {
                "messages": [{"role": "user", "content": f"{number}"}],
                "extra": {"seed": seed * NUM_CALLS + number},
            }
            for number in range(NUM_CALLS)
        )
        return workspace.run(
            faas=True,
            faas_engine="process",
            rollout=f"plugins.{name}:answer",
            concurrency=in_flight,
        )

    return run


def test_the_p99_of_settings_that_were_not_measured_is_forecast(measure):
    # what else the machine does while one of the runs is measured is in no forecast
    assert any(max(errors_of_a_forecast(measure)) < 0.35 for _ in range(3))


def errors_of_a_forecast(measure):
    """How far the p99 and the p50 of each setting are off, relative to what was measured."""
    errors = []
    fitted = measured_functions(measure(6, 1, 8, seed=0).reader)["answer"]
    fit = fit_service(fitted)
    for concurrency, replicas, in_flight in ((3, 1, 6), (4, 2, 12)):
        runtime = fitted.runtime.model_copy(
            update={
                "max_concurrency": concurrency,
                "min_replicas": replicas,
                "max_replicas": replicas,
            }
        )
        job = Job({"answer": fit}, Batch(NUM_CALLS, 1, in_flight))
        forecast = job.forecast({"answer": runtime}, num_runs=5).functions["answer"]
        run = measure(concurrency, replicas, in_flight, seed=1)
        calls = [call for call in run.reader.invocations() if call.function == "answer"]
        p99 = quantile([call.queued_s + call.service_s for call in calls], 0.99)
        p50 = quantile([call.queued_s + call.service_s for call in calls], 0.5)
        errors += [forecast.total_p99.value / p99 - 1, forecast.total_p50.value / p50 - 1]
    return [abs(error) for error in errors]


def test_a_report_ends_with_what_the_job_needs_and_plan_has_the_table(workspace, arkdev, measure):
    measure(2, 1, 4, seed=0)
    told = arkdev(
        *("test", "plugin", "--faas", "--faas-engine", "process", "--limit", "16"),
        *("--rollout", "plugins.sleeps_2_1:answer", "--concurrency", "4"),
    )
    assert re.search(r"generations (needs|is served as well by) max_concurrency", told.out)
    assert "of requests queue longer than the timeout" in told.out
    assert "arkdev faas plan" in told.out
    batch = ("--batch-size", "8", "--num-generations", "2")
    arkdev(
        "test", "plugin", "--rollout", "plugins.sleeps_2_1:answer", "--limit", "1"
    )  # measures none
    told = arkdev("faas", "plan", "latest", *batch, "--price-core-hour", "2")
    assert told.exit_code == 0, told.err
    assert re.search(r"answer: batch 8 × 2 generations .* max_concurrency", told.out)
    assert "Runtime(instance=PluginInstance.CPU1MEM2, max_concurrency=" in told.out
    assert "batch_size 8 (--batch-size)" in told.out
    assert "measured on the scripted model" in told.out
    document = arkdev("faas", "plan", "latest", *batch, "--json").document
    (answer,) = (each for each in document["functions"] if each["name"] == "answer")
    (chosen,) = (row for row in answer["settings"] if row["is_chosen"])
    (today,) = (row for row in answer["settings"] if row["is_today"])
    assert (today["max_concurrency"], today["max_replicas"]) == (2, 1)
    assert f"max_concurrency={chosen['max_concurrency']}" in answer["runtime"]
    assert chosen["max_concurrency"] * chosen["max_replicas"] > 2
    assert document["makespan"]["value"] < document["makespan_today"]["value"]


def test_plan_names_the_policy_of_this_machine_where_it_answered(workspace, arkdev, measure):
    manifest = measure(2, 1, 4, seed=0).reader.folder / "manifest.json"
    written = json.loads(manifest.read_text(encoding="utf-8"))
    written["settings"]["endpoint"] = {"name": "local", "base_url": None, "model": "tiny"}
    manifest.write_text(json.dumps(written), encoding="utf-8")
    told = arkdev("faas", "plan", "latest", "--batch-size", "8", "--num-generations", "2")
    assert told.exit_code == 0, told.err
    assert "the model at 'local'" in " ".join(told.out.split())
    assert "scripted" not in told.out


def test_plan_says_what_cannot_be_met_or_was_not_measured(workspace, arkdev, measure):
    workspace.samples("hello")
    told = arkdev("test", "plugin")
    told = arkdev("faas", "plan")
    assert told.exit_code == 2 and "measured no functions" in told.err
    measure(2, 1, 4, seed=0)
    told = arkdev("faas", "plan", "--target-p99", "0.01", "--fn", "answer")
    assert told.exit_code == 3 and "is not met by any setting" in told.out
    told = arkdev("faas", "plan", "--fn", "nothing")
    assert told.exit_code == 2 and "has no function 'nothing'" in told.err
    told = arkdev("faas", "plan", "--rate", "1", "--target-p99", "60", "--fn", "answer")
    assert told.exit_code == 0 and "M/M/c" in told.out
    assert arkdev("faas", "plan", "--instance", "CPU3MEM6").exit_code == 2
