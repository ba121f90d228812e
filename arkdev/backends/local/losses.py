"""What a token adds to the policy's loss, before its weight. (SURFACE OPD-13 to OPD-15)

With the ratio r = π / π_old of a sampled token, its advantage A, and the band [1 − low, 1 + high]::

    ppo_is   −min(r A, clip(r) A)          PPO's clipped objective (arXiv:1707.06347, equation 7;
                                           two bounds: DAPO, arXiv:2503.14476). TRL: GRPOTrainer;
                                           verl: ``compute_policy_loss_vanilla``, without dual clip
    mis_pg   −r A inside the band, else 0  masked importance sampling: the ratio is the weight of
                                           the policy gradient (∇r = r ∇log π), 0 outside
    tis_pg   −sg(clip(r)) A log π          truncated importance sampling: CISPO
                                           (MiniMax-M1, arXiv:2506.13585, equation 4)

sg: without gradient. Field case 4.5 has which tokens have a gradient of exactly 0: with ppo_is
those above the band for A > 0 and those below it for A < 0; with mis_pg all outside; with tis_pg
none. Such a token stays in the denominator of the mean: its weight was worked out before
(decision 22).

r is finite whatever π and π_old are: `bounded_exp` (verl cuts the logarithm at ±20 instead, which
also cuts off the gradient). A token whose weight is 0 counts as if r were 1, whatever its logprobs
are, also −inf or NaN, so that 0 times its loss is 0 and so is its gradient.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from arkdev.backends.local.kl import bounded_exp
from arkdev.backends.local.settings import PolicyLoss


@dataclass(frozen=True)
class Clip:
    """How far from 1 the ratio may go: from 1 − low to 1 + high."""

    low: float
    high: float


@dataclass(frozen=True)
class TokenLosses:
    """Of each token, ``[tokens]``."""

    losses: Tensor
    """float32, with gradient."""
    ratios: Tensor
    """Without gradient."""
    is_low: Tensor
    """Whether the band's lower bound changed its gradient (with tis_pg: its weight)."""
    is_high: Tensor
    """The upper bound."""


def without_masked(values: Tensor, weights: Tensor) -> Tensor:
    """Return float32 `values`, 0 where the weight is 0: no gradient passes there."""
    return torch.where(weights == 0, torch.zeros_like(values), values).float()


def policy_losses(
    logprobs: Tensor,
    old_logprobs: Tensor,
    *,
    advantages: Tensor,
    weights: Tensor,
    kind: PolicyLoss,
    clip: Clip,
) -> TokenLosses:
    """Return what each token adds, before its weight."""
    logprobs = without_masked(logprobs, weights)
    old_logprobs = without_masked(old_logprobs, weights).detach()
    advantages = without_masked(advantages, weights).detach()
    ratios = bounded_exp(logprobs - old_logprobs)
    is_low, is_high = ratios < 1 - clip.low, ratios > 1 + clip.high
    if kind is PolicyLoss.MIS_PG:
        losses = torch.where(is_low | is_high, torch.zeros_like(ratios), -ratios * advantages)
    elif kind is PolicyLoss.TIS_PG:
        losses = -ratios.detach().clamp(1 - clip.low, 1 + clip.high) * advantages * logprobs
    else:
        is_low, is_high = is_low & (advantages < 0), is_high & (advantages > 0)
        clipped = ratios.clamp(1 - clip.low, 1 + clip.high)
        losses = -torch.minimum(ratios * advantages, clipped * advantages)
    return TokenLosses(losses, ratios.detach(), is_low, is_high)
