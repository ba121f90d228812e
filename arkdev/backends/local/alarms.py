"""Alarms of a training run: the sampler is not on the weights that it should be on.

After an update that did not reach it (stale weights, a stale prefix cache), a sampler goes on
answering, and training goes on with wrong ratios: nothing fails (field case 8.3). Three things
tell: the version that the answers bear, the log probabilities right after a sync
(`arkdev.backends.local.train`), and the distance between sampler and trainer over a whole batch,
which is looked at here.
"""

from __future__ import annotations

from collections.abc import Mapping

from arkdev.backends.local.batch import TrainingBatch

OFF_POLICY_KL = "rollout_off_policy_kl"
"""KL(sampler || trainer) over the sampled tokens of a batch, before the update."""
FIRST = "first_off_policy_kl"
_FLOOR = 1e-3
"""Rounding alone stays below it, also in bf16."""
_TIMES = 5.0


class OffPolicyAlarm:
    """Says what is wrong about each batch. The first batch that was updated on is the measure:

    top-p, top-k and another arithmetic make a distance that stays alike from step to step.
    """

    def __init__(self, counters: dict[str, float], *, policy_lag: int) -> None:
        """`counters` keep the measure over a resume."""
        self._policy_lag = policy_lag
        self._counters = counters

    def on_batch(self, batch: TrainingBatch, *, policy_version: int) -> tuple[str, ...]:
        """Look at the versions that sampled a batch; `policy_version` is the trainer's own."""
        oldest = min(sequence.policy_version for sequence in batch.sequences)
        if policy_version - oldest <= self._policy_lag:
            return ()
        return (
            f"step {batch.step}: answers of weights {oldest} are trained on at {policy_version}: "
            f"policy_lag allows {self._policy_lag}",
        )

    def on_update(self, metrics: Mapping[str, float]) -> tuple[str, ...]:
        """Look at the distance that an update found. With a lag, weights differ as they should."""
        found = metrics.get(OFF_POLICY_KL)
        if found is None or self._policy_lag:
            return ()
        first = self._counters.setdefault(FIRST, found)
        if found <= _FLOOR + _TIMES * abs(first):
            return ()
        return (
            f"the sampler is not on the weights that are trained: {OFF_POLICY_KL} is {found:.2g}, "
            f"and was {first:.2g} at the first update",
        )
