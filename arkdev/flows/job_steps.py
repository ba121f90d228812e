"""The steps of a job, as `debug` and `train` run them alike: rollouts, graders, checks, records.

One step::

    batch of samples → rollouts → graders → groups → batch → advantages → record

What else belongs to a step (a teacher's answers, an update of the policy) is the flow's own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from arkdev.errors import JobFailedError
from arkdev.flows.debug_checks import TrajectoryChecks
from arkdev.flows.debug_plan import DebugPlan
from arkdev.flows.debug_records import StepSettings, round_record, step_record
from arkdev.flows.recording import PluginTestObserver
from arkdev.flows.rollout_run import Recorded, RolloutRun
from arkdev.flows.training_runs import job_id_at
from arkdev.harness.rollouts import FinishedRollout, SampleToRun
from arkdev.harness.steps import StepContent, StepRecord
from arkdev.job.batches import Batch
from arkdev.plugin.evidence import TokenEvidence
from arkdev.runs.masking import masked_text
from arkdev.runs.reader import RunReader
from arkdev.runs.records import TEST, TRAIN, GroupRecord, TrajectoryRecord, Verdict
from arkdev.types import PluginContext

StepKey = tuple[str, int]
"""The phase and the step."""


class StepObserver(PluginTestObserver, Protocol):
    """Who is told of the steps of a job while they run."""

    def on_step_begin(self, batch: Batch, phase: str) -> None:
        """A step begins, or a round of validation after it."""
        ...

    def on_step(self, record: StepRecord) -> None:
        """It has ended and is on disk."""
        ...


@dataclass(frozen=True)
class RolledOut:
    """A step whose groups are done."""

    batch: Batch
    phase: str
    content: StepContent
    started: float
    """On the clock of `time.perf_counter`."""


def job_id_of(run: RunReader | RolloutRun) -> str:
    """Return the id that plugins are told: ``mcj-<time>-<rest>``, the same when a run goes on."""
    manifest = run.manifest if isinstance(run, RunReader) else run.folder.manifest
    return job_id_at(manifest.started_at)


class JobSteps:
    """Runs steps of a job and rounds on its validation set, and keeps their records.

    Methods raise `JobFailedError` where the job ends (decision 1), unless the run is to go on
    (``debug --keep-going``); then the first is `failure`.
    """

    def __init__(
        self,
        plan: DebugPlan,
        run: RolloutRun,
        observer: StepObserver,
        *,
        on_trained: Callable[[FinishedRollout, TokenEvidence | None], None] | None = None,
    ) -> None:
        """`on_trained` is told of each trajectory of a training step that succeeded, and of its
        tokens with the weights that they have in the loss."""
        self._on_trained = on_trained
        self.job_id = job_id_of(run)
        self.checks = TrajectoryChecks(plan, run.folder.event)
        self.records: list[StepRecord] = []
        self.failure: JobFailedError | None = None
        self._plan = plan
        self._run = run
        self._observer = observer
        self.settings = StepSettings.of(plan)
        self._contents: dict[StepKey, StepContent] = {}
        """Of the steps that are not done."""

    def content(self, phase: str, step: int) -> StepContent:
        """Return what a step that is not done has gathered so far."""
        return self._contents.setdefault((phase, step), StepContent())

    async def roll_out(self, batch: Batch, phase: str) -> RolledOut:
        """Run the rollouts and graders of a step, or of a round on the validation set."""
        plan = self._plan
        self._observer.on_step_begin(batch, phase)
        started = time.perf_counter()
        content = self.content(phase, batch.step)
        finished = {group.sample_index for group in content.groups}
        indices = batch.indices if phase == TRAIN else range(plan.num_validation)
        await self._run.run(
            self._context(phase, batch.step),
            self._samples(phase, [index for index in indices if index not in finished]),
            num_generations=(plan.num_generations if phase == TRAIN else plan.test_num_generations),
            then=Recorded(
                lambda finished: self._on_rollout(finished, content),
                lambda group: self._on_group(group, content),
            ),
        )
        return RolledOut(batch, phase, content, started)

    def record(self, step: RolledOut) -> StepRecord:
        """Return what a step came to."""
        duration_s = time.perf_counter() - step.started
        if step.phase == TEST:
            return round_record(step.batch, step.content, duration_s=duration_s)
        return step_record(step.batch, step.content, self.settings, duration_s=duration_s)

    def keep(self, record: StepRecord) -> None:
        """Write down and tell a step that is done. The job ends where its record says so."""
        self._run.folder.metrics({"step": record.step, **record.metrics})
        self._run.folder.event("step", **record.to_json())
        del self._contents[record.phase, record.step]
        self.records.append(record)
        self._observer.on_step(record)
        if record.failure:
            self.fail(JobFailedError(f"step {record.step}: {record.failure}"))

    def count(self, finished: FinishedRollout, content: StepContent) -> None:
        """Take a rollout into what its step has gathered."""
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
        content.num_truncated += is_truncated(record)
        if record.phase == TRAIN:
            trained = self._trained_on(finished)
            counted = self.checks.counted(replace(finished, evidence=trained))
            content.counted[record.trajectory_id] = counted
            if self._on_trained is not None:
                self._on_trained(finished, trained)

    def _trained_on(self, finished: FinishedRollout) -> TokenEvidence | None:
        """Return the tokens with the weights that they have in the loss."""
        evidence = finished.evidence
        if evidence is None or not (
            self.settings.masks_truncated and is_truncated(finished.record)
        ):
            return evidence
        return replace(evidence, loss_weight=(0.0,) * len(evidence.loss_weight))

    def look_at_rollout(self, record: TrajectoryRecord) -> None:
        """End the job for a rollout that failed for good."""
        if record.verdict is Verdict.FAILURE:
            last = record.attempts[-1]
            self.fail(
                JobFailedError(
                    f"{when(record.phase, record.step)}: rollout {record.trajectory_id} failed "
                    f"in each of {len(record.attempts)} attempts: {last.error or 'no error text'}",
                    where=last.where or "",
                )
            )

    def look_at_group(self, group: GroupRecord) -> None:
        """End the job for a group that cannot be graded."""
        if group.verdict is Verdict.FAILURE:
            bad = next((g for g in group.graders if g.error and g.weight != 0), None)
            by = f"grader {bad.name}: " if bad else ""
            self.fail(
                JobFailedError(
                    f"{when(group.phase, group.step)}: sample {group.sample_index} cannot be "
                    f"graded: {by}{group.error or 'no error text'}",
                    where=(bad.where if bad else None) or "",
                )
            )

    def fail(self, error: JobFailedError) -> None:
        """End the job (decision 1). Raises `error`, unless the run is to go on."""
        error.message = masked_text(error.message, secrets=self._plan.secrets)
        self._run.folder.event("job_failed", reason=error.message, where=error.where)
        if not self._plan.debug.keep_going:
            raise error
        self.failure = self.failure or error

    def _context(self, phase: str, step: int) -> PluginContext:
        return self._plan.context.model_copy(
            update={
                "model_customization_job_id": self.job_id,
                "phase": phase,
                "current_training_step": step,
            }
        )

    def _samples(self, phase: str, indices: Iterable[int]) -> Iterator[SampleToRun]:
        plan = self._plan
        read = plan.training_sample if phase == TRAIN else plan.validation_sample
        for index in indices:
            sample = read(index)
            self.checks.begin(sample)
            yield sample

    def _on_rollout(self, finished: FinishedRollout, content: StepContent) -> None:
        record = finished.record
        self.look_at_rollout(record)
        self.count(finished, content)
        if record.verdict is Verdict.SUCCESS:
            problem = self.checks.check(finished)
            if problem is not None:
                self.fail(
                    JobFailedError(
                        f"{when(record.phase, record.step)}: {problem.message}",
                        where=problem.where,
                        hint=problem.hint,
                    )
                )

    def _on_group(self, group: GroupRecord, content: StepContent) -> None:
        content.groups.append(group)
        self.checks.end(group)
        self.look_at_group(group)


def is_truncated(record: TrajectoryRecord) -> bool:
    """Whether an answer was cut at the most tokens that it may have."""
    return any(turn.finish_reason == "length" for turn in record.turns)


def records_of(reader: RunReader) -> Mapping[StepKey, StepRecord]:
    """Return the records of the steps that a run has done."""
    found = {}
    for event in reader.events():
        if event.get("kind") == "step":
            record = StepRecord.from_json(event)
            found[record.phase, record.step] = record
    return found


def with_more_metrics(record: StepRecord, more: Mapping[str, float]) -> StepRecord:
    """Return a record with metrics of what followed its rollouts."""
    return replace(record, metrics={**record.metrics, **more})


def when(phase: str, step: int | None) -> str:
    """``step 3``, or the round of validation after it."""
    return f"step {step}" if phase == TRAIN else f"validation after step {step}"


def first_failure(group: BaseExceptionGroup[JobFailedError]) -> JobFailedError:
    """Return the first error of a group of them."""
    inner: BaseException = group
    while isinstance(inner, BaseExceptionGroup):
        inner = inner.exceptions[0]
    assert isinstance(inner, JobFailedError)
    return inner
