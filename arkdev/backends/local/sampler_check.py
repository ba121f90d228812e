"""Whether the sampler's weights answer as the trainer's do (field case 8.3).

A sampler that went on with old weights, or old cached prefixes, still gives fluent answers: only
its logprobs tell. After each change of weights a few sequences are scored by both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from arkdev.backends.local.batch import TrainingSequence
from arkdev.backends.local.engine import GenerationEngine
from arkdev.backends.local.policy import Policy
from arkdev.errors import JobFailedError, PolicyEngineError

_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 5e-2}
"""The mean gap that other kernels may come to, in nats."""


@dataclass(frozen=True)
class SamplerGap:
    """How far the sampler's logprobs are from the trainer's, in nats."""

    mean: float
    largest: float
    num_tokens: int


async def sampler_gap(
    policy: Policy,
    engine: GenerationEngine,
    sequences: Sequence[Sequence[int]],
    *,
    temperature: float = 1.0,
) -> SamplerGap:
    """Score some sequences of token ids by both and compare all tokens but the first of each."""
    gaps: list[float] = []
    for token_ids in sequences:
        if len(token_ids) < 2:
            continue
        theirs = await engine.score(token_ids, temperature=temperature)
        ours = _trainer_logprobs(policy, token_ids, temperature)
        for whose, logprobs in (("the trainer", ours), (f"engine {engine.name}", theirs)):
            if not all(map(math.isfinite, logprobs)):
                raise JobFailedError(
                    f"with the new weights {whose} gives log probabilities that are no finite "
                    "numbers: training has diverged",
                    hint="lower lr; the checkpoints before this step are whole",
                )
        gaps.extend(abs(a - b) for a, b in zip(ours, theirs, strict=True))
    return SamplerGap(
        mean=sum(gaps) / len(gaps) if gaps else 0.0,
        largest=max(gaps, default=0.0),
        num_tokens=len(gaps),
    )


async def require_same_weights(
    policy: Policy,
    engine: GenerationEngine,
    sequences: Sequence[Sequence[int]],
    *,
    temperature: float = 1.0,
) -> SamplerGap:
    """Return the gap; raise `PolicyEngineError` when it is larger than other kernels explain.

    Raises `JobFailedError` when either gives a number that is not finite.
    """
    gap = await sampler_gap(policy, engine, sequences, temperature=temperature)
    allowed = _TOLERANCE[policy.dtype]
    if not gap.mean <= allowed:
        raise PolicyEngineError(
            f"engine {engine.name} does not answer with the trainer's weights: logprobs differ by "
            f"{gap.mean:.3g} nats on average (at most {gap.largest:.3g}; {allowed:g} is allowed)",
            hint="its weights or its cached prefixes are older than the policy's",
        )
    return gap


def _trainer_logprobs(policy: Policy, token_ids: Sequence[int], temperature: float) -> list[float]:
    ones = (1.0,) * len(token_ids)
    sequence = TrainingSequence(
        trajectory_id="",
        sample_index=0,
        token_ids=tuple(token_ids),
        loss_mask=(True,) * len(token_ids),
        rollout_logprobs=ones,
        advantages=ones,
        token_weights=ones,
        policy_version=0,
    )
    (packed,) = policy.pack([sequence], most_tokens=len(token_ids))
    with torch.no_grad():
        logprobs: list[float] = policy.token_logprobs(packed, temperature=temperature).tolist()
    return logprobs
