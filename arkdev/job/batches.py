"""Which samples make up the batch of each step (SURFACE ROLL-15, GROUP-08; field case 3.3).

A plan is a pure function of its fields: it reads no data and keeps no state, so that a job can be
gone on with at any step, on any machine.

* An epoch is every sample once, in an order of its own (`arkdev.job.shuffling`, labels ``epoch``
  and the epoch's number).
* A batch is the next `batch_size` samples of that order. The last batch of an epoch holds what is
  left: no sample is left out, and none is twice in one step.
* A group that is discarded or dropped leaves the batch whole, and **nothing takes its place**: the
  documents say that the sample is dropped, not that another one is drawn. The batch of that step is
  smaller, every other step is what it would have been. A step that loses all its groups is skipped.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from arkdev.job.shuffling import shuffled


@dataclass(frozen=True)
class Batch:
    """The samples of one step."""

    step: int
    """From 0, over all epochs."""
    epoch: int
    """From 0."""
    step_in_epoch: int
    """From 0."""
    indices: tuple[int, ...]
    """Numbers of the samples, in the order in which they are begun."""


@dataclass(frozen=True)
class BatchPlan:
    """The batches of a job. Exactly one of `num_epochs` and `num_steps` is given.

    Raises `ValueError` for a count below 1.
    """

    num_samples: int
    batch_size: int
    """Samples (groups) of a step, each with `num_generations` rollouts."""
    seed: int = 0
    num_epochs: int | None = None
    num_steps: int | None = None
    """Steps in all; epochs follow each other until there are so many."""
    is_shuffled: bool = True
    """False: each epoch is in the order of the data, as validation is."""

    def __post_init__(self) -> None:
        if (self.num_epochs is None) == (self.num_steps is None):
            raise ValueError("exactly one of num_epochs and num_steps is expected")
        for name in ("num_samples", "batch_size", "num_epochs", "num_steps"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; at least 1 is expected")

    @property
    def steps_per_epoch(self) -> int:
        """Steps in which every sample has its turn once."""
        return -(-self.num_samples // self.batch_size)

    def __len__(self) -> int:
        """Steps in all."""
        if self.num_steps is not None:
            return self.num_steps
        return self.steps_per_epoch * (self.num_epochs or 0)

    def step_at(self, epoch: int, step_in_epoch: int) -> int:
        """Return the number over all epochs of a step of an epoch. Raises `IndexError`."""
        step = epoch * self.steps_per_epoch + step_in_epoch
        if epoch < 0 or not 0 <= step_in_epoch < self.steps_per_epoch or step >= len(self):
            raise IndexError(f"there is no step {step_in_epoch} of epoch {epoch}")
        return step

    def batch(self, step: int) -> Batch:
        """Return the batch of a step. Raises `IndexError`."""
        if not 0 <= step < len(self):
            raise IndexError(f"there is no step {step}; the plan has {len(self)}")
        epoch, step_in_epoch = divmod(step, self.steps_per_epoch)
        first = step_in_epoch * self.batch_size
        last = min(first + self.batch_size, self.num_samples)
        if self.is_shuffled:
            indices = tuple(_epoch_order(self.num_samples, self.seed, epoch)[first:last])
        else:
            indices = tuple(range(first, last))
        return Batch(step=step, epoch=epoch, step_in_epoch=step_in_epoch, indices=indices)

    def batches(self, *, start: int = 0) -> Iterator[Batch]:
        """Yield the batches from step `start` on."""
        return (self.batch(step) for step in range(start, len(self)))


@lru_cache(maxsize=2)
def _epoch_order(num_samples: int, seed: int, epoch: int) -> array[int]:
    """The order of an epoch: 8 bytes a sample, kept for the steps that follow."""
    return shuffled(num_samples, seed=seed, labels=("epoch", epoch))
