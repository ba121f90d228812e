"""Where a training's batches come from: the steps that debug runs run too, with their tokens.

Implements `arkdev.backends.local.group_source.GroupSource`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from arkdev.backends.local.batch import TrainingBatch
from arkdev.backends.local.train import StepDone
from arkdev.errors import JobFailedError
from arkdev.flows.job_steps import JobSteps, StepObserver
from arkdev.flows.rollout_run import RolloutRun
from arkdev.flows.train_batches import TrainableTokens, trainable_tokens, training_batch
from arkdev.flows.train_plan import TrainPlan
from arkdev.harness.rollouts import FinishedRollout
from arkdev.harness.steps import StepRecord
from arkdev.plugin.evidence import TokenEvidence
from arkdev.runs.records import TEST, TRAIN, step_of_id

_NOT_LEARNED = "no update is made"


class TrainObserver(StepObserver, Protocol):
    """Who is told of a training while it runs."""


@dataclass
class _Open:
    """A step that is rolled out and not trained on yet."""

    tokens: dict[str, TrainableTokens] = field(default_factory=dict)
    rolled_out_at: float = 0.0
    """When its last rollout ended, on the clock of `time.perf_counter`."""
    record: StepRecord | None = None


class JobGroups:
    """The steps of a job as batches to train on, and what became of each."""

    def __init__(
        self,
        plan: TrainPlan,
        run: RolloutRun,
        observer: TrainObserver,
        *,
        log: Callable[[StepRecord], None] = lambda _: None,
    ) -> None:
        """`log` is told of each step, and round of validation, when it is done."""
        self.num_steps = len(plan.steps)
        self.steps = JobSteps(plan, run, observer, on_trained=self._take)
        self.warnings: list[str] = []
        self._plan = plan
        self._run = run
        self._log = log
        self._warn: Callable[[str], None] = observer.on_warning
        self._open: dict[int, _Open] = {}

    async def training_batch(self, step: int) -> TrainingBatch:
        """See `GroupSource`."""
        batch = self._plan.steps.batch(step)
        own = self._open[step] = _Open()
        rolled = await self.steps.roll_out(batch, TRAIN)
        record = self.steps.record(rolled)
        if record.failure:
            self.steps.keep(record)  # raises
        graded_s = time.perf_counter() - own.rolled_out_at if own.rolled_out_at else 0.0
        own.record = replace(record, metrics={**record.metrics, **self._times(record, graded_s)})
        try:
            return training_batch(
                self.steps.settings.composed(batch, rolled.content),
                own.tokens,
                settings=self.steps.settings,
                metrics=own.record.metrics,
                message=record.message,
            )
        except JobFailedError as error:
            self.steps.fail(error)
            raise

    async def validation_round(self, step: int) -> Mapping[str, float] | None:
        """See `GroupSource`."""
        if not self._plan.is_round_after(step):
            return None
        rolled = await self.steps.roll_out(self._plan.steps.batch(step), TEST)
        record = self.steps.record(rolled)
        self._log(record)
        self.steps.keep(record)
        return record.metrics

    def on_step_done(self, done: StepDone) -> None:
        """Write down a step with what its update came to."""
        record = self._open.pop(done.batch.step).record
        assert record is not None
        names = {f"{TRAIN}/{name}": value for name, value in done.metrics.items()}
        times = {f"time/{name}_s": seconds for name, seconds in done.times.items()}
        message = record.message
        if not done.has_learned:
            why = message or f"step {record.step} has nothing to learn from"
            message = f"{why}: {_NOT_LEARNED}"
        for text in done.warnings:
            self.warnings.append(text)
            self._run.folder.event("warning", step=record.step, text=text)
            self._warn(text)
        whole = replace(record, metrics={**record.metrics, **names, **times}, message=message)
        self._log(whole)
        self.steps.keep(whole)

    def _take(self, finished: FinishedRollout, trained: TokenEvidence | None) -> None:
        name = finished.record.trajectory_id
        step = step_of_id(name)[1]
        assert step is not None
        own = self._open[step]
        own.rolled_out_at = time.perf_counter()
        try:
            own.tokens[name] = trainable_tokens(finished, trained)
        except JobFailedError as error:
            self.steps.fail(error)

    def _times(self, record: StepRecord, graded_s: float) -> dict[str, float]:
        """Grading goes on beside rollouts; what is told is what came after the last of them."""
        rollout_s = record.duration_s - graded_s
        sampled = record.metrics.get(f"{TRAIN}/completion_tokens.mean", 0.0)
        num_tokens = sampled * record.metrics.get(f"{TRAIN}/trajectories", 0.0)
        return {
            "time/rollout_s": rollout_s,
            "time/grade_s": graded_s,
            "rollout_tokens_per_s": num_tokens / rollout_s if rollout_s > 0 else 0.0,
        }
