"""The seam between training and rollouts: where the batches of a job come from.

A flow implements it with the engine, rollouts and graders that test and debug runs use too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from arkdev.backends.local.batch import TrainingBatch


class GroupSource(Protocol):
    """Runs rollouts and graders of a step by the policy as it is now.

    Both raise `JobFailedError` where a job ends: a failed rollout or grader, a trajectory without
    trainable tokens (field case 1.4), advantages that break a rule.
    """

    num_steps: int

    async def training_batch(self, step: int) -> TrainingBatch:
        """Roll out, grade and compose the batch of a step, from 0. It is the same samples in the
        same order for each run of the job, also a resumed one."""
        ...

    async def validation_round(self, step: int) -> Mapping[str, float] | None:
        """Run the round on the validation set that is due after a step; None: none is due."""
        ...
