"""How long a replay takes beside the run that it was recorded from, and what recording costs.

The server answers each of a rollout's three model calls after a fixed latency; a tape answers at
once, but each rollout and each grading is a process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from arkdev.flows.replay_plan import plan_replay
from arkdev.flows.replaying import run_replay
from arkdev.flows.test_plan import plan_test
from arkdev.flows.test_plugin import run_test
from arkdev.flows.test_request import PluginTestRequest
from arkdev_run import Silent, write_workspace
from harness import chat_server

Work = Callable[[], Coroutine[Any, Any, Any]]


def cpu_s() -> float:
    """CPU time of this process and of those that it has waited for, in seconds."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def seconds(work: Work) -> tuple[float, float]:
    """Run `work` to its end; returns its wall and its CPU time in seconds."""
    started, started_cpu = time.perf_counter(), cpu_s()
    outcome = asyncio.run(work())
    if outcome.exit_code != 0:
        raise RuntimeError(f"not every rollout succeeded: {outcome.summary}")
    return time.perf_counter() - started, cpu_s() - started_cpu


def measure(url: str, *, in_flight: int, num_rollouts: int) -> dict[str, float]:
    """Run, record and replay; returns seconds by name, and the ratio of replayed to recorded."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        write_workspace(root, num_samples=num_rollouts)
        tape = root / "tape.jsonl"
        request: dict[str, Any] = {
            "start": root,
            "rollout": "plugins.bench:with_async",
            "graders": ("plugins.bench:grade",),
            "data": (root / "data.jsonl",),
            "concurrency": in_flight,
            "endpoint": url,
            "model": "bench",
        }
        plain = plan_test(PluginTestRequest(**request))
        run_s, _ = seconds(lambda: run_test(plain, Silent()))
        recorded = plan_test(PluginTestRequest(**request, record=tape))
        recorded_s, recorded_cpu_s = seconds(lambda: run_test(recorded, Silent()))
        replayed = plan_replay(PluginTestRequest(start=root, replay=tape))
        replayed_s, replayed_cpu_s = seconds(lambda: run_replay(replayed, Silent()))
        one = plan_replay(PluginTestRequest(start=root, replay=tape, limit=1))
        one_s, one_cpu_s = seconds(lambda: run_replay(one, Silent()))
        return {
            "in_flight": in_flight,
            "num_rollouts": num_rollouts,
            "run_s": run_s,
            "recorded_s": recorded_s,
            "replayed_s": replayed_s,
            "ratio": replayed_s / recorded_s,
            "one_rollout_s": one_s,
            "recorded_cpu_ms": recorded_cpu_s / num_rollouts * 1000,
            "replayed_cpu_ms": (replayed_cpu_s - one_cpu_s) / max(1, num_rollouts - 1) * 1000,
            "tape_kb_per_rollout": tape.stat().st_size / 1024 / num_rollouts,
        }


def main() -> None:
    """Print a line for each number of rollouts in flight."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--in-flight", default="1,8,32")
    parser.add_argument("--rollouts", type=int, default=64)
    parser.add_argument("--latency-ms", type=float, default=50.0)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with chat_server(latency_ms=arguments.latency_ms) as url:
        rows = [
            measure(url, in_flight=int(number), num_rollouts=arguments.rollouts)
            for number in arguments.in_flight.split(",")
        ]
    if arguments.json:
        json.dump(rows, sys.stdout)
        return
    print(f"{arguments.rollouts} rollouts of 3 calls, {arguments.latency_ms:g} ms each")
    print("                                                            CPU ms per rollout")
    print("in flight    run s  recorded s  replayed s  ratio  first s  recorded  replayed")
    for row in rows:
        print(
            f"{row['in_flight']:9} {row['run_s']:8.2f} {row['recorded_s']:11.2f} "
            f"{row['replayed_s']:11.2f} {row['ratio']:6.2f} {row['one_rollout_s']:8.2f} "
            f"{row['recorded_cpu_ms']:9.1f} {row['replayed_cpu_ms']:9.1f}"
        )


if __name__ == "__main__":
    main()
