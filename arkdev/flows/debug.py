"""`arkdev debug`: what a training job would run, step by step, except for the weights.

One step, as in training::

    batch of samples → rollouts → graders → groups → batch → advantages → (the update) → metrics

The update is what is left out. After it, when it is due, comes a round on the validation set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from arkdev.endpoints.endpoint import Endpoint
from arkdev.errors import ExitCode, JobFailedError
from arkdev.flows.debug_plan import DebugPlan
from arkdev.flows.debug_records import task_advantages
from arkdev.flows.distilling import coefficients
from arkdev.flows.injection import notes_on_effect
from arkdev.flows.job_steps import JobSteps, StepKey, StepObserver, first_failure, records_of
from arkdev.flows.rollout_run import Recorded, RolloutRun, rollout_run
from arkdev.flows.teaching import Teaching, teaching
from arkdev.flows.test_plugin import compared_thresholds, exit_code_of
from arkdev.flows.tracing import Tracing
from arkdev.harness.rollouts import FinishedRollout
from arkdev.harness.statistics import RunStatistics
from arkdev.harness.steps import StepRecord
from arkdev.harness.summary import Summary
from arkdev.harness.thresholds import ThresholdResult
from arkdev.job.batches import Batch
from arkdev.plugin.evidence import TokenEvidence
from arkdev.runs.reader import RunReader
from arkdev.runs.records import TEST, TRAIN, GroupRecord, step_of_id
from arkdev.sessions.retries import RetryPolicy


@dataclass(frozen=True)
class DebugOutcome:
    """What a debug run came to."""

    summary: Summary
    """Of the training steps."""
    validation: Summary | None
    """Of the rounds on the validation set; None when there was none."""
    steps: tuple[StepRecord, ...]
    job_id: str
    folder: Path
    exit_code: ExitCode
    failure: JobFailedError | None
    """Why a job would have ended, the first time."""
    warnings: tuple[str, ...]
    clients_built: int
    client_cost_s: float
    judge_calls: int
    thresholds: tuple[ThresholdResult, ...] = ()
    notes: tuple[str, ...] = ()
    tracing: Tracing | None = None


async def run_debug(
    plan: DebugPlan,
    observer: StepObserver,
    *,
    retries: RetryPolicy | None = None,
    endpoint: Endpoint | None = None,
) -> DebugOutcome:
    """Rehearse a job. That it would fail is in the outcome, not an exception.

    `endpoint` is one that is open already, in place of the plan's.
    Raises what `rollout_run` raises, and `EndpointError` as `run_test` does.
    """
    validation = RunStatistics(plan.test_num_generations, success_threshold=plan.success_threshold)
    async with (
        teaching(plan.teacher, max_in_flight=plan.concurrency) as teacher,
        rollout_run(
            plan, observer, retries=retries, validation=validation, endpoint=endpoint
        ) as run,
    ):
        rehearsal = _Rehearsal(plan, run, observer, teacher)
        await rehearsal.run_all()
        rounds = validation.summary()
        has_rounds = rounds.num_rollouts > 0
        is_cut = rehearsal.failure is not None and not plan.debug.keep_going
        more = {
            "steps": [step.to_json() for step in rehearsal.steps.records],
            "validation": rounds.to_json() if has_rounds else None,
            "failure": str(rehearsal.failure) if rehearsal.failure else None,
            "warnings": list(rehearsal.steps.checks.warnings()),
            "job_id": rehearsal.steps.job_id,
        }
        summary = await run.finish("failed" if is_cut else "finished", more=more)
    thresholds = compared_thresholds(plan.request, summary)
    return DebugOutcome(
        summary=summary,
        validation=rounds if has_rounds else None,
        steps=tuple(rehearsal.steps.records),
        job_id=rehearsal.steps.job_id,
        folder=run.folder.folder,
        exit_code=_exit_code(plan, summary, rehearsal),
        failure=rehearsal.failure,
        warnings=rehearsal.steps.checks.warnings(),
        clients_built=run.clients.num_built,
        client_cost_s=run.clients.mean_s,
        judge_calls=run.num_judge_calls,
        thresholds=thresholds,
        notes=notes_on_effect(plan),
        tracing=run.tracing,
    )


def _exit_code(plan: DebugPlan, summary: Summary, rehearsal: _Rehearsal) -> ExitCode:
    code = exit_code_of(summary, request=plan.request)
    if code is ExitCode.UNREACHABLE:
        return code
    if rehearsal.failure is not None:
        return ExitCode.JOB_FAILED
    if code is ExitCode.OK and rehearsal.steps.checks.num_leaks:
        return ExitCode.SOME_FAILED
    return code


class _Rehearsal:
    """The steps of a run, one after the other."""

    def __init__(
        self, plan: DebugPlan, run: RolloutRun, observer: StepObserver, teacher: Teaching | None
    ) -> None:
        self.steps = JobSteps(plan, run, observer)
        self.failure: JobFailedError | None = None
        self._plan = plan
        self._run = run
        self._teacher = teacher
        self._done: Mapping[StepKey, StepRecord] = {}

    async def run_all(self) -> None:
        """Run what is left of the job, or the part until it fails."""
        try:
            if self._plan.resumed:
                self._take_over()
            for batch in self._plan.steps.batches():
                await self._step(batch, TRAIN)
                if self._plan.is_round_after(batch.step):
                    await self._step(batch, TEST)
        except* JobFailedError as group:
            self.failure = first_failure(group)
        self.failure = self.steps.failure or self.failure

    async def _step(self, batch: Batch, phase: str) -> None:
        key = phase, batch.step
        if key in self._done:
            self.steps.records.append(self._done[key])
            return
        step = await self.steps.roll_out(batch, phase)
        if self._teacher is not None and phase == TRAIN:
            await self._teacher.ask(
                self.steps.checks.take_lessons(),
                self._run.folder.event,
                advantages=task_advantages(step.content.groups),
                coefs=coefficients(self._plan.the_job),
            )
        self.steps.keep(self.steps.record(step))

    def _take_over(self) -> None:
        reader = RunReader(self._run.folder.folder)
        self._done = records_of(reader)
        for event in reader.events():
            self.steps.checks.recall(event)
        tokens = self._tokens_of_open_steps(reader)
        self._run.take_over(
            Recorded(lambda finished: self._on_kept_rollout(finished, tokens), self._on_kept_group)
        )

    def _tokens_of_open_steps(self, reader: RunReader) -> dict[str, TokenEvidence]:
        """Return the token evidence of the trajectories whose steps are not done."""
        return {
            record.trajectory_id: TokenEvidence(
                record.token_ids, record.loss_weight, record.logprobs
            )
            for record in reader.tokens()
            if step_of_id(record.trajectory_id) not in self._done
        }

    def _on_kept_rollout(
        self, finished: FinishedRollout, tokens: Mapping[str, TokenEvidence]
    ) -> None:
        record = finished.record
        self.steps.look_at_rollout(record)
        if record.step is not None and (record.phase, record.step) not in self._done:
            finished = replace(finished, evidence=tokens.get(record.trajectory_id))
            self.steps.count(finished, self.steps.content(record.phase, record.step))

    def _on_kept_group(self, record: GroupRecord) -> None:
        self.steps.look_at_group(record)
        if record.step is not None and (record.phase, record.step) not in self._done:
            self.steps.content(record.phase, record.step).groups.append(record)
