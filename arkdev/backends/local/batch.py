"""What one step is trained on: plain lists, before they become tensors.

One sequence of two turns, of which the first ends in a tool call (compare
`arkdev.plugin.evidence`), in a step of two sequences with ``loss_agg_mode`` ``token-mean``::

    token_ids         [5, 6,    7,    8, 9,    4]
    loss_mask         [0, 0,    1,    1, 0,    1]
    rollout_logprobs  [0, 0, -0.1, -0.2, 0, -0.3]
    advantages        [0, 0,  0.7,  0.7, 0,  0.7]
    token_weights     [0, 0,  1/5,  1/5, 0,  1/5]     the other sequence has two such tokens
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class TrainingSequence:
    """One trajectory. All tuples have one entry for each token, 0 where nothing is trained."""

    trajectory_id: str
    sample_index: int
    """Sequences of one sample share a prompt, whose computation can be shared."""
    token_ids: tuple[int, ...]
    loss_mask: tuple[bool, ...]
    rollout_logprobs: tuple[float, ...]
    """As the sampler gave them."""
    advantages: tuple[float, ...]
    token_weights: tuple[float, ...]
    """What a token's loss is multiplied by, worked out over the whole step
    (`arkdev.harness.loss_weights`): no split into micro-batches changes loss or gradient."""
    policy_version: int
    """Of the oldest weights that sampled a part of it."""


@dataclass(frozen=True)
class TrainingBatch:
    """The sequences of one step."""

    step: int
    sequences: tuple[TrainingSequence, ...]
    metrics: Mapping[str, float] = field(default_factory=dict)
    """What the rollouts and graders came to, under the documented names."""
    message: str = ""
    """Why there is little or nothing to learn."""
