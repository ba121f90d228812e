"""What a step's update came to, under one name each.

====================== =========================================================================
policy_loss            what the policy's losses add up to, mean of the iterations
ppo_kl                 mean of log π_old − log π: how far the iterations went (R3-10)
pg_clipfrac            share of the tokens whose ratio was clipped or masked (R3-11)
clip_fraction_low      ... at the lower bound, `clip_fraction_high` at the upper one
ratio_mean, ratio_max  of π / π_old
kl                     mean estimate of the distance to the reference (with `kl_coefficient`)
entropy                mean, in nats, where the trained tokens were sampled
rollout_off_policy_kl  mean of rollout_logprobs − old_logprobs (R3-08)
..._kl_k3              the k3 estimate of the same, never below 0 (R3-09)
logprob_gap_mean       mean of their absolute difference, `logprob_gap_max` the largest
correction_mean        mean weight of the correction; `correction_fraction`: the share of the
                       tokens that it cut or masked
grad_norm              before clipping, mean of the iterations
lr, num_updates        the learning rate; the optimizer's steps
sequences, tokens      that were trained on or measured; `trained_tokens`: those with a loss
computed_tokens        what one iteration computed: fewer than `tokens` where prefixes are shared
update_s               how long it took; `tokens_per_s`: tokens × iterations over that
====================== =========================================================================

Means are over the trained tokens, each counted once, whatever its weight in the loss. The first
iteration alone counts for what the iterations do not change (entropy, the sampler's distance).
verl's ``pg_clipfrac_lower`` counts its dual clip, which is not here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

from arkdev.backends.local.batch import TrainingBatch
from arkdev.backends.local.kl import kl_estimates
from arkdev.backends.local.losses import TokenLosses
from arkdev.backends.local.packing import MicroBatch
from arkdev.backends.local.settings import Correction, KLEstimator, UpdateSettings


class UpdateMetrics:
    """Adds up on the device and is read once, so that no pass waits for a number."""

    def __init__(self, batch: TrainingBatch, settings: UpdateSettings) -> None:
        self._num_sequences = len(batch.sequences)
        self._settings = settings
        self._sums: dict[str, list[Tensor]] = defaultdict(list)
        self._largest: dict[str, list[Tensor]] = defaultdict(list)
        self._num: dict[str, int] = defaultdict(int)
        self._norms: list[Tensor] = []

    def add_sampled(self, packed: MicroBatch, old_logprobs: Tensor, entropy: Tensor) -> None:
        """Note how the policy, not yet moved, compares with the sampler."""
        gap = packed.rollout_logprobs - old_logprobs
        self._add("entropy", entropy)
        self._add("rollout_off_policy_kl", gap)
        k3 = kl_estimates(packed.rollout_logprobs, old_logprobs, estimator=KLEstimator.K3)
        self._add("rollout_off_policy_kl_k3", k3)
        self._add("logprob_gap_mean", gap.abs())
        self._largest["logprob_gap_max"].append(gap.abs().max())

    def add_pass(
        self, packed: MicroBatch, of_policy: TokenLosses, losses: Tensor, correction: Tensor
    ) -> None:
        """Note the losses of one micro-batch in one iteration."""
        self._sums["policy_loss"].append((packed.weights * losses).sum())
        self._add("ratio_mean", of_policy.ratios)
        self._add("clip_fraction_low", of_policy.is_low.float())
        self._add("clip_fraction_high", of_policy.is_high.float())
        self._largest["ratio_max"].append(of_policy.ratios.max())
        self._add("correction_mean", correction)
        self._add("correction_fraction", self._is_cut(correction))

    def add_movement(self, movement: Tensor) -> None:
        """Note log π − log π_old."""
        self._add("ppo_kl", -movement)

    def add_kl(self, kl: Tensor) -> None:
        """Note the estimates of the distance to the reference."""
        self._add("kl", kl)

    def add_step(self, grad_norm: Tensor) -> None:
        """Note a step of the optimizer."""
        self._norms.append(grad_norm)

    def finish(
        self,
        passes: Sequence[MicroBatch],
        measured: Sequence[MicroBatch],
        *,
        lr: float,
        seconds: float,
    ) -> dict[str, float]:
        """Return the metrics. All are finite numbers; what was not measured is left out."""
        metrics = {
            name: float(torch.stack(sums).sum()) / max(1, self._num[name])
            for name, sums in self._sums.items()
        }
        iterations = max(1, len(self._norms))
        metrics["policy_loss"] = metrics.get("policy_loss", 0.0) / iterations
        metrics |= {name: float(torch.stack(of).max()) for name, of in self._largest.items()}
        if "clip_fraction_low" in metrics:
            metrics["pg_clipfrac"] = metrics["clip_fraction_low"] + metrics["clip_fraction_high"]
        metrics["grad_norm"] = float(sum(self._norms)) / iterations
        learnt = sum(packed.num_sequence_tokens for packed in passes)
        seen = sum(packed.num_sequence_tokens for packed in measured)
        everything = [*passes, *measured]
        return metrics | {
            "lr": lr,
            "num_updates": float(len(self._norms)),
            "sequences": float(self._num_sequences),
            "tokens": float(learnt + seen),
            "trained_tokens": float(sum(packed.num_trained for packed in everything)),
            "computed_tokens": float(sum(packed.num_tokens for packed in everything)),
            "update_s": seconds,
            "tokens_per_s": (learnt * iterations + seen) / seconds,
        }

    def _add(self, name: str, values: Tensor) -> None:
        self._sums[name].append(values.sum())
        self._num[name] += len(values)

    def _is_cut(self, correction: Tensor) -> Tensor:
        settings = self._settings
        if settings.correction is Correction.MASKED:
            return (correction == 0).float()
        floor, cap = settings.correction_floor, settings.correction_cap
        is_cut = (correction >= cap) | ((correction <= floor) & (correction > 0))
        return is_cut.float() * (settings.correction is Correction.TRUNCATED)
