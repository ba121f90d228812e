"""Which attempt of which rollout a session is for, and the seeds that follow from it."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b


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
        """``<sample_index>.<generation>``"""
        return f"{self.sample_index}.{self.generation}"

    def seed(self, *place: int | str) -> int:
        """Give a call its seed (decision 11): the same in every run, whatever ran beside it.

        `place` is the call's number in the attempt, or its place in the tree of responses.
        """
        text = str([self.run_seed, self.sample_index, self.generation, self.attempt, *place])
        return int.from_bytes(blake2b(text.encode(), digest_size=6).digest(), "big")
