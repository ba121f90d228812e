"""How much each token counts in the loss of a step, in plain Python (hyperparameter loss_agg_mode).

The loss of a step is the sum of weight × loss over the tokens that are trained on. With w_t the
loss weight of a token (0: masked), W_i the sum of w_t over sequence i, W their sum over the whole
step and S the number of sequences with W_i > 0, the weight of a token is::

    token-mean                w_t / W
    seq-mean-token-mean       w_t / (W_i S)
    seq-mean-token-sum        w_t / S
    seq-mean-token-sum-norm   w_t / (S C)      C: a constant, the same in every step

* The weights are worked out over the whole step, before it is split into micro-batches. A
  micro-batch then only adds up its part, so that no split can change loss or gradient
  (decision 22; field case 3.5).
* Numerator and denominator have the same mask: what is masked counts in neither, and a sequence
  that is masked as a whole is in no mean (field case 3.4). In a step that is masked as a whole all
  weights are 0, and so are loss and gradients.

`token-mean` gives every token the same weight, so a long answer weighs more than a short one;
`seq-mean-token-mean` gives every answer the same, so that a token of a long one weighs less. The
constant of Dr. GRPO (Liu et al. 2025, arXiv:2503.20783, section 3) takes the length of the answers
out of the loss; there it is the most tokens that an answer may have. The four names and their
meaning are those of verl's ``loss_agg_mode``, which the documents' name and its recommended value
are taken from (OPD-16).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum


class LossAggMode(StrEnum):
    """How the losses of a step's tokens become one number."""

    TOKEN_MEAN = "token-mean"
    SEQ_MEAN_TOKEN_MEAN = "seq-mean-token-mean"
    SEQ_MEAN_TOKEN_SUM = "seq-mean-token-sum"
    SEQ_MEAN_TOKEN_SUM_NORM = "seq-mean-token-sum-norm"


DEFAULT_MODE = LossAggMode.TOKEN_MEAN
"""The documents name no default; they recommend this one (decision 22)."""

_SMALLEST = 1e-300
"""What is divided by; below it 1 / x is no float."""


def sequence_scales(
    kept: Sequence[float], *, mode: LossAggMode, norm_tokens: int | None = None
) -> list[float]:
    """Return for each sequence of a step what the loss weights of its tokens are multiplied by.

    `kept` are the sums W_i, `norm_tokens` is C and needed by `seq-mean-token-sum-norm` alone. A
    sequence that is masked as a whole has 0. Raises `ValueError` without a C above 0 where one is
    needed, and for a sum that is negative or no finite number.

    >>> sequence_scales([5.0, 1.0, 0.0], mode=LossAggMode.SEQ_MEAN_TOKEN_MEAN)
    [0.1, 0.5, 0.0]
    """
    bad = next((size for size in kept if size and not _SMALLEST < size < math.inf), None)
    if bad is not None:
        raise ValueError(f"loss weights add up to {bad}; 0 or more is expected, and finite")
    if mode is LossAggMode.SEQ_MEAN_TOKEN_SUM_NORM and (norm_tokens is None or norm_tokens <= 0):
        raise ValueError(f"{mode} needs a constant number of tokens, not {norm_tokens}")
    num_sequences = sum(size > 0 for size in kept)
    if not num_sequences:
        return [0.0] * len(kept)
    of_all = 1 / math.fsum(kept) if mode is LossAggMode.TOKEN_MEAN else 1 / num_sequences
    if mode is LossAggMode.SEQ_MEAN_TOKEN_MEAN:
        return [of_all / size if size else 0.0 for size in kept]
    if mode is LossAggMode.SEQ_MEAN_TOKEN_SUM_NORM and norm_tokens is not None:
        of_all /= norm_tokens
    return [of_all if size else 0.0 for size in kept]


def token_weights(
    loss_weights: Sequence[Sequence[float]],
    *,
    mode: LossAggMode,
    norm_tokens: int | None = None,
) -> list[list[float]]:
    """Return the weight of each token of a step; `loss_weights` has a list for each sequence.

    Raises `ValueError` as `sequence_scales` does, and for a loss weight below 0.

    >>> token_weights([[0.0, 1.0, 1.0], [1.0, 0.0]], mode=LossAggMode.SEQ_MEAN_TOKEN_MEAN)
    [[0.0, 0.25, 0.25], [0.5, 0.0]]
    """
    for sequence in loss_weights:
        if any(not weight >= 0 for weight in sequence):
            raise ValueError("a loss weight is a number of 0 or more")
    scales = sequence_scales(
        [math.fsum(sequence) for sequence in loss_weights], mode=mode, norm_tokens=norm_tokens
    )
    return [
        [scale * weight for weight in sequence]
        for scale, sequence in zip(scales, loss_weights, strict=True)
    ]


def weighted_loss(losses: Sequence[Sequence[float]], weights: Sequence[Sequence[float]]) -> float:
    """Return the part of the loss that these sequences add: of a micro-batch, or of the step.

    A masked token adds exactly 0, whatever its loss is, also infinity and NaN.

    >>> weighted_loss([[2.0, 4.0], [float("nan"), 1.0]], [[0.5, 0.25], [0.0, 0.25]])
    2.25
    """
    return math.fsum(
        weight * loss
        for of_sequence, own in zip(losses, weights, strict=True)
        for loss, weight in zip(of_sequence, own, strict=True)
        if weight
    )
