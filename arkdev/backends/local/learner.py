"""The policy and its optimizer as the training loop sees them (`arkdev.backends.local.train`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from arkdev.backends.local.batch import TrainingBatch
from arkdev.backends.local.checkpoint import Trained
from arkdev.backends.local.engine import GenerationEngine
from arkdev.backends.local.optimizer import make_optimizer
from arkdev.backends.local.policy import Policy
from arkdev.backends.local.sampler_check import require_same_weights
from arkdev.backends.local.settings import UpdateSettings
from arkdev.backends.local.update import update

_NUM_PROBES = 2
"""Sequences that sampler and trainer are compared on, the shortest of a batch."""


class PolicyLearner:
    """Implements `arkdev.backends.local.train.Learner`, and is what a checkpoint saves."""

    def __init__(
        self,
        policy: Policy,
        settings: UpdateSettings,
        *,
        publish: Callable[[Any, int], Path] | None = None,
    ) -> None:
        """`publish` writes the model of a version into a folder, for an engine that reads files."""
        self.policy = policy
        self.policy_version = 0
        self.counters: dict[str, float] = {}
        self._settings = settings
        self._publish = publish
        self._optimizer = make_optimizer(policy, settings)
        self.trained = Trained(policy.model, self._optimizer)

    def weights(self) -> Any:
        """Return the model, which an engine in this process copies from, or a folder."""
        if self._publish is None:
            return self.policy.model
        return self._publish(self.policy.model, self.policy_version)

    def learns_from(self, batch: TrainingBatch) -> bool:
        """Without an advantage there is nothing, unless KL or entropy have a gradient."""
        if self._settings.learns_without_advantages:
            return bool(batch.sequences)
        return any(any(sequence.advantages) for sequence in batch.sequences)

    def learn(self, batch: TrainingBatch) -> Mapping[str, float]:
        """Update the policy with a batch."""
        metrics = update(self.policy, self._optimizer, batch, self._settings)
        self.policy_version += 1
        return metrics

    async def check(self, engine: GenerationEngine, batch: TrainingBatch) -> Mapping[str, float]:
        """Compare sampler and trainer on the shortest sequences of a batch."""
        by_length = sorted((sequence.token_ids for sequence in batch.sequences), key=len)
        gap = await require_same_weights(
            self.policy,
            engine,
            by_length[:_NUM_PROBES],
            temperature=self._settings.temperature,
        )
        found = asdict(gap)
        return {"sync_gap_mean": found["mean"], "sync_gap_max": found["largest"]}
