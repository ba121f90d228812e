"""GRPO on this machine: a training run on one page.

Which GRPO: advantages are those of the documents, a reward's distance from its group's mean over
the sample standard deviation + 1e-6, or a grader's own (`arkdev.harness.advantages`; ADV-02..05).
Every token of an answer has its trajectory's, and a weight by ``loss_agg_mode`` over the whole step
(`arkdev.harness.loss_weights`). The update is PPO's clipped surrogate with one bound for each side,
with a KL to the model that training began with, entropy and a correction for a sampler that differs
from the trainer where they are asked for (`arkdev.backends.local.update`). There is no critic.

::

    for each step:
        batch    = groups of the policy as it is now           (GroupSource: rollouts and graders)
        update   = num_iterations_per_batch updates of the batch, while the engine
                   sleeps: it may be on the same device                        (Learner, engine)
        sync     = the new weights sample from now on, and it is checked that they do     (engine)
        validate   when it is due                                                    (GroupSource)
        save       when it is due                                                         (Saving)

With ``policy_lag`` 0 the weights that answer are those of the step before. With k, rollouts go on
while the policy is updated, so the engine never sleeps, and a batch may come from weights that are
up to k updates old.

Plain Python: what has tensors is behind the seams, so that the loop can be tested without torch.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from arkdev.backends.local.alarms import OffPolicyAlarm
from arkdev.backends.local.batch import TrainingBatch
from arkdev.backends.local.engine import GenerationEngine
from arkdev.backends.local.group_source import GroupSource
from arkdev.errors import PolicyEngineError

VALIDATION_REWARD = "test/reward->final_reward.mean"
"""What the best model is chosen by (OBS-11)."""


class Learner(Protocol):
    """The policy and its optimizer. Its methods block: each is called in a thread, one at a time.

    The implementation is `arkdev.backends.local.learner`; tests have one without tensors.
    """

    policy_version: int
    """Batches that the policy has learned from."""
    counters: dict[str, float]
    """What of earlier steps later ones count on. A checkpoint keeps it."""

    def weights(self) -> Any:
        """Return what `GenerationEngine.update_weights` takes."""
        ...

    def learns_from(self, batch: TrainingBatch) -> bool:
        """Whether the loss of a batch depends on the policy at all."""
        ...

    def learn(self, batch: TrainingBatch) -> Mapping[str, float]:
        """Update the policy; return metrics by names without a phase."""
        ...

    async def check(self, engine: GenerationEngine, batch: TrainingBatch) -> Mapping[str, float]:
        """Compare the sampler's log probabilities with the trainer's on some of a batch.

        Returns metrics. Raises `PolicyEngineError` when they are of other weights.
        """
        ...


class Saving(Protocol):
    """What is kept of a run. It raises `OutputError` when the disk refuses, and `RunStoppedError`
    once a run that is asked to stop is saved."""

    def after_step(self, step: int, *, score: float | None, is_last: bool) -> None:
        """Save what is due after a step; `score` is that of the validation after it, if any."""
        ...


@dataclass(frozen=True)
class LoopSettings:
    """How the loop runs."""

    first_step: int = 0
    """Above 0: the run goes on after so many steps."""
    policy_lag: int = 0


@dataclass(frozen=True)
class StepDone:
    """What a step of training came to, before the validation after it."""

    batch: TrainingBatch
    has_learned: bool
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Of the update, by names without a phase."""
    warnings: tuple[str, ...] = ()
    times: Mapping[str, float] = field(default_factory=dict)
    """Seconds: ``wait`` (for the batch), ``update``, ``sync``."""


async def train(
    source: GroupSource,
    learner: Learner,
    engine: GenerationEngine,
    saving: Saving,
    *,
    settings: LoopSettings,
    tell: Callable[[StepDone], None],
) -> None:
    """Train from `settings.first_step` to the end of the job; `tell` is told of each step.

    Raises what the seams raise, and `PolicyEngineError` when the sampler does not answer with the
    new weights; inside a group of exceptions, since rollouts are a task of their own.
    """
    alarm = OffPolicyAlarm(learner.counters, policy_lag=settings.policy_lag)
    async with _rolled_out(source, settings) as batches:
        clock = _Clock()
        async for batch in batches:
            clock.lap("wait")
            if learner.learns_from(batch):
                warnings = alarm.on_batch(batch, policy_version=learner.policy_version)
                async with _asleep(engine, settings):
                    metrics = dict(await asyncio.to_thread(learner.learn, batch))
                clock.lap("update")
                warnings += alarm.on_update(metrics)
                metrics |= await _sync(learner, engine, batch)
                clock.lap("sync")
                tell(StepDone(batch, True, metrics, warnings, clock.times))
            else:
                tell(StepDone(batch, False, times=clock.times))
            validation = await source.validation_round(batch.step) or {}
            await asyncio.to_thread(
                saving.after_step,
                batch.step,
                score=validation.get(VALIDATION_REWARD),
                is_last=batch.step == source.num_steps - 1,
            )
            clock = _Clock()


@asynccontextmanager
async def _asleep(engine: GenerationEngine, settings: LoopSettings) -> AsyncIterator[None]:
    """Let the engine sleep during the block, unless rollouts go on beside it."""
    if settings.policy_lag:
        yield
        return
    await engine.sleep()
    yield
    await engine.wake()


async def _sync(
    learner: Learner, engine: GenerationEngine, batch: TrainingBatch
) -> Mapping[str, float]:
    """Let the new weights sample, and check that they do."""
    version = learner.policy_version
    await engine.update_weights(await asyncio.to_thread(learner.weights), version=version)
    if engine.policy_version != version:
        raise PolicyEngineError(
            f"step {batch.step}: the engine {engine.name} samples with weights "
            f"{engine.policy_version} after it was given {version}",
            hint="train with another engine (--engine)",
        )
    return await learner.check(engine, batch)


@asynccontextmanager
async def _rolled_out(
    source: GroupSource, settings: LoopSettings
) -> AsyncIterator[AsyncIterator[TrainingBatch]]:
    """Yield the batches of the steps, made at most `policy_lag` steps ahead of the one in training.

    A batch's successor is asked for when its step is over: so room for one batch is none ahead.
    """
    room = asyncio.Semaphore(settings.policy_lag + 1)
    done: asyncio.Queue[TrainingBatch | None] = asyncio.Queue()

    async def roll_out() -> None:
        for step in range(settings.first_step, source.num_steps):
            await room.acquire()
            done.put_nowait(await source.training_batch(step))
        done.put_nowait(None)

    async def batches() -> AsyncGenerator[TrainingBatch]:
        while (batch := await done.get()) is not None:
            yield batch
            room.release()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(roll_out(), name="rollouts of the steps to come")
        async with aclosing(batches()) as each:
            yield each


class _Clock:
    """Seconds between laps."""

    def __init__(self) -> None:
        self.times: dict[str, float] = {}
        self._since = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.times[name] = now - self._since
        self._since = now
