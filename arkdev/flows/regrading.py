"""`arkdev replay`: a recorded run graded again, written down as a run of its own, and compared."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Protocol, TypeVar

from arkdev.errors import ExitCode, RunError
from arkdev.flows.environment import environment, judge_environment
from arkdev.flows.fingerprints import versions
from arkdev.flows.grader_versions import RECORDED
from arkdev.flows.recording import log_record
from arkdev.flows.regrading_plan import KIND, ReplayPlan
from arkdev.flows.traffic import plugin_traffic
from arkdev.harness.engine import grade_group
from arkdev.harness.garbage import rare_garbage_collection
from arkdev.harness.grader_diff import DiffOfGraders, GraderDiff
from arkdev.harness.grading import GroupGrading
from arkdev.harness.hidden_tasks import current_task_hidden, hidden
from arkdev.harness.regrading import recorded_rollouts, recorded_sample, was_kept_whole
from arkdev.harness.reward_changes import ChangesOfRun, RunChanges
from arkdev.harness.services import ServiceMeter
from arkdev.harness.statistics import RunStatistics
from arkdev.harness.summary import Summary
from arkdev.harness.tool_limits import ToolRule
from arkdev.observe.plugin_output import plugin_output_to
from arkdev.observe.plugin_threads import threads_follow
from arkdev.plugin.host import InProcessHost
from arkdev.runs.masking import masked_value
from arkdev.runs.recorded import RecordedGroup
from arkdev.runs.records import GraderRecord, GroupRecord, Verdict
from arkdev.runs.writer import SAMPLES, TOKENS, TRAJECTORIES, RunWriter
from arkdev.sessions.background import BackgroundLoop

_FIRST_AT_ONCE = 2
_MOMENT_S = 0.005

_HasError = TypeVar("_HasError", GraderRecord, GroupRecord)


class ReplayObserver(Protocol):
    """Who is told of a replay while it runs. Called on the harness's event loop."""

    def on_start(self, plan: ReplayPlan, folder: Path) -> None:
        """The run folder exists; nothing has been graded yet."""
        ...

    def on_group(self, record: GroupRecord) -> None:
        """A group is graded again, and on disk."""
        ...


@dataclass(frozen=True)
class ReplayOutcome:
    """What a replay came to."""

    summary: Summary
    changes: RunChanges
    diff: GraderDiff | None
    """Of ``--diff``."""
    folder: Path
    exit_code: ExitCode
    judge_calls: int
    """Model calls of graders that went to the scripted model, for want of an ARK_BASE_URL."""
    num_left_out: int
    """Groups that the run does not hold whole: a line is missing or was cut short."""
    num_not_whole: int
    """Trajectories that the graders were given with values written as their repr."""


async def run_replay(plan: ReplayPlan, observer: ReplayObserver) -> ReplayOutcome:
    """Grade a run again, to its end. What graders do wrong is in the outcome, not an exception.

    When it is cancelled the run folder says "interrupted". Raises `OutputError` when the disk
    refuses, `RunError` when no group of the run can be read.
    """
    groups = _readable_groups(plan)  # before there is a folder of nothing
    async with AsyncExitStack() as stack:
        stack.enter_context(current_task_hidden())
        run = RunWriter.create(
            plan.workspace.root / "runs",
            kind=KIND,
            settings=plan.settings(),
            hashes=dict(plan.hashes),
            versions=versions(),
            folder=plan.request.out,
            secrets=plan.secrets,
        )
        observer.on_start(plan, run.folder)
        stack.enter_context(
            plugin_output_to(lambda line: run.log(log_record(line)), mask=run.masked_output)
        )
        stack.enter_context(threads_follow())
        stack.enter_context(environment(plan.envs))
        loop = stack.enter_context(_background_loop())
        judge = await stack.enter_async_context(judge_environment(plan.endpoint, loop))
        tools = plan.workspace.tools
        rules = (ToolRule(tools, loop=loop),) if tools else ()
        called = ServiceMeter()
        stack.enter_context(plugin_traffic(called, *rules, judge=judge))
        stack.enter_context(rare_garbage_collection())
        regrading = _Regrading(plan, run, observer, called=called)
        try:
            await regrading.run(groups)
        except BaseException:
            run.finish("interrupted", regrading.statistics.summary().to_json())
            raise
        summary = masked_value(regrading.statistics.summary(), secrets=plan.secrets)
        changes = regrading.changes.summary()
        diff = regrading.diff.summary() if regrading.diff else None
        num_judge_calls = judge.num_chat_calls if judge is not None else 0
        run.event("judge", calls=num_judge_calls)
        run.event("changes", **changes.to_json())
        if diff is not None:
            run.event("diff", **diff.to_json())
        run.finish("finished", summary.to_json())
    return ReplayOutcome(
        summary=summary,
        changes=changes,
        diff=diff,
        folder=run.folder,
        exit_code=exit_code_of(summary),
        judge_calls=num_judge_calls,
        num_left_out=plan.groups.num_left_out,
        num_not_whole=regrading.num_not_whole,
    )


def exit_code_of(summary: Summary) -> ExitCode:
    """Return 1 when a grader failed or used up its retries; the rollouts' own past is no matter."""
    verdicts = [verdict for grader in summary.graders for verdict in grader.verdicts]
    is_bad = Verdict.FAILURE in verdicts or Verdict.RETRY in verdicts
    return ExitCode.SOME_FAILED if is_bad or summary.num_ungraded else ExitCode.OK


class _Regrading:
    """Grades the groups, several at once; each is read when its turn comes, and then let go."""

    def __init__(
        self, plan: ReplayPlan, run: RunWriter, observer: ReplayObserver, *, called: ServiceMeter
    ) -> None:
        self._plan = plan
        self._run = run
        self._observer = observer
        self._grading = GroupGrading(plan.graders, host=InProcessHost(), context=plan.context)
        self.statistics = RunStatistics(
            plan.num_generations,
            success_threshold=plan.success_threshold,
            services=called.summary,
        )
        self.changes = ChangesOfRun()
        self.diff = DiffOfGraders(*plan.diff_names) if plan.diff_names else None
        self.num_not_whole = 0

    async def run(self, groups: Iterable[RecordedGroup]) -> None:
        """Grade every group.

        Graders that only compute gain nothing from company: their threads would fight for the
        interpreter. So two groups are graded at once, and one more each time that none is done
        within a moment, because the graders wait for something.
        """
        num_at_once = min(_FIRST_AT_ONCE, self._plan.concurrency)
        running: set[asyncio.Task[None]] = set()
        async with asyncio.TaskGroup() as tasks:
            for group in groups:
                running.add(hidden(tasks.create_task(self._grade(group))))
                while len(running) >= num_at_once:
                    done, running = await asyncio.wait(
                        running, timeout=_MOMENT_S, return_when=asyncio.FIRST_COMPLETED
                    )
                    if not done and num_at_once < self._plan.concurrency:
                        num_at_once += 1

    async def _grade(self, group: RecordedGroup) -> None:
        rollouts = recorded_rollouts(group)
        after = await grade_group(recorded_sample(group), rollouts, grading=self._grading)
        after = self._masked_errors(after)
        self._record(group, replace(after, sample_extra=group.sample.get("extra")))

    def _record(self, group: RecordedGroup, after: GroupRecord) -> None:
        """Write the group down, then count it, then tell the observer."""
        self._run.copied(SAMPLES, [group.sample_line])
        self._run.copied(TRAJECTORIES, [one.line for one in group.trajectories])
        self._run.copied(TOKENS, [one.tokens_line for one in group.trajectories if one.tokens_line])
        for trajectory in group.trajectories:
            self.statistics.add_trajectory(trajectory.record)
            self.num_not_whole += not was_kept_whole(trajectory)
        self._run.group(after)
        self.statistics.add_group(after)
        self.changes.add(group.record, after)
        if self.diff is not None and self._plan.diff_names:
            first, second = (_side(name, group.record, after) for name in self._plan.diff_names)
            self.diff.add(group.trajectories, first, second)
        self._observer.on_group(after)

    def _masked_errors(self, record: GroupRecord) -> GroupRecord:
        if not record.error and not any(grader.error for grader in record.graders):
            return record
        graders = tuple(self._masked(grader) for grader in record.graders)
        return replace(self._masked(record), graders=graders)

    def _masked(self, record: _HasError) -> _HasError:
        return replace(record, error=self._run.masked(record.error)) if record.error else record


def _readable_groups(plan: ReplayPlan) -> Iterator[RecordedGroup]:
    """Return the groups that are to be graded, one at least."""
    groups = iter(plan.groups)
    first = next(groups, None)
    if first is None:
        raise RunError(
            f"run {plan.source.manifest.run_id} cannot be graded again: a line of each group is "
            f"missing or was cut short ({plan.groups.num_left_out} looked at)",
            where=str(plan.source.folder),
            hint="put samples.jsonl and trajectories.jsonl back, or run the test again",
        )
    return chain((first,), groups)


def _side(name: str, recorded: GroupRecord, graded: GroupRecord) -> GroupRecord:
    """Return what one side of a comparison says of a group, as a group that it alone graded."""
    if name == RECORDED:
        return recorded
    for grader in graded.graders:
        if grader.name == name:
            counted = replace(grader, weight=1.0)
            return replace(graded, rewards=grader.rewards, graders=(counted,))
    return graded  # not graded at all: a rollout dropped the group


@contextmanager
def _background_loop() -> Iterator[asyncio.AbstractEventLoop]:
    background = BackgroundLoop()
    background.start()
    try:
        yield background.loop
    finally:
        background.stop()
