"""What `arkdev debug` costs beside `arkdev test plugin`: rollouts per second, and memory.

Both run the same samples on the scripted model with the built-in rollout and one grader, one after
the other in processes of their own. Memory is the resident set while the run goes on: after a
tenth of the rollouts and at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from arkdev.flows.debug import run_debug  # noqa: E402
from arkdev.flows.debug_plan import plan_debug  # noqa: E402
from arkdev.flows.debug_request import DebugRequest  # noqa: E402
from arkdev.flows.test_plan import plan_test  # noqa: E402
from arkdev.flows.test_plugin import run_test  # noqa: E402
from arkdev.flows.test_request import PluginTestRequest  # noqa: E402
from benchmarks.arkdev_run import Silent  # noqa: E402

GRADER = """
from arkdev import SingleGraderResult, single_grader


@single_grader
async def grade(context, sample, trajectory):
    right = sample.extra["answer"] in str(trajectory.messages[-1].content)
    return SingleGraderResult(reward=float(right), metrics={"length": 1.0})
"""
KINDS = ("test plugin", "debug")


def rss_mb() -> float:
    """The process's resident memory now."""
    fields = Path("/proc/self/statm").read_text(encoding="ascii").split()
    return int(fields[1]) * 4096 / 1e6


class Watching(Silent):
    """Looks at the memory after a tenth of the rollouts."""

    def __init__(self, num_rollouts: int) -> None:
        self._at = num_rollouts // 10
        self._num_done = 0
        self.early_mb = 0.0

    def on_rollout(self, finished: Any) -> None:
        """Count."""
        self._num_done += 1
        if self._num_done == self._at:
            self.early_mb = rss_mb()

    def on_step_begin(self, *_: Any) -> None:
        """Nothing."""

    def on_step(self, record: Any) -> None:
        """Nothing."""


def write_workspace(root: Path, *, num_samples: int, num_generations: int, batch: int) -> None:
    """A job of one epoch over additions that the scripted model knows."""
    (root / "plugins").mkdir()
    (root / "plugins" / "bench.py").write_text(GRADER, encoding="utf-8")
    with (root / "data.jsonl").open("w", encoding="utf-8") as file:
        for number in range(num_samples):
            question = {"role": "user", "content": f"What is {number} plus {number % 7}?"}
            extra = {"answer": str(number + number % 7)}
            file.write(json.dumps({"messages": [question], "extra": extra}) + "\n")
    job = {
        "customization_type": "GRPO",
        "model_reference": {"foundation_model": {"name": "m", "model_version": "1"}},
        "hyperparameters": {"batch_size": batch, "num_generations": num_generations},
        "data": {"training_set": {"local_files": ["data.jsonl"]}},
        "custom_rl_pipeline": {"graders": ["plugins.bench:grade"]},
    }
    (root / "job.yaml").write_text(json.dumps(job), encoding="utf-8")


def run(kind: str, root: Path, *, num_rollouts: int, num_generations: int) -> dict[str, Any]:
    """Run one kind here; every rollout must be graded."""
    observer = Watching(num_rollouts)
    started, cpu = time.perf_counter(), time.process_time()
    if kind == "debug":
        debugged = asyncio.run(run_debug(plan_debug(DebugRequest(start=root)), observer))
        summary = debugged.summary
    else:
        request = PluginTestRequest(start=root, num_generations=num_generations)
        summary = asyncio.run(run_test(plan_test(request), observer)).summary
    took_s = time.perf_counter() - started
    if summary.num_graded != num_rollouts:
        raise RuntimeError(f"{summary.num_graded} of {num_rollouts} rollouts were graded")
    return {
        "rollouts_per_s": num_rollouts / took_s,
        "cpu_ms": (time.process_time() - cpu) / num_rollouts * 1000,
        "early_mb": observer.early_mb,
        "end_mb": rss_mb(),
    }


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--generations", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--kind", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--root", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    num_rollouts = options.samples * options.generations
    if options.kind:
        rows = run(
            options.kind,
            options.root,
            num_rollouts=num_rollouts,
            num_generations=options.generations,
        )
        print(json.dumps(rows))
        return 0
    measured = {}
    for kind in KINDS:
        with tempfile.TemporaryDirectory() as folder:
            write_workspace(
                Path(folder),
                num_samples=options.samples,
                num_generations=options.generations,
                batch=options.batch_size,
            )
            told = subprocess.run(
                [sys.executable, *sys.argv, "--kind", kind, "--root", folder],
                capture_output=True,
                text=True,
                check=False,
            )
        if told.returncode:
            sys.stderr.write(told.stderr)
            return 1
        measured[kind] = json.loads(told.stdout.splitlines()[-1])
    if options.json:
        print(json.dumps(measured))
        return 0
    print(f"{options.samples:,} samples x {options.generations}, batches of {options.batch_size}")
    print(f"{'':<14}{'rollouts/s':>11}{'ratio':>7}{'CPU ms':>8}{'MB at 10 %':>12}{'MB at end':>11}")
    for kind, row in measured.items():
        ratio = row["rollouts_per_s"] / measured["test plugin"]["rollouts_per_s"]
        print(
            f"{kind:<14}{row['rollouts_per_s']:>11.0f}{ratio:>7.2f}{row['cpu_ms']:>8.2f}"
            f"{row['early_mb']:>12.1f}{row['end_mb']:>11.1f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
