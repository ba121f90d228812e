"""Which attempt of which rollout a session is for, and the seeds that follow from it."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

from arkdev.runs.records import trajectory_id_of


@dataclass(frozen=True)
class AttemptIdentity:
    """Which attempt of which rollout this is. `run_seed` makes the run's answers repeatable."""

    sample_index: int
    generation: int
    attempt: int
    run_seed: int = 0
    phase: str = "test"
    step: int | None = None

    @property
    def trajectory_id(self) -> str:
        """See `trajectory_id_of`."""
        return trajectory_id_of(
            self.sample_index, self.generation, phase=self.phase, step=self.step
        )

    def seed(self, *place: int | str) -> int:
        """Give a call its seed (decision 11): the same in every run, whatever ran beside it.

        `place` is the call's number in the attempt, or its place in the tree of responses.
        """
        who = [self.run_seed, self.sample_index, self.generation, self.attempt]
        # a sample has its turn again in each epoch
        when = [] if self.step is None else [self.phase, self.step]
        text = str([*who, *when, *place])
        return int.from_bytes(blake2b(text.encode(), digest_size=6).digest(), "big")
