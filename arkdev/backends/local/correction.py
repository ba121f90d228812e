"""What is done about a sampler that does not answer exactly as the trainer does.

Answers come from the sampler's distribution μ (`rollout_logprobs`), training takes them for samples
of the policy at the step's beginning, π_old (`old_logprobs`). Other kernels, another precision,
weights that lag behind (`policy_lag`) and a top-p below 1 make the two differ. Each token's loss is
multiplied by a weight without gradient, from w = π_old / μ::

    truncated   min(max(w, floor), cap)       TIS (Yao et al. 2025, fengyao.notion.site/
                                              off-policy-rl; Ionides 2008)
    masked      w if floor ≤ w ≤ cap else 0   MIS (IcePop; TRL: ``token_mask``)

TRL has both (``vllm_importance_sampling_mode``: token_truncate, token_mask), verl too (rollout
correction: token-level IS with ``rollout_is_threshold``, and rejection). A masked token stays in
the denominator of the mean, as in the losses (decision 22). The distance to the reference is not
weighted.
"""

from __future__ import annotations

import torch
from torch import Tensor

from arkdev.backends.local.kl import bounded_exp
from arkdev.backends.local.losses import without_masked
from arkdev.backends.local.settings import Correction


def correction_weights(
    old_logprobs: Tensor,
    rollout_logprobs: Tensor,
    *,
    weights: Tensor,
    kind: Correction,
    bounds: tuple[float, float],
) -> Tensor:
    """Return each token's weight, float32 without gradient; `bounds` are floor and cap.

    A token whose weight in the loss is 0 has 1, whatever its logprobs are.
    """
    difference = without_masked(old_logprobs, weights) - without_masked(rollout_logprobs, weights)
    ratios = bounded_exp(difference.detach())
    floor, cap = bounds
    if kind is Correction.TRUNCATED:
        return ratios.clamp(floor, cap)
    if kind is Correction.MASKED:
        return torch.where((ratios < floor) | (ratios > cap), torch.zeros_like(ratios), ratios)
    return torch.ones_like(ratios)
