"""One step's update: a batch in, new weights and metrics out.

For each micro-batch (`packing`): logprobs of the trained tokens, their losses (`losses`), weights
for a sampler that differs (`correction`), the distance to the reference (`kl`), and the backward
pass. Gradients add up over the micro-batches; then they are clipped, and AdamW makes its step.

    loss = Σ token weight · (correction · policy loss + β · KL − entropy coefficient · entropy)

KL in the loss: GRPO (arXiv:2402.03300, equation 3). The entropy bonus: A3C (arXiv:1602.01783,
section 4). Gradients are cut to a norm as in arXiv:1211.5063 (section 3.2).

* *Old logprobs* are those of the policy before the step's first update. They are never computed on
  their own: in the first iteration the policy has not moved yet, so they are its logprobs,
  detached, and the ratio is exactly 1. Further iterations keep them.
* *A KL penalty in the reward* is subtracted from the advantages, token by token and without
  gradient: A − β · estimate(π_old, π_ref) (Ziegler et al. 2019, arXiv:1909.08593, equation 2, with
  k1). Both places use the same coefficient.
* *Sequences whose advantages are all 0* (a group with equal rewards) have a gradient of 0, unless
  KL or entropy count. They are only measured, without a backward pass.
* *Nothing to learn*: when no sequence is left, the optimizer makes no step, also not on its
  momentum. All metrics are finite then.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim import Optimizer

from arkdev.backends.local.batch import TrainingBatch, TrainingSequence
from arkdev.backends.local.correction import correction_weights
from arkdev.backends.local.kl import kl_estimates
from arkdev.backends.local.losses import Clip, policy_losses
from arkdev.backends.local.packing import MicroBatch
from arkdev.backends.local.policy import Policy
from arkdev.backends.local.settings import KLPlace, UpdateSettings, learning_rate
from arkdev.backends.local.update_metrics import UpdateMetrics
from arkdev.errors import JobFailedError


@dataclass(frozen=True)
class _Fixed:
    """What stays the same in all iterations over a micro-batch, ``[trained]`` each."""

    old_logprobs: Tensor
    advantages: Tensor
    correction: Tensor
    reference: Tensor | None


def update(
    policy: Policy, optimizer: Optimizer, batch: TrainingBatch, settings: UpdateSettings
) -> dict[str, float]:
    """Update the policy with a batch and return the metrics of `update_metrics`.

    Raises `JobFailedError` before the optimizer's step when a gradient is no finite number.
    """
    started = time.perf_counter()
    learning, quiet = _sort_out(batch.sequences, settings)
    most_tokens = settings.micro_batch_tokens or policy.tokens_of_a_pass()
    passes = policy.pack(learning, most_tokens=most_tokens)
    measured = policy.pack(quiet, most_tokens=most_tokens)
    metrics = UpdateMetrics(batch, settings)
    for packed in measured:
        _measure(policy, packed, settings, metrics)
    rate = learning_rate(batch.step, settings=settings)
    for group in optimizer.param_groups:
        group["lr"] = rate
    references = _references(policy, passes, settings)
    fixed: list[_Fixed] = []
    for iteration in range(settings.num_iterations_per_batch if passes else 0):
        optimizer.zero_grad(set_to_none=True)
        for index, packed in enumerate(passes):
            logprobs, entropy = policy.scores(packed, temperature=settings.temperature)
            if iteration == 0:
                fixed.append(_fix(packed, logprobs.detach(), references[index], settings))
                metrics.add_sampled(packed, fixed[index].old_logprobs, entropy.detach())
            loss = _loss(packed, logprobs, entropy, fixed[index], (settings, metrics))
            loss.backward()
        metrics.add_step(_step(policy, optimizer, batch=batch, settings=settings))
    return metrics.finish(passes, measured, lr=rate, seconds=time.perf_counter() - started)


def _sort_out(
    sequences: Sequence[TrainingSequence], settings: UpdateSettings
) -> tuple[list[TrainingSequence], list[TrainingSequence]]:
    """Return the sequences that have a gradient, and those that have none."""
    if settings.learns_without_advantages:
        return list(sequences), []
    learning = [sequence for sequence in sequences if any(sequence.advantages)]
    return learning, [sequence for sequence in sequences if not any(sequence.advantages)]


def _references(
    policy: Policy, passes: Sequence[MicroBatch], settings: UpdateSettings
) -> list[Tensor | None]:
    if not settings.kl_coefficient:
        return [None] * len(passes)
    return [policy.reference_logprobs(one, temperature=settings.temperature) for one in passes]


def _fix(
    packed: MicroBatch, old_logprobs: Tensor, reference: Tensor | None, settings: UpdateSettings
) -> _Fixed:
    """Work out what the iterations start from."""
    advantages = packed.advantages
    if reference is not None and settings.kl_place is KLPlace.REWARD:
        penalty = kl_estimates(old_logprobs, reference, estimator=settings.kl_estimator)
        advantages = advantages - settings.kl_coefficient * penalty
    correction = correction_weights(
        old_logprobs,
        packed.rollout_logprobs,
        weights=packed.weights,
        kind=settings.correction,
        bounds=(settings.correction_floor, settings.correction_cap),
    )
    return _Fixed(old_logprobs, advantages, correction, reference)


def _loss(
    packed: MicroBatch,
    logprobs: Tensor,
    entropy: Tensor,
    fixed: _Fixed,
    context: tuple[UpdateSettings, UpdateMetrics],
) -> Tensor:
    """Return a micro-batch's part of the loss and note its metrics."""
    settings, metrics = context
    of_policy = policy_losses(
        logprobs,
        fixed.old_logprobs,
        advantages=fixed.advantages,
        weights=packed.weights,
        kind=settings.policy_loss,
        clip=Clip(settings.clip_ratio_low, settings.clip_ratio_high),
    )
    losses = of_policy.losses * fixed.correction
    metrics.add_pass(packed, of_policy, losses.detach(), fixed.correction)
    metrics.add_movement(logprobs.detach() - fixed.old_logprobs)
    if fixed.reference is not None:
        kl = kl_estimates(logprobs, fixed.reference, estimator=settings.kl_estimator)
        metrics.add_kl(kl.detach())
        if settings.kl_place is KLPlace.LOSS:
            losses = losses + settings.kl_coefficient * kl
    if settings.entropy_coefficient:
        losses = losses - settings.entropy_coefficient * entropy
    return (packed.weights * losses).sum()


def _measure(
    policy: Policy, packed: MicroBatch, settings: UpdateSettings, metrics: UpdateMetrics
) -> None:
    """Note the metrics of a micro-batch that has nothing to learn."""
    with torch.no_grad():
        logprobs, entropy = policy.scores(packed, temperature=settings.temperature)
    metrics.add_sampled(packed, logprobs, entropy)


def _step(
    policy: Policy, optimizer: Optimizer, *, batch: TrainingBatch, settings: UpdateSettings
) -> Tensor:
    """Clip the gradients, let the optimizer make its step, and return their norm before that."""
    norm = torch.nn.utils.clip_grad_norm_(
        policy.trained_parameters().values(), settings.max_grad_norm
    )
    if not torch.isfinite(norm):
        optimizer.zero_grad(set_to_none=True)
        raise JobFailedError(
            f"a gradient of step {batch.step} is no finite number; that update was not made",
            hint="lower lr, or train in float32; `arkdev debug` shows the step's advantages",
        )
    optimizer.step()
    return norm
