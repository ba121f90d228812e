"""From groups to what a step is trained on: advantages and weights, token by token.

Plain Python. The advantages, the batch and the weights are those that a debug run shows: both come
from `arkdev.harness.batches`, `arkdev.harness.advantages` and `arkdev.harness.loss_weights`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from arkdev.backends.local.batch import TrainingBatch, TrainingSequence
from arkdev.errors import JobFailedError, PluginResultError
from arkdev.flows.debug_records import StepSettings
from arkdev.harness.advantages import Advantage, token_advantages
from arkdev.harness.batches import TrainingBatch as GroupBatch
from arkdev.harness.loss_weights import DEFAULT_MODE, token_weights
from arkdev.harness.rollouts import FinishedRollout
from arkdev.plugin.evidence import TokenEvidence
from arkdev.runs.records import TrajectoryRecord

_INCOMPLETE = "evidence_incomplete"


@dataclass(frozen=True)
class TrainableTokens:
    """The tokens of one trajectory, which sampled some of them."""

    trajectory_id: str
    evidence: TokenEvidence
    """Its weights are those in the loss: all 0 for an answer that is masked as a whole."""
    policy_version: int


def trainable_tokens(finished: FinishedRollout, trained: TokenEvidence | None) -> TrainableTokens:
    """Return the tokens of a trajectory; `trained` has the weights that they have in the loss.

    Raises `JobFailedError` where nothing of it can be trained on (field case 1.4), which names the
    sample and the call: better than a step that learns nothing.
    """
    record, sampled = finished.record, finished.evidence
    if (
        sampled is None
        or trained is None
        or not sampled.num_trainable
        or record.policy_version is None
    ):
        raise JobFailedError(
            f"no trainable tokens: trajectory {record.trajectory_id} (sample "
            f"{record.sample_index}), {_why(record, sampled)}",
            hint="training needs the tokens and log probabilities of each answer, from the policy "
            "itself: a rollout calls it through its proxy and keeps its answers as they are",
        )
    return TrainableTokens(record.trajectory_id, trained, record.policy_version)


def _why(record: TrajectoryRecord, sampled: TokenEvidence | None) -> str:
    if not record.turns:
        return "which made no model call"
    if sampled is None:
        warnings = (text for text in record.warnings if text.startswith(_INCOMPLETE))
        reason = next(warnings, "").partition(": ")[2]
        return reason or "call 1: the answer came without token ids"
    last = f"call {len(record.turns)}"
    if not sampled.num_trainable:
        return f"{last}: its history was rewritten, so that no token that was sampled is left"
    return f"{last}: nobody knows which weights answered"


def training_batch(
    groups: GroupBatch,
    tokens: Mapping[str, TrainableTokens],
    *,
    settings: StepSettings,
    metrics: Mapping[str, float],
    message: str,
) -> TrainingBatch:
    """Return the sequences of a step, in the order of its plan.

    A trajectory that is masked as a whole is in no sum and no mean, and is left out. Raises
    `JobFailedError` for advantages that do not fit the tokens.
    """
    members = [
        (group.sample_index, tokens[name], groups.advantages[name])
        for group in groups.groups
        for name in group.trajectory_ids
        if name in groups.advantages
    ]
    weights = token_weights(
        [own.evidence.loss_weight for _, own, _ in members],
        mode=settings.mode or DEFAULT_MODE,
        norm_tokens=settings.norm_tokens,
    )
    return TrainingBatch(
        step=groups.batch.step,
        sequences=tuple(
            _sequence(index, own, advantage, weight)
            for (index, own, advantage), weight in zip(members, weights, strict=True)
            if any(weight)
        ),
        metrics=metrics,
        message=message,
    )


def _sequence(
    sample_index: int, own: TrainableTokens, advantage: Advantage, weights: Sequence[float]
) -> TrainingSequence:
    evidence = own.evidence
    mask = tuple(weight > 0 for weight in evidence.loss_weight)
    try:
        advantages = token_advantages(advantage, loss_weight=evidence.loss_weight)
    except PluginResultError as error:
        raise JobFailedError(
            f"trajectory {own.trajectory_id}: {error.message}", hint=error.hint
        ) from None
    return TrainingSequence(
        trajectory_id=own.trajectory_id,
        sample_index=sample_index,
        token_ids=evidence.token_ids,
        loss_mask=mask,
        rollout_logprobs=tuple(
            logprob if is_trained else 0.0
            for logprob, is_trained in zip(evidence.logprobs, mask, strict=True)
        ),
        advantages=tuple(advantages),
        token_weights=tuple(weights),
        policy_version=own.policy_version,
    )
