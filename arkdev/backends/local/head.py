"""Logprobs of chosen tokens, without the logits of all of them in memory at once.

For a hidden state h, the head's matrix W and a temperature T, the logits are z = W h / T; of the
chosen token c this gives log p_c and the entropy H = −Σ p log p. The logits are made a chunk of
tokens at a time, and made again in the backward pass, where::

    ∂ log p_c / ∂z_v = [v = c] − p_v          ∂H / ∂z_v = −p_v (log p_v + H)

log-softmax is computed in float32, whatever the model's precision is. (Chunking as in Cut
Cross-Entropy, arXiv:2411.09009, and liger-kernel's fused losses.)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

_CHUNK_LOGITS = {"cpu": 1 << 22, "cuda": 1 << 27}
"""Logits of one chunk: 16 MB of float32, and 512 MB on a GPU; two such are in memory at once."""
_LEAST_CHUNK = 128
"""Tokens of a chunk, at least: the head's matrix is read once for each."""


_LEAST_LOG = -1e4
"""Where the logarithm of a probability that is 0 ends, so that 0 · log 0 is 0."""


def chosen_logprobs(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    *,
    targets: Tensor,
    temperature: float,
) -> tuple[Tensor, Tensor]:
    """Return the logprobs of the chosen tokens and the entropies, float32 ``[tokens]`` each.

    `hidden` is ``[tokens, size]``, `weight` ``[vocabulary, size]``, `bias` ``[vocabulary]``.
    Temperature 0 counts as 1, as in what the sampler tells (`arkdev.backends.local.engine`).
    """
    logprobs, entropy = _ChosenLogprobs.apply(hidden, weight, bias, targets, temperature or 1.0)
    return logprobs, entropy


class _ChosenLogprobs(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        temperature: float,
    ) -> tuple[Tensor, Tensor]:
        logprobs = torch.empty(len(targets), dtype=torch.float32, device=hidden.device)
        entropy = torch.empty_like(logprobs)
        head = weight.to(hidden.dtype)
        for chunk in _chunks(targets, vocabulary=len(head)):
            logs = _log_softmax(hidden[chunk], head, bias, temperature)
            logprobs[chunk] = logs.gather(1, targets[chunk, None])[:, 0]
            logs.clamp_min_(_LEAST_LOG)
            entropy[chunk] = -logs.exp().mul_(logs).sum(dim=1)
        ctx.save_for_backward(hidden, weight, bias, targets, entropy)
        ctx.temperature = temperature
        ctx.set_materialize_grads(False)
        return logprobs, entropy

    @staticmethod
    def backward(
        ctx: Any, grad_logprobs: Tensor | None, grad_entropy: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, targets, entropy = ctx.saved_tensors
        needs_hidden, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        head = weight.to(hidden.dtype)
        grad_hidden = torch.empty_like(hidden) if needs_hidden else None
        grad_weight = torch.zeros_like(weight) if needs_weight else None
        grad_bias = torch.zeros_like(bias) if needs_bias else None
        for chunk in _chunks(targets, vocabulary=len(head)):
            logs = _log_softmax(hidden[chunk], head, bias, ctx.temperature)
            grad = _grad_logits(
                logs,
                targets[chunk],
                entropy[chunk],
                of_logprobs=None if grad_logprobs is None else grad_logprobs[chunk],
                of_entropy=None if grad_entropy is None else grad_entropy[chunk],
            ).div_(ctx.temperature)
            if grad_bias is not None:
                grad_bias += grad.sum(dim=0)
            grad = grad.to(hidden.dtype)
            if grad_hidden is not None:
                grad_hidden[chunk] = grad @ head
            if grad_weight is not None:
                grad_weight += grad.T @ hidden[chunk]
        return grad_hidden, grad_weight, grad_bias, None, None


def _grad_logits(
    logs: Tensor,
    targets: Tensor,
    entropy: Tensor,
    *,
    of_logprobs: Tensor | None,
    of_entropy: Tensor | None,
) -> Tensor:
    """Return the gradient by the logits; `logs` is used up."""
    probabilities = logs.exp()
    if of_entropy is None:
        factors = torch.zeros_like(logs[:, :1])
    else:
        factors = logs.clamp_min_(_LEAST_LOG).add_(entropy[:, None]).mul_(of_entropy[:, None])
    if of_logprobs is None:
        return probabilities.mul_(factors).neg_()
    grad = probabilities.mul_(factors.add_(of_logprobs[:, None])).neg_()
    return grad.scatter_add_(1, targets[:, None], of_logprobs[:, None])


def _chunks(targets: Tensor, *, vocabulary: int) -> Iterator[slice]:
    logits = _CHUNK_LOGITS.get(targets.device.type, _CHUNK_LOGITS["cpu"])
    size = max(_LEAST_CHUNK, logits // vocabulary)
    for start in range(0, len(targets), size):
        yield slice(start, start + size)


def _log_softmax(hidden: Tensor, head: Tensor, bias: Tensor | None, temperature: float) -> Tensor:
    if hidden.is_cuda and hidden.dtype != torch.float32:
        logits = torch.mm(hidden, head.T, out_dtype=torch.float32)
    else:
        logits = hidden.float() @ head.float().T
    if bias is not None:
        logits += bias.float()
    return torch.log_softmax(logits.div_(temperature), dim=1)
