"""The size of the job that is forecast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arkdev.harness.forecast.observed import ObservedRun


@dataclass(frozen=True)
class JobSize:
    """How much a job runs; None is not known."""

    num_steps: int | None
    batch_size: int
    num_generations: int
    num_samples: int | None = None
    """Of the training set: more steps than an epoch has draw samples again."""

    @property
    def groups_per_step(self) -> int:
        """Of a full batch: no sample is in a step twice."""
        return min(self.batch_size, self.num_samples or self.batch_size)

    @property
    def num_groups(self) -> int | None:
        """Of all steps; the last batch of an epoch holds what is left (`job.batches`)."""
        if self.num_steps is None:
            return None
        if self.num_samples is None:
            return self.num_steps * self.batch_size
        num_epochs, rest = divmod(self.num_steps, -(-self.num_samples // self.batch_size))
        return num_epochs * self.num_samples + rest * self.batch_size

    def num_prompts(self, run: ObservedRun) -> int:
        """Return how many different samples the job draws; without `num_steps` those of the run.

        A sample that is drawn again is no new one: its groups are as good or as bad as before.
        """
        if self.num_groups is None:
            return max(1, len({group.sample_index for group in run.groups}))
        return min(self.num_groups, self.num_samples or self.num_groups)
