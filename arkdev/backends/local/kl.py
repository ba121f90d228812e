"""Estimates of how far the policy π is from the reference π_ref, from the sampled tokens alone.

With d = log π_ref − log π of a sampled token (Schulman 2020, joschu.net/blog/kl-approx.html)::

    k1 = −d            k2 = d² / 2            k3 = exp(d) − 1 − d

The mean of k1 and of k3 over samples of π is KL(π ‖ π_ref), k3 with far less variance and never
below 0; k2 is biased a little. As a part of a *loss*, what counts is the gradient: that of k2 has
the KL's gradient as its mean; that of k3 comes close to it while the policies are close; that of
k1, which is the gradient of log π, has mean 0 and pulls nowhere. In the *reward* (subtracted from
the advantages, without gradient) k1 is right.

The names and forms are those of TRL (k3: GRPOTrainer), OpenRLHF (``compute_approx_kl``) and verl
(``kl_penalty``: kl/k1, mse/k2, low_var_kl/k3). These differ in what they do about overflow: TRL
nothing, verl cuts d at ±20 and k3 at 10, which also cuts the gradient off where the policy is
farthest away. Here k3 is exact up to d = 20 and goes on in a straight line from there, with the
slope that it has there (field case 4.2).
"""

from __future__ import annotations

import torch
from torch import Tensor

from arkdev.backends.local.settings import KLEstimator

LARGEST_EXPONENT = 20.0
"""Where exponentials become straight lines; exp(20) is 4.9e8."""


def bounded_exp(exponent: Tensor) -> Tensor:
    """Return exp(x), and for x above `LARGEST_EXPONENT` the tangent there: finite, with a slope."""
    bounded = exponent.clamp(max=LARGEST_EXPONENT)
    return bounded.exp() * (1 + exponent - bounded)


def kl_estimates(logprobs: Tensor, reference: Tensor, *, estimator: KLEstimator) -> Tensor:
    """Return an estimate for each token, float32, with the gradient of its formula."""
    difference = reference.float() - logprobs.float()
    if estimator is KLEstimator.K1:
        return -difference
    if estimator is KLEstimator.K2:
        return difference.square() / 2
    # where the policies are close, exp(d) − 1 keeps what exp(d) rounds away
    small = torch.expm1(difference.clamp(max=LARGEST_EXPONENT)) - difference
    return torch.where(
        difference <= LARGEST_EXPONENT, small, bounded_exp(difference) - 1 - difference
    )
