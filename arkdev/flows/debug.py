"""`arkdev debug`: what a training job would run, step by step, except for the weights.

One step, as in training::

    batch of samples → rollouts → graders → groups → batch → advantages → (the update) → metrics

The update is what is left out. After it, when it is due, comes a round on the validation set.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from arkdev.errors import ExitCode, JobFailedError
from arkdev.flows.debug_checks import TrajectoryChecks
from arkdev.flows.debug_plan import DebugPlan
from arkdev.flows.debug_records import (
    StepSettings,
    round_record,
    step_record,
    task_advantages,
)
from arkdev.flows.distilling import coefficients
from arkdev.flows.injection import notes_on_effect
from arkdev.flows.recording import PluginTestObserver
from arkdev.flows.rollout_run import Recorded, RolloutRun, rollout_run
from arkdev.flows.teaching import Teaching, teaching
from arkdev.flows.test_plugin import compared_thresholds, exit_code_of
from arkdev.flows.tracing import Tracing
from arkdev.harness.rollouts import FinishedRollout, SampleToRun
from arkdev.harness.statistics import RunStatistics
from arkdev.harness.steps import StepContent, StepRecord
from arkdev.harness.summary import Summary
from arkdev.harness.thresholds import ThresholdResult
from arkdev.job.batches import Batch
from arkdev.plugin.evidence import TokenEvidence
from arkdev.runs.masking import masked_text
from arkdev.runs.reader import RunReader
from arkdev.runs.records import (
    TEST,
    TRAIN,
    GroupRecord,
    TrajectoryRecord,
    Verdict,
    step_of_id,
)
from arkdev.sessions.retries import RetryPolicy
from arkdev.types import PluginContext

_Key = tuple[str, int]
"""The phase and the step."""


class DebugObserver(PluginTestObserver, Protocol):
    """Who is told of a debug run while it runs."""

    def on_step_begin(self, batch: Batch, phase: str) -> None:
        """A step begins, or a round of validation after it."""
        ...

    def on_step(self, record: StepRecord) -> None:
        """It has ended and is on disk."""
        ...


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
    plan: DebugPlan, observer: DebugObserver, *, retries: RetryPolicy | None = None
) -> DebugOutcome:
    """Rehearse a job. That it would fail is in the outcome, not an exception.

    Raises what `rollout_run` raises, and `EndpointError` as `run_test` does.
    """
    validation = RunStatistics(plan.test_num_generations, success_threshold=plan.success_threshold)
    async with (
        teaching(plan.teacher, max_in_flight=plan.concurrency) as teacher,
        rollout_run(plan, observer, retries=retries, validation=validation) as run,
    ):
        rehearsal = _Rehearsal(plan, run, observer, teacher)
        await rehearsal.run_all()
        rounds = validation.summary()
        has_rounds = rounds.num_rollouts > 0
        is_cut = rehearsal.failure is not None and not plan.debug.keep_going
        more = {
            "steps": [step.to_json() for step in rehearsal.steps],
            "validation": rounds.to_json() if has_rounds else None,
            "failure": str(rehearsal.failure) if rehearsal.failure else None,
            "warnings": list(rehearsal.checks.warnings()),
            "job_id": rehearsal.job_id,
        }
        summary = await run.finish("failed" if is_cut else "finished", more=more)
    thresholds = compared_thresholds(plan.request, summary)
    return DebugOutcome(
        summary=summary,
        validation=rounds if has_rounds else None,
        steps=tuple(rehearsal.steps),
        job_id=rehearsal.job_id,
        folder=run.folder.folder,
        exit_code=_exit_code(plan, summary, rehearsal),
        failure=rehearsal.failure,
        warnings=rehearsal.checks.warnings(),
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
    if code is ExitCode.OK and rehearsal.checks.num_leaks:
        return ExitCode.SOME_FAILED
    return code


def job_id_of(run: RunReader | RolloutRun) -> str:
    """Return the id that plugins are told: ``mcj-<time>-<rest>``, the same when a run goes on."""
    manifest = run.manifest if isinstance(run, RunReader) else run.folder.manifest
    moment = "".join(letter for letter in manifest.started_at[:19] if letter.isdigit())
    return f"mcj-{moment}-{manifest.started_at[-6:-1]}"


@dataclass
class _Rehearsal:
    """The steps of a run, one after the other."""

    plan: DebugPlan
    run: RolloutRun
    observer: DebugObserver
    teacher: Teaching | None
    steps: list[StepRecord] = field(default_factory=list)
    failure: JobFailedError | None = None

    def __post_init__(self) -> None:
        self.job_id = job_id_of(self.run)
        self.checks = TrajectoryChecks(self.plan, self.run.folder.event)
        self._settings = StepSettings.of(self.plan)
        self._contents: dict[_Key, StepContent] = {}
        """Of the steps that are not done."""
        self._done: dict[_Key, StepRecord] = {}

    async def run_all(self) -> None:
        """Run what is left of the job, or the part until it fails."""
        try:
            if self.plan.resumed:
                self._take_over()
            for batch in self.plan.steps.batches():
                await self._step(batch, TRAIN, batch.indices)
                if self.plan.is_round_after(batch.step):
                    await self._step(batch, TEST, range(self.plan.num_validation))
        except* JobFailedError as group:
            self.failure = self.failure or _first(group)

    def _take_over(self) -> None:
        reader = RunReader(self.run.folder.folder)
        for event in reader.events():
            if event.get("kind") == "step":
                record = StepRecord.from_json(event)
                self._done[record.phase, record.step] = record
            self.checks.recall(event)
        tokens = self._tokens_of_open_steps(reader)
        self.run.take_over(
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
        self._look_for_failure_of_rollout(record)
        if record.step is not None and (record.phase, record.step) not in self._done:
            finished = replace(finished, evidence=tokens.get(record.trajectory_id))
            self._count(finished, self._content(record.phase, record.step))

    def _on_kept_group(self, record: GroupRecord) -> None:
        self._look_for_failure_of_group(record)
        if record.step is not None and (record.phase, record.step) not in self._done:
            self._content(record.phase, record.step).groups.append(record)

    def _content(self, phase: str, step: int) -> StepContent:
        return self._contents.setdefault((phase, step), StepContent())

    async def _step(self, batch: Batch, phase: str, indices: Iterable[int]) -> None:
        key = phase, batch.step
        if key in self._done:
            self.steps.append(self._done[key])
            return
        self.observer.on_step_begin(batch, phase)
        started = time.perf_counter()
        content = self._content(*key)
        finished = {group.sample_index for group in content.groups}
        await self.run.run(
            self._context(phase, batch.step),
            self._samples(phase, [index for index in indices if index not in finished]),
            num_generations=(
                self.plan.num_generations if phase == TRAIN else self.plan.test_num_generations
            ),
            then=Recorded(
                lambda finished: self._on_rollout(finished, content),
                lambda group: self._on_group(group, content),
            ),
        )
        if self.teacher is not None and phase == TRAIN:
            await self.teacher.ask(
                self.checks.take_lessons(),
                self.run.folder.event,
                advantages=task_advantages(content.groups),
                coefs=coefficients(self.plan.the_job),
            )
        duration_s = time.perf_counter() - started
        if phase == TEST:
            record = round_record(batch, content, duration_s=duration_s)
        else:
            record = step_record(batch, content, self._settings, duration_s=duration_s)
        self.run.folder.metrics({"step": batch.step, **record.metrics})
        self.run.folder.event("step", **record.to_json())
        del self._contents[key]
        self.steps.append(record)
        self.observer.on_step(record)
        if record.failure:
            self._fail(JobFailedError(f"step {batch.step}: {record.failure}"))

    def _context(self, phase: str, step: int) -> PluginContext:
        return self.plan.context.model_copy(
            update={
                "model_customization_job_id": self.job_id,
                "phase": phase,
                "current_training_step": step,
            }
        )

    def _samples(self, phase: str, indices: Iterable[int]) -> Iterator[SampleToRun]:
        read = self.plan.training_sample if phase == TRAIN else self.plan.validation_sample
        for index in indices:
            sample = read(index)
            self.checks.begin(sample)
            yield sample

    def _on_rollout(self, finished: FinishedRollout, content: StepContent) -> None:
        record = finished.record
        self._look_for_failure_of_rollout(record)
        self._count(finished, content)
        if record.verdict is Verdict.SUCCESS:
            problem = self.checks.check(finished)
            if problem is not None:
                self._fail(
                    JobFailedError(
                        f"{_when(record.phase, record.step)}: {problem.message}",
                        where=problem.where,
                        hint=problem.hint,
                    )
                )

    def _count(self, finished: FinishedRollout, content: StepContent) -> None:
        record = finished.record
        if record.verdict is not Verdict.SUCCESS:
            return
        content.num_trajectories += 1
        tokens = [turn.completion_tokens for turn in record.turns]
        known = [number for number in tokens if number is not None]
        if known and len(known) == len(tokens):
            content.num_tokens += sum(known)
            content.num_counted += 1
        content.num_critic_tokens += self.checks.critic_tokens(record)
        if record.phase == TRAIN:
            content.counted[record.trajectory_id] = self.checks.counted(finished)

    def _on_group(self, group: GroupRecord, content: StepContent) -> None:
        content.groups.append(group)
        self.checks.end(group)
        self._look_for_failure_of_group(group)

    def _look_for_failure_of_rollout(self, record: TrajectoryRecord) -> None:
        if record.verdict is Verdict.FAILURE:
            last = record.attempts[-1]
            self._fail(
                JobFailedError(
                    f"{_when(record.phase, record.step)}: rollout {record.trajectory_id} failed "
                    f"in each of {len(record.attempts)} attempts: {last.error or 'no error text'}",
                    where=last.where or "",
                )
            )

    def _look_for_failure_of_group(self, group: GroupRecord) -> None:
        if group.verdict is Verdict.FAILURE:
            bad = next((g for g in group.graders if g.error and g.weight != 0), None)
            by = f"grader {bad.name}: " if bad else ""
            self._fail(
                JobFailedError(
                    f"{_when(group.phase, group.step)}: sample {group.sample_index} cannot be "
                    f"graded: {by}{group.error or 'no error text'}",
                    where=(bad.where if bad else None) or "",
                )
            )

    def _fail(self, error: JobFailedError) -> None:
        """A job ends here (decision 1). Raises `error`, unless the run is to go on."""
        error.message = masked_text(error.message, secrets=self.plan.secrets)
        self.run.folder.event("job_failed", reason=error.message, where=error.where)
        if not self.plan.debug.keep_going:
            raise error
        self.failure = self.failure or error


def _when(phase: str, step: int | None) -> str:
    return f"step {step}" if phase == TRAIN else f"validation after step {step}"


def _first(group: BaseExceptionGroup[JobFailedError]) -> JobFailedError:
    inner: BaseException = group
    while isinstance(inner, BaseExceptionGroup):
        inner = inner.exceptions[0]
    assert isinstance(inner, JobFailedError)
    return inner
