"""Debug runs in this process, for tests."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from arkdev.errors import ExitCode
from arkdev.flows.debug import DebugOutcome, run_debug
from arkdev.flows.debug_plan import plan_debug
from arkdev.flows.debug_request import DebugRequest
from arkdev.harness.steps import StepRecord
from arkdev.job.batches import Batch
from arkdev.runs.reader import RunReader
from arkdev.runs.records import GroupRecord, TrajectoryRecord
from arkdev.sessions.retries import RetryPolicy
from tests.integration.workspace import Silent, Workspace, job_yaml

TWO_GRADERS = """
    from arkdev import group_grader, single_grader

    @single_grader
    def index(context, sample, trajectory):
        return float(sample.extra["index"])

    @group_grader
    def member(context, sample, trajectories):
        return [float(number) for number in range(len(trajectories))]
"""
"""One gives a sample's number, the other a member's."""


class Quiet(Silent):
    """An observer that shows nothing."""

    def on_step_begin(self, batch: Batch, phase: str) -> None: ...

    def on_step(self, record: StepRecord) -> None: ...


@dataclass(frozen=True)
class Rehearsal:
    """A debug run that came to its end."""

    outcome: DebugOutcome

    @property
    def exit_code(self) -> ExitCode:
        return self.outcome.exit_code

    @property
    def failure(self) -> str:
        return str(self.outcome.failure) if self.outcome.failure else ""

    @property
    def reader(self) -> RunReader:
        return RunReader(self.outcome.folder)

    @property
    def trajectories(self) -> dict[str, TrajectoryRecord]:
        return {record.trajectory_id: record for record in self.reader.trajectories()}

    @property
    def groups(self) -> list[GroupRecord]:
        return list(self.reader.groups())

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl."""
        text = (self.outcome.folder / "metrics.jsonl").read_text("utf-8")
        return [json.loads(line) for line in text.splitlines()]


def rehearse(workspace: Workspace, observer: Quiet | None = None, **request: Any) -> Rehearsal:
    """Debug the workspace's job; a failed model call goes out again at once."""
    plan = plan_debug(DebugRequest(start=workspace.root, **request))
    at_once = RetryPolicy(first_wait_s=0.001)
    return Rehearsal(asyncio.run(run_debug(plan, observer or Quiet(), retries=at_once)))


def numbered(workspace: Workspace, count: int, *, name: str = "data.jsonl") -> None:
    """Write samples that know their number."""
    lines = (
        {"messages": [{"role": "user", "content": f"sample {n}"}], "extra": {"index": n}}
        for n in range(count)
    )
    workspace.lines(lines, name=name)


def write_job(workspace: Workspace, *, graders: list[Any] | None = None, **more: Any) -> None:
    """A job of two samples a step, with two rollouts each."""
    values = {"batch_size": 2, "num_generations": 2, **more.pop("hyperparameters", {})}
    pipeline: dict[str, Any] = {
        "rollout": {"plugin": "plugins.rollout:answer"},
        "graders": graders or ["plugins.grader:one"],
    }
    pipeline.update(more.pop("pipeline", {}))
    workspace.write(
        "job.yaml", job_yaml(hyperparameters=values, custom_rl_pipeline=pipeline, **more)
    )
