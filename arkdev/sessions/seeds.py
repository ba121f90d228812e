"""The seed of each model call (decision 11)."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arkdev.sessions.session import AttemptIdentity


def seed_of(identity: AttemptIdentity, *place: int | str) -> int:
    """Give a call its seed (decision 11): the same in every run, whatever ran beside it.

    `place` is the call's number in the attempt, or its place in the tree of responses.
    """
    who = [identity.run_seed, identity.sample_index, identity.generation, identity.attempt]
    # a sample has its turn again in each epoch
    when = [] if identity.step is None else [identity.phase, identity.step]
    text = str([*who, *when, *place])
    return int.from_bytes(blake2b(text.encode(), digest_size=6).digest(), "big")
