"""From groups to the sequences of a step, on an example worked by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from arkdev.errors import JobFailedError
from arkdev.flows.debug_records import StepSettings
from arkdev.flows.train_batches import TrainableTokens, trainable_tokens, training_batch
from arkdev.harness.batches import compose_batch
from arkdev.harness.loss_weights import LossAggMode
from arkdev.harness.rollouts import FinishedRollout
from arkdev.job.batches import Batch
from arkdev.job.methods import CustomizationType
from arkdev.plugin.evidence import TokenEvidence
from arkdev.runs.records import Attempt, GroupRecord, TrajectoryRecord, TurnRecord, Verdict

BATCH = Batch(step=4, epoch=0, step_in_epoch=4, indices=(7, 3))
SETTINGS = StepSettings(CustomizationType.GRPO)
EVIDENCE = {
    "4/7.0": TokenEvidence((5, 6, 7, 8), (0.0, 0.0, 1.0, 1.0), (0.0, 0.0, -0.1, -0.2)),
    "4/7.1": TokenEvidence((5, 6, 9), (0.0, 0.0, 1.0), (0.0, 0.0, -0.3)),
    "4/3.0": TokenEvidence((5, 2), (0.0, 1.0), (0.0, -0.4)),
    "4/3.1": TokenEvidence((5, 2), (0.0, 1.0), (0.0, -0.4)),
}


def group(sample: int, *rewards: float | None) -> GroupRecord:
    names = tuple(f"4/{sample}.{number}" for number in range(len(rewards)))
    return GroupRecord(sample, Verdict.SUCCESS, names, rewards, step=4)


def tokens(evidence: dict[str, TokenEvidence] = EVIDENCE) -> dict[str, TrainableTokens]:
    return {name: TrainableTokens(name, own, 4) for name, own in evidence.items()}


def batch_of(*groups: GroupRecord, mode: LossAggMode = LossAggMode.TOKEN_MEAN, own=None):
    composed = compose_batch(BATCH, groups)
    settings = replace(SETTINGS, mode=mode)
    return training_batch(composed, own or tokens(), settings=settings, metrics={}, message="")


def test_tokens_have_the_advantage_of_their_trajectory_and_the_weight_of_the_step() -> None:
    """Rewards 1 and 0 have ±1/√2 (but for 1e-6); five tokens are trained on in all."""
    batch = batch_of(group(3, 0.5, 0.5), group(7, 1.0, 0.0))
    assert [s.trajectory_id for s in batch.sequences] == ["4/7.0", "4/7.1", "4/3.0", "4/3.1"]
    first, second, third, _ = batch.sequences
    half = math.sqrt(0.5)
    assert first.advantages == pytest.approx((0, 0, half, half), abs=1e-5)
    assert second.advantages == pytest.approx((0, 0, -half), abs=1e-5)
    assert third.advantages == (0, 0)
    assert first.token_weights == (0, 0, 1 / 5, 1 / 5)
    assert first.loss_mask == (False, False, True, True)
    assert first.rollout_logprobs == (0, 0, -0.1, -0.2)
    assert (batch.step, first.policy_version) == (4, 4)


def test_other_modes_weigh_by_the_whole_step_too() -> None:
    batch = batch_of(group(3, 0.5, 0.5), group(7, 1.0, 0.0), mode=LossAggMode.SEQ_MEAN_TOKEN_MEAN)
    assert batch.sequences[0].token_weights == (0, 0, 1 / 8, 1 / 8)
    assert batch.sequences[1].token_weights == (0, 0, 1 / 4)


def test_a_trajectory_that_is_masked_as_a_whole_is_left_out_and_counts_in_no_mean() -> None:
    masked = replace(EVIDENCE["4/7.0"], loss_weight=(0.0,) * 4)
    batch = batch_of(
        group(3, 0.5, 0.5), group(7, 1.0, 0.0), own=tokens({**EVIDENCE, "4/7.0": masked})
    )
    assert [s.trajectory_id for s in batch.sequences] == ["4/7.1", "4/3.0", "4/3.1"]
    assert batch.sequences[0].advantages[-1] == pytest.approx(-math.sqrt(0.5), abs=1e-5)
    assert batch.sequences[0].token_weights == (0, 0, 1 / 3)


def test_a_member_without_a_reward_is_in_no_batch() -> None:
    batch = batch_of(group(3, 0.5, None), group(7, 1.0, 0.0))
    assert [s.trajectory_id for s in batch.sequences] == ["4/7.0", "4/7.1", "4/3.0"]


def finished(**changes: object) -> FinishedRollout:
    record = TrajectoryRecord(
        "4/7.0",
        7,
        0,
        Verdict.SUCCESS,
        1.0,
        (Attempt(Verdict.SUCCESS, 1.0),),
        turns=(TurnRecord(0.0, 1.0), TurnRecord(1.0, 1.0)),
        policy_version=4,
        step=4,
    )
    return FinishedRollout(replace(record, **changes), evidence=EVIDENCE["4/7.0"])


@pytest.mark.parametrize(
    ("rollout", "reason"),
    [
        (replace(finished(), evidence=None), "call 1: the answer came without token ids"),
        (replace(finished(turns=()), evidence=None), "which made no model call"),
        (
            replace(finished(warnings=("evidence_incomplete: call 2: 9 of 20",)), evidence=None),
            "call 2: 9 of 20",
        ),
        (
            replace(finished(), evidence=replace(EVIDENCE["4/7.0"], loss_weight=(0.0,) * 4)),
            "call 2: its history was rewritten",
        ),
        (finished(policy_version=None), "call 2: nobody knows which weights answered"),
    ],
)
def test_what_cannot_be_trained_on_is_named_with_its_sample_and_call(
    rollout: FinishedRollout, reason: str
) -> None:
    with pytest.raises(JobFailedError) as raised:
        trainable_tokens(rollout, rollout.evidence)
    assert "no trainable tokens: trajectory 4/7.0 (sample 7)" in str(raised.value)
    assert reason in str(raised.value)


def test_what_can_be_trained_on_keeps_the_weights_of_the_loss() -> None:
    masked = replace(EVIDENCE["4/7.0"], loss_weight=(0.0,) * 4)
    own = trainable_tokens(finished(), masked)
    assert own.evidence == masked and own.policy_version == 4
