"""`arkdev train`: a job trained on this machine, from its rollouts to its saved models.

The loop itself is `arkdev.backends.local.train`; here its parts are put together: the steps that
debug runs too (`arkdev.flows.job_steps`), the run folder, and what came of it all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from arkdev.backends.local.engine import GenerationEngine
from arkdev.backends.local.train import Learner, LoopSettings, Saving, train
from arkdev.endpoints.endpoint import Endpoint
from arkdev.errors import ArkdevError, ExitCode, JobFailedError, RunStoppedError
from arkdev.flows.injection import notes_on_effect
from arkdev.flows.job_steps import records_of
from arkdev.flows.metric_logging import logged_metrics
from arkdev.flows.rollout_run import Recorded, RolloutRun, rollout_run
from arkdev.flows.test_plugin import exit_code_of
from arkdev.flows.tracing import Tracing
from arkdev.flows.train_groups import JobGroups, TrainObserver
from arkdev.flows.train_plan import TrainPlan
from arkdev.flows.training_runs import begin_process, is_stop_asked
from arkdev.harness.statistics import RunStatistics
from arkdev.harness.steps import StepRecord
from arkdev.harness.summary import Summary
from arkdev.runs.reader import RunReader
from arkdev.runs.saved_models import SavedModels
from arkdev.sessions.retries import RetryPolicy


class RestorableSaving(Saving, Protocol):
    """What saves a run, and lets it go on (`arkdev.backends.local.saving`)."""

    def latest(self, problems: list[str]) -> Any:
        """Return the last whole state, None without one."""
        ...

    def restore(self, state: Any) -> int:
        """Put a state into the learner; return the steps done."""
        ...

    def drop_later(self, step: int) -> None:
        """Remove saved models of more steps than `step`, which are redone."""
        ...


class TrainingParts(Protocol):
    """What is trained (`arkdev.backends.local.opening`; tests have some without tensors)."""

    @property
    def endpoint(self) -> Endpoint:
        """The policy as plugins reach it."""
        ...

    @property
    def engine(self) -> GenerationEngine:
        """What samples from it."""
        ...

    @property
    def learner(self) -> Learner:
        """What updates it."""
        ...

    def saving(
        self, folder: Path, run_id: str, *, is_stop_asked: Callable[[], bool]
    ) -> RestorableSaving:
        """Return what saves the run in `folder`."""
        ...


OpenParts = Callable[[TrainPlan, Callable[[str], None]], AbstractAsyncContextManager[TrainingParts]]
"""Opens them for a plan; the second is told what takes its time."""


@dataclass(frozen=True)
class TrainOutcome:
    """What a training came to."""

    summary: Summary
    """Of the training steps."""
    validation: Summary | None
    steps: tuple[StepRecord, ...]
    job_id: str
    folder: Path
    exit_code: ExitCode
    failure: JobFailedError | None
    """Why the job ended before its last step."""
    was_stopped: bool
    """It was asked to, and can go on."""
    models: Mapping[str, Path]
    """Folders of the saved models that have a name: ``best`` and ``last``."""
    warnings: tuple[str, ...]
    judge_calls: int
    notes: tuple[str, ...] = ()
    tracing: Tracing | None = None


async def run_train(
    plan: TrainPlan,
    observer: TrainObserver,
    *,
    retries: RetryPolicy | None = None,
    open_parts: OpenParts | None = None,
) -> TrainOutcome:
    """Train a job. That it fails is in the outcome, not an exception.

    Raises what `rollout_run` raises, `PolicyEngineError`, and `OutputError` when a model or a
    checkpoint cannot be saved.
    """
    validation = RunStatistics(plan.test_num_generations, success_threshold=plan.success_threshold)
    async with (open_parts or opened_parts)(plan, observer.on_progress) as parts:
        saving, first_step = None, 0
        if plan.resumed is not None:
            saving, first_step, notes = _restored(plan, parts)
            plan = replace(plan, resumed_step=first_step, notes=(*plan.notes, *notes))
        async with rollout_run(
            plan, observer, retries=retries, validation=validation, endpoint=parts.endpoint
        ) as run:
            async with logged_metrics(plan, run, observer) as log:
                groups = JobGroups(plan, run, observer, log=log)
                training = _Training(plan, run, parts, groups)
                if saving is not None:
                    training.take_over(saving, first_step=first_step)
                await training.run(saving, first_step=first_step)
            return await training.outcome(validation)


def _restored(
    plan: TrainPlan, parts: TrainingParts
) -> tuple[RestorableSaving, int, tuple[str, ...]]:
    assert plan.resumed is not None
    run_id = RunReader(plan.resumed).manifest.run_id
    saving = _saving(parts, plan.resumed, run_id)
    problems: list[str] = []
    first_step = saving.restore(saving.latest(problems))
    begins = f"{first_step} of {len(plan.steps)} steps are done and kept"
    return saving, first_step, (*problems, f"going on with run {run_id}: {begins}")


@dataclass
class _Training:
    """One run of the loop."""

    plan: TrainPlan
    folder: RolloutRun
    parts: TrainingParts
    groups: JobGroups
    failure: JobFailedError | None = None
    was_stopped: bool = False

    def take_over(self, saving: RestorableSaving, *, first_step: int) -> None:
        """Count what earlier parts of the run have done, and forget what is redone."""
        saving.drop_later(first_step)
        reader = RunReader(self.folder.folder.folder)
        self.groups.steps.records.extend(records_of(reader).values())
        for event in reader.events():
            self.groups.steps.checks.recall(event)
        self.folder.take_over(Recorded())

    async def run(self, saving: Saving | None, *, first_step: int) -> None:
        """Train to the end, or to where the job fails or is stopped."""
        writer, parts = self.folder.folder, self.parts
        begin_process(writer.folder, output=self.plan.train.output)
        if saving is None:
            saving = _saving(parts, writer.folder, writer.run_id)
        version = parts.learner.policy_version
        await parts.engine.update_weights(parts.learner.weights(), version=version)
        settings = LoopSettings(first_step=first_step, policy_lag=self.plan.policy_lag)
        try:
            await train(
                self.groups,
                parts.learner,
                parts.engine,
                saving,
                settings=settings,
                tell=self.groups.on_step_done,
            )
        except BaseExceptionGroup as group:
            error = _first_known(group)
            if isinstance(error, JobFailedError):
                self.failure = error
            elif isinstance(error, RunStoppedError):
                self.was_stopped = True
            else:
                raise error from None

    async def outcome(self, validation: RunStatistics) -> TrainOutcome:
        """Sum up and write down."""
        steps, run = self.groups.steps, self.folder
        rounds = validation.summary()
        has_rounds = rounds.num_rollouts > 0
        warnings = (*steps.checks.warnings(), *self.groups.warnings)
        status = "failed" if self.failure else "stopped" if self.was_stopped else "finished"
        more = {
            "steps": [step.to_json() for step in steps.records],
            "validation": rounds.to_json() if has_rounds else None,
            "failure": str(self.failure) if self.failure else None,
            "warnings": list(warnings),
            "job_id": steps.job_id,
        }
        summary = await run.finish(status, more=more)
        return TrainOutcome(
            summary=summary,
            validation=rounds if has_rounds else None,
            steps=tuple(steps.records),
            job_id=steps.job_id,
            folder=run.folder.folder,
            exit_code=self._exit_code(summary),
            failure=self.failure,
            was_stopped=self.was_stopped,
            models=named_models(run.folder.folder, run.folder.run_id),
            warnings=warnings,
            judge_calls=run.num_judge_calls,
            notes=notes_on_effect(self.plan),
            tracing=run.tracing,
        )

    def _exit_code(self, summary: Summary) -> ExitCode:
        code = exit_code_of(summary, request=self.plan.request)
        if code is ExitCode.UNREACHABLE:
            return code
        if self.failure is not None:
            return ExitCode.JOB_FAILED
        if self.was_stopped:
            return ExitCode.INTERRUPTED
        if code is ExitCode.OK and self.groups.steps.checks.num_leaks:
            return ExitCode.SOME_FAILED
        return code


def named_models(folder: Path, run_id: str) -> dict[str, Path]:
    """Return the folders of the best and the last model that a run has saved."""
    saved = SavedModels(folder, run_id=run_id)
    best, everything = saved.best(), saved.all()
    found = {"best": best.folder} if best is not None else {}
    return {**found, "last": everything[0].folder} if everything else found


def _first_known(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error that ended the run: the others only followed from it."""
    known, _ = group.split(ArkdevError)
    inner: BaseException = known or group
    while isinstance(inner, BaseExceptionGroup):
        inner = inner.exceptions[0]
    return inner


def _saving(parts: TrainingParts, folder: Path, run_id: str) -> RestorableSaving:
    return parts.saving(folder, run_id, is_stop_asked=lambda: is_stop_asked(folder))


def opened_parts(
    plan: TrainPlan, say: Callable[[str], None]
) -> AbstractAsyncContextManager[TrainingParts]:
    """Load the policy of a plan and open its engine: here torch is imported."""
    say(f"loading torch and {plan.model.name}, which takes some seconds")
    opening: Any = import_module("arkdev.backends.local.opening")
    model = opening.TrainingModel(
        files=plan.model,
        engine=plan.engine,
        update=plan.update,
        lora=plan.lora,
        save_every_n_steps=plan.the_job.hyperparameters.get("save_every_n_steps"),
        save_model_limit=plan.the_job.config.save_model_limit,
        seed=plan.request.seed or 0,
        is_deterministic=plan.is_deterministic,
        num_running=plan.concurrency,
        log=plan.workspace.root / "runs" / "vllm.log",
        vllm_python=plan.train.vllm_python,
    )
    parts: AbstractAsyncContextManager[TrainingParts] = opening.opened(model, say=say)
    return parts
