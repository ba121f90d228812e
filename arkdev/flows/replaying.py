"""``--replay``: the plugins' code runs again on a tape, each rollout in a process of its own.

Nothing is opened and nothing sent. What comes of it is written down, counted and shown as of a
test.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from arkdev.flows.recording import PluginTestObserver, Recorder
from arkdev.flows.replay_children import children_of
from arkdev.flows.replay_jobs import TAPE_MISMATCH
from arkdev.flows.replay_plan import ReplayPlan
from arkdev.flows.rollout_run import open_run
from arkdev.flows.test_plugin import PluginTestOutcome, compared_thresholds, exit_code_of
from arkdev.harness.engine import Engine, EngineSettings
from arkdev.harness.hidden_tasks import current_task_hidden
from arkdev.harness.statistics import RunStatistics
from arkdev.runs.masking import masked_value
from arkdev.runs.reader import RunReader


@dataclass(frozen=True)
class Mismatch:
    """Where a rollout, or the grading of a sample, left the tape."""

    name: str
    """The trajectory's id, or the sample whose grading it was."""
    text: str
    """What differs, with a diff."""
    where: str = ""
    """file:line of the user's code that made the request, when known."""


async def run_replay(plan: ReplayPlan, observer: PluginTestObserver) -> PluginTestOutcome:
    """Replay a tape to its end. What leaves the tape fails, which is in the outcome.

    Raises `ConfigurationError` when the plugins cannot be imported in the process that they run
    in. When it is cancelled the run folder says "interrupted".
    """
    statistics = RunStatistics(plan.num_generations, success_threshold=plan.success_threshold)
    async with AsyncExitStack() as stack:
        stack.enter_context(current_task_hidden())
        log: list[Recorder] = []
        children = await stack.enter_async_context(
            children_of(plan, on_log=lambda line: log[0].log(line))
        )
        run = open_run(plan)
        observer.on_start(plan, run.folder)
        recorder = Recorder(run, statistics, observer)
        log.append(recorder)
        engine = Engine(
            children,
            children,
            EngineSettings(
                num_generations=plan.num_generations,
                concurrency=plan.concurrency,
                run_seed=plan.source.header.settings["seed"],
            ),
            on_rollout=recorder.on_rollout,
            on_group=recorder.on_group,
        )
        try:
            await engine.run(recorder.begun(plan.samples()))
        except BaseException:
            run.finish("interrupted", statistics.summary().to_json())
            raise
        summary = masked_value(statistics.summary(), secrets=plan.secrets)
        run.finish("finished", summary.to_json())
    return PluginTestOutcome(
        summary=summary,
        folder=run.folder,
        exit_code=exit_code_of(summary, request=plan.request),
        thresholds=compared_thresholds(plan.request, summary),
        clients_built=0,
        client_cost_s=0.0,
        judge_calls=0,
    )


def mismatches(folder: Path) -> Iterator[Mismatch]:
    """Yield where the rollouts and gradings of a replay's run left the tape."""
    reader = RunReader(folder)
    errors = set()
    for trajectory in reader.trajectories():
        last = trajectory.attempts[-1]
        errors.add(last.error)
        if (last.error or "").startswith(TAPE_MISMATCH):
            text = (last.error or "").removeprefix(TAPE_MISMATCH)
            yield Mismatch(f"rollout {trajectory.trajectory_id}", text, last.where or "")
    for group in reader.groups():
        if (group.error or "").startswith(TAPE_MISMATCH) and group.error not in errors:
            text = (group.error or "").removeprefix(TAPE_MISMATCH)
            yield Mismatch(f"the grading of sample {group.sample_index}", text)
