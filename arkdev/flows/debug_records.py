"""What a step of a debug run, and a round on the validation set, came to: their records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from arkdev.errors import PluginResultError
from arkdev.flows.debug_plan import DebugPlan
from arkdev.harness.advantages import Advantage, group_advantages
from arkdev.harness.batches import TrainingBatch, compose_batch
from arkdev.harness.loss_shares import Member, loss_shares
from arkdev.harness.loss_weights import DEFAULT_MODE, LossAggMode
from arkdev.harness.sampling import DOCUMENTED_DEFAULTS
from arkdev.harness.steps import (
    CRITIC_TOKENS,
    Counted,
    StepContent,
    StepRecord,
    step_metrics,
    why_it_left,
)
from arkdev.job.batches import Batch
from arkdev.job.job import Job
from arkdev.job.methods import CustomizationType
from arkdev.runs.records import TEST, TRAIN, GroupRecord


@dataclass(frozen=True)
class StepSettings:
    """What of a job decides what a step's record says."""

    method: CustomizationType
    mode: LossAggMode | None = DEFAULT_MODE
    """None: the job's is none that arkdev knows."""
    norm_tokens: int | None = None
    counts_critic_tokens: bool = False
    """Whether a tokenizer counts what the critic is given; else it is estimated."""
    masks_truncated: bool = False
    """Whether answers that were cut at max_new_tokens are out of the loss."""
    filters_zero_variance: bool = False
    """Whether groups without a signal are out of the batch."""

    @classmethod
    def of(cls, plan: DebugPlan) -> StepSettings:
        """Return that of a plan."""
        job = plan.the_job
        return cls(
            job.customization_type,
            loss_mode(job),
            norm_tokens=most_answer_tokens(job),
            counts_critic_tokens=plan.tokenizer is not None,
            masks_truncated=bool(job.hyperparameters.get("mask_truncated")),
            filters_zero_variance=bool(job.hyperparameters.get("filter_zero_variance")),
        )

    def composed(self, batch: Batch, content: StepContent) -> TrainingBatch:
        """Return what of a step's groups is trained on. Raises what `compose_batch` raises."""
        composed = compose_batch(batch, content.groups)
        return composed.with_signal if self.filters_zero_variance else composed


def loss_mode(job: Job) -> LossAggMode | None:
    """Return the job's `loss_agg_mode`, or the default; None for one that arkdev does not know."""
    given = job.hyperparameters.get("loss_agg_mode", DEFAULT_MODE.value)
    return next((mode for mode in LossAggMode if mode.value == given), None)


def most_answer_tokens(job: Job) -> int:
    """Return the constant of `seq-mean-token-sum-norm`: the most tokens that an answer may have.

    Shares do not depend on it.
    """
    given = job.hyperparameters.get("max_new_tokens")
    return given if isinstance(given, int) else int(DOCUMENTED_DEFAULTS["max_new_tokens"])


def step_record(
    batch: Batch, content: StepContent, settings: StepSettings, *, duration_s: float
) -> StepRecord:
    """Return the record of a step of training."""
    metrics = step_metrics(content, phase=TRAIN, has_critic=settings.method.has_critic)
    estimated = settings.method.has_critic and not settings.counts_critic_tokens
    whole = StepRecord(
        step=batch.step,
        phase=TRAIN,
        epoch=batch.epoch,
        num_groups=len(batch.indices),
        num_kept=0,
        num_without_signal=None,
        dropped={},
        duration_s=duration_s,
        metrics=metrics,
        estimated=(f"{TRAIN}/{CRITIC_TOKENS}",) if estimated else (),
    )
    try:
        composed = compose_batch(batch, content.groups)
        trained = settings.composed(batch, content)
    except PluginResultError as error:
        return replace(whole, failure=f"{error.message} ({error.hint})")
    if settings.method.is_grpo:
        metrics = step_metrics(content, phase=TRAIN, advantages=composed.advantages.values())
    loss = None
    if settings.mode is not None and not trained.is_skipped:
        members = members_of(
            trained.groups,
            trained.advantages,
            counted=content.counted,
            is_learned_from=settings.method.is_grpo,
        )
        loss = loss_shares(members, mode=settings.mode, norm_tokens=settings.norm_tokens)
        metrics |= {f"{TRAIN}/{name}": value for name, value in loss.metrics().items()}
    return replace(
        whole,
        num_kept=len(composed.groups),
        num_without_signal=composed.num_without_signal if settings.method.is_grpo else None,
        dropped=_counted(composed.dropped.values()),
        metrics=metrics,
        message=_message(composed, is_grpo=settings.method.is_grpo),
        loss=loss,
    )


def members_of(
    groups: Iterable[GroupRecord],
    advantages: Mapping[str, Advantage],
    *,
    counted: Mapping[str, Counted],
    is_learned_from: bool,
) -> list[Member]:
    """Return the trajectories that are trained on, with their tokens.

    `is_learned_from`: the advantages are what is learned from, so that they say the signal.
    """
    members = []
    for group in groups:
        for name in group.trajectory_ids:
            if name in advantages:
                own = counted.get(name, Counted({}))
                advantage = advantages[name] if is_learned_from else None
                members.append(
                    Member(name, group.sample_index, own.counts, advantage, own.loss_weight)
                )
    return members


def task_advantages(groups: Iterable[GroupRecord]) -> dict[str, Advantage]:
    """Return the advantages that the rewards, or graders themselves, give the groups' members.

    Of a group to which two graders gave some there are none: the step fails for that.
    """
    found: dict[str, Advantage] = {}
    for group in groups:
        try:
            own = group_advantages(group)
        except PluginResultError:
            continue
        for name, advantage in zip(group.trajectory_ids, own, strict=True):
            if advantage is not None:
                found[name] = advantage
    return found


def round_record(batch: Batch, content: StepContent, *, duration_s: float) -> StepRecord:
    """Return the record of a round on the validation set."""
    dropped = [reason for group in content.groups if (reason := why_it_left(group))]
    return StepRecord(
        step=batch.step,
        phase=TEST,
        epoch=batch.epoch,
        num_groups=len(content.groups),
        num_kept=len(content.groups) - len(dropped),
        num_without_signal=None,
        dropped=_counted(dropped),
        duration_s=duration_s,
        metrics=step_metrics(content, phase=TEST),
    )


def _message(batch: TrainingBatch, *, is_grpo: bool) -> str:
    """What is to be said of a batch; that rewards are equal says nothing where a critic teaches."""
    if is_grpo or batch.is_skipped or batch.num_without_signal < len(batch.groups):
        return batch.message
    return ""


def _counted(reasons: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for reason in reasons:
        counts[reason] = counts.get(reason, 0) + 1
    return counts
