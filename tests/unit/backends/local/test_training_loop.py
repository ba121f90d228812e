"""The loop: who waits for whom, what is skipped, and what ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from arkdev.backends.local.alarms import OFF_POLICY_KL, OffPolicyAlarm
from arkdev.backends.local.batch import TrainingBatch, TrainingSequence
from arkdev.backends.local.train import VALIDATION_REWARD, LoopSettings, StepDone, train
from arkdev.errors import JobFailedError, PolicyEngineError


def sequence(*, advantage: float = 1.0, policy_version: int = 0) -> TrainingSequence:
    return TrainingSequence(
        trajectory_id="0/0.0",
        sample_index=0,
        token_ids=(1, 2),
        loss_mask=(False, True),
        rollout_logprobs=(0.0, -0.5),
        advantages=(0.0, advantage),
        token_weights=(0.0, 1.0),
        policy_version=policy_version,
    )


class Parts:
    """All four seams at once; `events` has what happened, in order."""

    name = "fake"

    def __init__(self, num_steps: int = 3, *, without_signal: tuple[int, ...] = ()) -> None:
        self.num_steps = num_steps
        self.events: list[str] = []
        self.policy_version = 0
        self.counters: dict[str, float] = {}
        self.engine_version = 0
        self.without_signal = without_signal
        self.scores: list[float | None] = []
        self.done: list[StepDone] = []
        self.rolling = asyncio.Event()

    async def training_batch(self, step: int) -> TrainingBatch:
        self.events.append(f"rollout {step} by {self.engine_version}")
        await asyncio.sleep(0)
        advantage = 0.0 if step in self.without_signal else 1.0
        one = sequence(advantage=advantage, policy_version=self.engine_version)
        return TrainingBatch(step, (one,))

    async def validation_round(self, step: int) -> Mapping[str, float] | None:
        if step % 2:
            return None
        self.events.append(f"test {step} by {self.engine_version}")
        return {VALIDATION_REWARD: step / 10}

    def weights(self) -> int:
        return self.policy_version

    def learns_from(self, batch: TrainingBatch) -> bool:
        return any(any(one.advantages) for one in batch.sequences)

    def learn(self, batch: TrainingBatch) -> Mapping[str, float]:
        self.events.append(f"update {batch.step}")
        self.policy_version += 1
        return {OFF_POLICY_KL: 0.0}

    async def check(self, engine: Any, batch: TrainingBatch) -> Mapping[str, float]:
        return {}

    def after_step(self, step: int, *, score: float | None, is_last: bool) -> None:
        self.events.append(f"save {step}{' last' if is_last else ''}")
        self.scores.append(score)

    async def run(self, *, engine: Any = None, **settings: Any) -> None:
        await train(
            self,
            self,
            engine or Engine(self),
            self,
            settings=LoopSettings(**settings),
            tell=self.done.append,
        )


class Engine:
    """Takes over what it is given, or not."""

    name = "fake"

    def __init__(self, parts: Parts, *, is_stuck: bool = False) -> None:
        self._parts = parts
        self._is_stuck = is_stuck

    @property
    def policy_version(self) -> int:
        return self._parts.engine_version

    async def update_weights(self, source: Any, *, version: int) -> None:
        if not self._is_stuck:
            self._parts.engine_version = version

    async def sleep(self) -> None:
        self._parts.events.append("sleep")

    async def wake(self) -> None:
        self._parts.events.append("wake")


async def test_without_a_lag_each_step_waits_for_update_validation_and_saving() -> None:
    parts = Parts()
    await parts.run()
    assert parts.events == [
        *("rollout 0 by 0", "sleep", "update 0", "wake", "test 0 by 1", "save 0"),
        *("rollout 1 by 1", "sleep", "update 1", "wake", "save 1"),
        *("rollout 2 by 2", "sleep", "update 2", "wake", "test 2 by 3", "save 2 last"),
    ]
    assert parts.scores == [0.0, None, 0.2]


@pytest.mark.parametrize("lag", [1, 2])
async def test_with_a_lag_of_k_a_batch_is_at_most_k_updates_old_and_none_is_left_out(
    lag: int,
) -> None:
    parts = Parts(8)
    await parts.run(policy_lag=lag)
    assert [done.batch.step for done in parts.done] == list(range(8))
    lags = [step - done.batch.sequences[0].policy_version for step, done in enumerate(parts.done)]
    assert max(lags) == lag
    assert "sleep" not in parts.events  # rollouts go on beside each update
    assert not any(done.warnings for done in parts.done)


async def test_a_batch_without_signal_is_told_and_changes_no_weights() -> None:
    parts = Parts(without_signal=(0, 1))
    await parts.run()
    assert [done.has_learned for done in parts.done] == [False, False, True]
    assert parts.policy_version == parts.engine_version == 1
    assert "update 0" not in parts.events


async def test_a_run_that_goes_on_begins_with_the_next_step() -> None:
    parts = Parts()
    await parts.run(first_step=2)
    assert parts.events[0] == "rollout 2 by 0"
    parts = Parts()
    await parts.run(first_step=3)
    assert parts.events == []


async def test_an_engine_that_does_not_take_the_weights_ends_the_run() -> None:
    parts = Parts()
    with pytest.raises(ExceptionGroup) as raised:
        await parts.run(engine=Engine(parts, is_stuck=True))
    [error] = raised.value.exceptions
    assert isinstance(error, PolicyEngineError)
    assert "samples with weights 0 after it was given 1" in str(error)


async def test_a_job_that_fails_in_rollouts_ahead_ends_what_is_under_way() -> None:
    class Failing(Parts):
        async def training_batch(self, step: int) -> TrainingBatch:
            if step == 2:
                raise JobFailedError("no")
            return await super().training_batch(step)

    parts = Failing()
    with pytest.raises(ExceptionGroup) as raised:
        await parts.run(policy_lag=2)
    assert raised.group_contains(JobFailedError)
    assert len(asyncio.all_tasks()) == 1


def test_the_alarm_measures_by_the_first_update_and_goes_on_after_a_resume() -> None:
    counters: dict[str, float] = {}
    alarm = OffPolicyAlarm(counters, policy_lag=0)
    assert alarm.on_update({OFF_POLICY_KL: 0.002}) == ()
    assert alarm.on_update({OFF_POLICY_KL: 0.009}) == ()
    [text] = OffPolicyAlarm(counters, policy_lag=0).on_update({OFF_POLICY_KL: 0.2})
    assert "is 0.2, and was 0.002 at the first update" in text
    assert OffPolicyAlarm(counters, policy_lag=1).on_update({OFF_POLICY_KL: 0.2}) == ()


def test_answers_of_older_weights_than_the_lag_allows_are_named() -> None:
    batch = TrainingBatch(5, (sequence(policy_version=3), sequence(policy_version=2)))
    assert OffPolicyAlarm({}, policy_lag=2).on_batch(batch, policy_version=4) == ()
    [text] = OffPolicyAlarm({}, policy_lag=1).on_batch(batch, policy_version=4)
    assert "step 5: answers of weights 2 are trained on at 4: policy_lag allows 1" in text
