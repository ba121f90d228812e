"""p99 as `arkdev faas plan` forecasts it, and as it is measured (`faas.py`, part forecast).

Two rollouts, in child processes: one sleeps for a time drawn evenly from 0.1 to 0.5 s, the other
also computes for 10 ms. Each is fitted on one run, with one instance of 8 concurrent calls, and
measured at three other settings, with other draws.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from arkdev.faas_emulator.capacity.fitting import fit_service
from arkdev.faas_emulator.capacity.forecast import Job
from arkdev.faas_emulator.capacity.loads import Batch
from arkdev.faas_emulator.capacity.measured import MeasuredFunction, quantile
from arkdev.flows.faas_capacity import measured_functions
from arkdev.flows.test_plan import plan_test
from arkdev.flows.test_plugin import run_test
from arkdev.flows.test_request import PluginTestRequest
from arkdev.runs.reader import RunReader
from benchmarks.arkdev_run import Silent

CPU_S = {"sleeps": 0.0, "computes": 0.01}
FITTED = (8, 1, 10)
"""max_concurrency, replicas, in flight."""
FORECAST = {
    "sleeps": ((4, 2, 16), (2, 2, 8), (16, 1, 16)),
    "computes": ((4, 2, 16), (2, 2, 8), (6, 1, 8)),
}
_ROLLOUT = """
import asyncio
import random
import time

from arkdev import RolloutResult, Runtime, rollout


@rollout(runtime=Runtime(max_concurrency=%d, min_replicas=%d, max_replicas=%d))
async def answer(context, proxy, sample):
    takes_s = random.Random(sample.extra["seed"]).uniform(0.1, 0.5)
    await asyncio.sleep(takes_s / 2)
    until = time.process_time() + %g
    while time.process_time() < until:
        pass
    await asyncio.sleep(takes_s / 2)
    return RolloutResult(extra={"text": ""})
"""
_GRADER = """
from arkdev import single_grader


@single_grader
def one(context, sample, trajectory):
    return 1.0
"""


async def measure_forecasts(root: Path, *, num_calls: int) -> list[dict[str, Any]]:
    """Return a row for each plugin and setting."""
    (root / "plugins").mkdir()
    (root / "plugins" / "grader.py").write_text(_GRADER, encoding="utf-8")
    (root / "requirements.txt").write_text("", encoding="utf-8")
    (root / "arkworkspace.toml").write_text("", encoding="utf-8")
    rows = []
    for plugin, settings in FORECAST.items():
        fitted = await _measured(root, plugin, FITTED, num_calls=num_calls, seed=0)
        fit = fit_service(fitted)
        for setting in settings:
            concurrency, replicas, in_flight = setting
            runtime = fitted.runtime.model_copy(
                update={
                    "max_concurrency": concurrency,
                    "min_replicas": replicas,
                    "max_replicas": replicas,
                }
            )
            job = Job({"answer": fit}, Batch(num_calls, 1, in_flight))
            forecast = job.forecast({"answer": runtime}, num_runs=10).functions["answer"]
            calls = await _totals(root, plugin, setting, num_calls=num_calls, seed=1)
            p99 = quantile(calls, 0.99)
            rows.append(
                {
                    "plugin": plugin,
                    "setting": f"{concurrency} x {replicas}, {in_flight} in flight",
                    "cpu_share": fit.cpu_share,
                    "forecast_s": forecast.total_p99.value,
                    "low_s": forecast.total_p99.low,
                    "high_s": forecast.total_p99.high,
                    "measured_s": p99,
                    "ratio": forecast.total_p99.value / p99,
                }
            )
    return rows


async def _run(
    root: Path, plugin: str, setting: tuple[int, int, int], *, num_calls: int, seed: int
) -> RunReader:
    concurrency, replicas, in_flight = setting
    name = f"{plugin}_{concurrency}_{replicas}"  # a module of its own: each is imported once
    text = _ROLLOUT % (concurrency, replicas, replicas, CPU_S[plugin])
    (root / "plugins" / f"{name}.py").write_text(text, encoding="utf-8")
    lines = [
        json.dumps(
            {
                "messages": [{"role": "user", "content": f"question {number}"}],
                "extra": {"seed": seed * num_calls + number},
            }
        )
        for number in range(num_calls)
    ]
    (root / "data.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    request = PluginTestRequest(
        start=root,
        data=(root / "data.jsonl",),
        rollout=f"plugins.{name}:answer",
        graders=("plugins.grader:one",),
        faas=True,
        faas_engine="process",
        concurrency=in_flight,
    )
    outcome = await run_test(plan_test(request), Silent())
    return RunReader(outcome.folder)


async def _measured(
    root: Path, plugin: str, setting: tuple[int, int, int], *, num_calls: int, seed: int
) -> MeasuredFunction:
    reader = await _run(root, plugin, setting, num_calls=num_calls, seed=seed)
    return measured_functions(reader)["answer"]


async def _totals(
    root: Path, plugin: str, setting: tuple[int, int, int], *, num_calls: int, seed: int
) -> list[float]:
    reader = await _run(root, plugin, setting, num_calls=num_calls, seed=seed)
    calls = [call for call in reader.invocations() if call.function == "answer"]
    return [call.queued_s + call.service_s for call in calls]
