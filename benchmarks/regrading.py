"""How fast a recorded run is graded again, over graders that do nothing (benchmarks/README.md).

python benchmarks/regrading.py                      10,000 trajectories in groups of 8
python benchmarks/regrading.py --trajectories 2000 --group 4
python benchmarks/regrading.py --memory             resident memory while it goes on
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from arkdev.flows.regrading import run_replay  # noqa: E402
from arkdev.flows.regrading_plan import ReplayPlan, ReplayRequest, plan_replay  # noqa: E402
from arkdev.harness.loop import new_event_loop  # noqa: E402
from arkdev.plugin.loading import load_plugin  # noqa: E402
from arkdev.runs.records import (  # noqa: E402
    Attempt,
    GraderRecord,
    GroupRecord,
    SampleRecord,
    TokenRecord,
    TrajectoryRecord,
    TurnRecord,
    Verdict,
)
from arkdev.runs.writer import RunWriter  # noqa: E402
from arkdev.types import ChatCompletionSample, Trajectory  # noqa: E402
from harness import resident_mb  # noqa: E402

RUN = "recorded"
LIMIT_US = 200.0
"""What grading one trajectory again may cost beside the grader."""

PLUGINS = """
from arkdev import group_grader, single_grader


@single_grader
async def single_async(context, sample, trajectory):
    return 1.0


@single_grader
def single_sync(context, sample, trajectory):
    return 1.0


@group_grader
async def group_async(context, sample, trajectories):
    return [1.0] * len(trajectories)


@group_grader
def group_sync(context, sample, trajectories):
    return [1.0] * len(trajectories)
"""
GRADERS = ("single_async", "single_sync", "group_async", "group_sync")
CALL = {"id": "c", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
QUESTION = {"role": "user", "content": "What is the weather in Paris today, and tomorrow? " * 4}
MESSAGES = (
    QUESTION,
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c", "content": "sunny, 21 degrees; " * 8},
    {"role": "assistant", "content": "It is sunny, 21 degrees. " * 4},
)
SAMPLE = {"messages": [QUESTION], "extra": {"answer": "21"}}


@dataclass(frozen=True)
class Measurement:
    """One way to grade all trajectories."""

    name: str
    num_trajectories: int
    wall_s: float

    @property
    def us_per_trajectory(self) -> float:
        """Microseconds of wall time for one trajectory."""
        return self.wall_s / self.num_trajectories * 1e6


class Quiet:
    """Shows nothing; notes the resident memory after each tenth of the groups."""

    def __init__(self, num_groups: int) -> None:
        self.memory_mb: list[float] = []
        self._every = max(1, num_groups // 10)
        self._num_done = 0

    def on_start(self, plan: ReplayPlan, folder: Path) -> None:
        """Nothing to show."""

    def on_group(self, record: GroupRecord) -> None:
        """Count it."""
        self._num_done += 1
        if self._num_done % self._every == 0:
            self.memory_mb.append(resident_mb())


def record_run(root: Path, *, num_trajectories: int, group_size: int, num_tokens: int) -> None:
    """Write a workspace, and a run of it as `arkdev test plugin` would have left it."""
    (root / "plugins").mkdir(parents=True)
    (root / "plugins" / "graders.py").write_text(PLUGINS, encoding="utf-8")
    run = RunWriter.create(
        root / "runs",
        kind="test",
        settings={
            "graders": [{"name": "g", "reference": "plugins.graders:single_async", "weight": 1.0}],
            "num_generations": group_size,
            "flags": {"graders": ["plugins.graders:single_async"]},
        },
        hashes={},
        versions={},
        folder=root / "runs" / RUN,
    )
    for sample_index in range(num_trajectories // group_size):
        names = tuple(f"{sample_index}.{generation}" for generation in range(group_size))
        rewards = tuple(float(generation % 2) for generation in range(group_size))
        run.sample(SampleRecord(sample_index, SAMPLE))
        for generation, name in enumerate(names):
            run.trajectory(_trajectory(name, sample_index, generation))
            if num_tokens:
                ids, weights = tuple(range(num_tokens)), (1.0,) * num_tokens
                run.tokens(TokenRecord(name, ids, weights, (-0.25,) * num_tokens))
        grader = GraderRecord("g", weight=1.0, verdict=Verdict.SUCCESS, rewards=rewards)
        run.group(GroupRecord(sample_index, Verdict.SUCCESS, names, rewards, (grader,)))
    run.finish("finished", {})


def _trajectory(name: str, sample_index: int, generation: int) -> TrajectoryRecord:
    turns = tuple(
        TurnRecord(0.1, 0.5, reason, 120, 30, calls, 0.02)
        for reason, calls in (("tool_calls", ("weather",)), ("stop", ()))
    )
    return TrajectoryRecord(
        trajectory_id=name,
        sample_index=sample_index,
        generation=generation,
        verdict=Verdict.SUCCESS,
        duration_s=1.2,
        attempts=(Attempt(Verdict.SUCCESS, 1.2, 2),),
        messages=MESSAGES,
        usage={"prompt_tokens": 240, "completion_tokens": 60, "total_tokens": 300},
        finish_reason="stop",
        extra={"city": "Paris"},
        turns=turns,
    )


def bare_loop(root: Path) -> Measurement:
    """Read each trajectory, build it, and await the grader: no retries, no records, no report."""
    grade = load_plugin("plugins.graders:single_async", root=root).function

    async def loop() -> int:
        number = 0
        with (root / "runs" / RUN / "trajectories.jsonl").open("rb") as lines:
            for line in lines:
                fields = json.loads(line)
                trajectory = Trajectory(messages=fields["messages"], usage=fields["usage"])
                await grade({}, ChatCompletionSample(**SAMPLE), trajectory)
                number += 1
        return number

    started = time.perf_counter()
    number = asyncio.run(loop())
    return Measurement("bare loop, async function", number, time.perf_counter() - started)


def replayed(
    root: Path, *, grader: str = "", diff: tuple[str, str] | None = None
) -> tuple[Measurement, list[float]]:
    """Grade the run again with `grader`, or compare two of them."""
    graders = (f"plugins.graders:{grader}",) if grader else ()
    plan = plan_replay(ReplayRequest(start=root, run=RUN, graders=graders, diff=diff))
    quiet = Quiet(plan.groups.num_groups)
    started = time.perf_counter()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        outcome = runner.run(run_replay(plan, quiet))
    wall_s = time.perf_counter() - started
    name = f"arkdev replay, {grader}" if grader else "arkdev replay --diff recorded"
    return Measurement(name, outcome.summary.num_rollouts, wall_s), quiet.memory_mb


def measured(root: Path, *, repeats: int) -> Iterator[Measurement]:
    """Every row of the table, each the best of its repeats: other work only ever adds to it."""
    replayed(root, grader="group_async")  # imports what a replay needs

    def best(measure: Callable[[], Measurement]) -> Measurement:
        return min((measure() for _ in range(repeats)), key=lambda m: m.wall_s)

    yield best(lambda: bare_loop(root))
    for grader in GRADERS:
        yield best(lambda grader=grader: replayed(root, grader=grader)[0])
    yield best(lambda: replayed(root, diff=("recorded", "plugins.graders:group_async"))[0])


def print_table(measurements: list[Measurement]) -> None:
    """Trajectories per second, microseconds for each, and how many bare loops that is."""
    bare = measurements[0]
    print(f"{'':<36}{'graded/s':>10}{'µs each':>10}{'× bare':>8}")
    for m in measurements:
        rate, ratio = m.num_trajectories / m.wall_s, m.wall_s / bare.wall_s
        print(f"{m.name:<36}{rate:>10,.0f}{m.us_per_trajectory:>10.1f}{ratio:>8.1f}")
    worst = max(m.us_per_trajectory for m in measurements[1:])
    print(f"\nthe slowest takes {worst:.0f} µs a trajectory; the aim is under {LIMIT_US:.0f}")


def print_memory(points: list[float]) -> None:
    """The growth from the first tenth on."""
    for tenth, megabytes in enumerate(points, start=1):
        print(f"{tenth * 10:>4} % {megabytes:>9.1f} MiB")
    print(f"growth {points[-1] - points[0]:+.1f} MiB ({points[-1] / points[0]:.2f} ×)")


def main() -> None:
    """Run what the command line says and print it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trajectories", type=int, default=10_000)
    parser.add_argument("--group", type=int, default=8, help="trajectories of a group")
    parser.add_argument("--tokens", type=int, default=0, help="token evidence of each trajectory")
    parser.add_argument("--repeats", type=int, default=3, help="the best one counts")
    parser.add_argument("--memory", action="store_true", help="memory instead of speed")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        record_run(
            root,
            num_trajectories=arguments.trajectories,
            group_size=arguments.group,
            num_tokens=arguments.tokens,
        )
        if arguments.memory:
            print_memory(replayed(root, grader="single_async")[1])
        else:
            print_table(list(measured(root, repeats=arguments.repeats)))


if __name__ == "__main__":
    main()
