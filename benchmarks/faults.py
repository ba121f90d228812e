"""A run of which a fifth of the calls is faulty, beside the same run without (README.md).

python benchmarks/faults.py                      10,000 rollouts each, at 128 in flight
python benchmarks/faults.py --rollouts 200 --in-flight 16

It ends with 1 when a rollout is not accounted for.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from arkdev.flows.test_plan import PluginTestPlan, plan_test  # noqa: E402
from arkdev.flows.test_plugin import run_test  # noqa: E402
from arkdev.flows.test_request import PluginTestRequest  # noqa: E402
from arkdev.harness.loop import new_event_loop  # noqa: E402
from arkdev.runs.reader import RunReader  # noqa: E402
from arkdev.runs.records import FaultRecord, Verdict  # noqa: E402
from arkdev.sessions.retries import RetryPolicy  # noqa: E402
from arkdev_run import Silent, write_workspace  # noqa: E402
from harness import chat_server, resident_mb  # noqa: E402

INJECT = (
    "model.timeout=4%,model.429=6%,model.500=2%,model.garbage=2%,model.cut_json=2%,model.empty=1%,"
    "model.slow=2%:20ms,model.raise=1%,grader.raise=20%"
)
"""A fifth of the sends of model calls and of the gradings."""
GENERATIONS = 4
FIRST_WAIT_S = 0.01
"""Not the second of a real run: that would measure the waiting."""
LONGEST_RUN_S = 1800


@dataclass
class Measured:
    """One run: how fast, how much memory after each tenth, and what became of every rollout."""

    name: str
    num_rollouts: int
    wall_s: float = 0.0
    cpu_s: float = 0.0
    memory_mb: list[float] = field(default_factory=list)
    num_calls: int = 0
    """Sends of model calls."""
    faults: dict[str, int] = field(default_factory=dict)
    """By side and kind."""
    handled_by: dict[str, int] = field(default_factory=dict)
    verdicts: dict[str, int] = field(default_factory=dict)
    num_graded: int = 0
    num_ungraded: int = 0
    """Succeeded, but the grader failed four times, or the group was dropped."""
    is_accounted_for: bool = False
    """Each rollout is in the run folder once, with a group, and has a reward or a reason."""

    @property
    def rollouts_per_s(self) -> float:
        """Over the whole run, reading the samples and starting included."""
        return self.num_rollouts / self.wall_s


class _Memory(Silent):
    """Looks at the resident memory after each tenth of the rollouts."""

    def __init__(self, num_rollouts: int, points: list[float]) -> None:
        self._every = max(1, num_rollouts // 10)
        self._num_done = 0
        self._points = points

    def on_rollout(self, finished: Any) -> None:
        """Count it."""
        self._num_done += 1
        if self._num_done % self._every == 0:
            gc.collect()
            self._points.append(resident_mb())


def plan_of(root: Path, *, url: str, in_flight: int, inject: str | None) -> PluginTestPlan:
    """The test that is measured."""
    return plan_test(
        PluginTestRequest(
            start=root,
            rollout="plugins.bench:with_async",
            graders=("plugins.bench:grade",),
            data=(root / "data.jsonl",),
            num_generations=GENERATIONS,
            concurrency=in_flight,
            endpoint=url,
            model="bench",
            inject=inject,
        )
    )


def measure(
    name: str, *, url: str, in_flight: int, num_samples: int, inject: str | None
) -> Measured:
    """Run the test once; raises `TimeoutError` when it hangs."""
    measured = Measured(name, num_rollouts=num_samples * GENERATIONS)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_workspace(root, num_samples=num_samples)
        plan = plan_of(root, url=url, in_flight=in_flight, inject=inject)
        observer = _Memory(measured.num_rollouts, measured.memory_mb)

        async def run() -> Path:
            async with asyncio.timeout(LONGEST_RUN_S):
                retries = RetryPolicy(first_wait_s=FIRST_WAIT_S)
                return (await run_test(plan, observer, retries=retries)).folder

        started, cpu = time.perf_counter(), time.process_time()
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            run_folder = runner.run(run())
        measured.wall_s = time.perf_counter() - started
        measured.cpu_s = time.process_time() - cpu
        _account(measured, RunReader(run_folder))
    return measured


def _account(measured: Measured, reader: RunReader) -> None:
    """Look for every rollout in the run folder."""
    verdicts: dict[str, Verdict] = {}
    faults: Counter[str] = Counter()
    handled: Counter[str] = Counter()
    num_lines = 0

    def count(records: Iterator[FaultRecord]) -> None:
        for fault in records:
            faults[f"{fault.side} {fault.kind}"] += 1
            handled[fault.handled_by] += 1

    for record in reader.trajectories():
        num_lines += 1
        verdicts[record.trajectory_id] = record.verdict
        count(fault for attempt in record.attempts for fault in attempt.faults)
        measured.num_calls += sum(
            attempt.num_turns + attempt.num_model_call_retries for attempt in record.attempts
        )
    rewards: dict[str, float | None] = {}
    for group in reader.groups():
        rewards.update(zip(group.trajectory_ids, group.rewards, strict=True))
        count(fault for grader in group.graders for fault in grader.faults)
    measured.faults, measured.handled_by = dict(faults), dict(handled)
    measured.verdicts = dict(Counter(verdicts.values()))
    graded = [name for name, reward in rewards.items() if reward is not None]
    measured.num_graded = len(graded)
    measured.num_ungraded = measured.verdicts.get(Verdict.SUCCESS, 0) - len(graded)
    measured.is_accounted_for = (
        num_lines == len(verdicts) == measured.num_rollouts
        and rewards.keys() == verdicts.keys()
        and all(verdicts[name] is Verdict.SUCCESS for name in graded)
        and reader.torn == []
    )


def print_table(runs: list[Measured]) -> None:
    """One column for each run."""
    plain, faulty = runs
    print(f"{'':<30}{plain.name:>14}{faulty.name:>14}{'ratio':>8}")
    for name, a, b in (
        ("rollouts", plain.num_rollouts, faulty.num_rollouts),
        ("rollouts/s", plain.rollouts_per_s, faulty.rollouts_per_s),
        (
            "sends of model calls/s",
            plain.num_calls / plain.wall_s,
            faulty.num_calls / faulty.wall_s,
        ),
    ):
        print(f"{name:<30}{a:>14,.0f}{b:>14,.0f}{b / a:>8.2f}")
    a, b = (run.cpu_s * 1000 / run.num_rollouts for run in runs)
    print(f"{'CPU ms/rollout':<30}{a:>14.2f}{b:>14.2f}{b / a:>8.2f}")
    for name in ("num_graded", "num_ungraded", "is_accounted_for"):
        print(f"{name:<30}{getattr(plain, name)!s:>14}{getattr(faulty, name)!s:>14}")
    print(f"{'faults':<30}{sum(plain.faults.values()):>14}{sum(faulty.faults.values()):>14}")
    for run in runs:
        print(
            f"\n{run.name}: verdicts {_counts(run.verdicts)}; handled by {_counts(run.handled_by)}"
        )
        print(f"  {_counts(run.faults)}")
        points = " ".join(f"{point:.0f}" for point in run.memory_mb)
        print(f"  resident memory after each tenth, MiB: {points}")


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"


def main() -> int:
    """Run what the command line says and print it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rollouts", type=int, default=10_000)
    parser.add_argument("--in-flight", type=int, default=128)
    parser.add_argument("--latency-ms", type=float, default=5.0)
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")
    arguments = parser.parse_args()
    num_samples = max(1, arguments.rollouts // GENERATIONS)
    with chat_server(latency_ms=arguments.latency_ms) as url:
        measure("warm-up", url=url, in_flight=8, num_samples=4, inject=None)
        runs = [
            measure(
                name,
                url=url,
                in_flight=arguments.in_flight,
                num_samples=num_samples,
                inject=inject,
            )
            for name, inject in (("without", None), ("with faults", INJECT))
        ]
    if arguments.json:
        print(json.dumps([asdict(run) for run in runs], indent=2))
    else:
        print_table(runs)
    return 0 if all(run.is_accounted_for for run in runs) else 1


if __name__ == "__main__":
    sys.exit(main())
