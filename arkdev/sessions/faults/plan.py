"""When an injected fault strikes: a pure function of the run's seed and of the place.

Neither the time nor the order in which tasks run has a part in it, so a run draws the same faults
at any concurrency, and again after ``--resume``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

from arkdev.runs.records import FaultSide
from arkdev.sessions.faults.grammar import Fault

_ALL = 2**64


@dataclass(frozen=True)
class FaultPlace:
    """Where a fault may strike. Attempts, calls and sends count from 1.

    The third send of the second model call in the first attempt of rollout 7.0 is
    ``FaultPlace(MODEL, "7.0", attempt=1, call="2", send=3)``.
    """

    side: FaultSide
    trajectory: str
    """The attempt's name: the trajectory's id, with the grader's name when it is being graded."""
    attempt: int
    call: str = ""
    """Which call of the attempt; empty for the call of a plugin itself."""
    send: int = 1


@dataclass(frozen=True)
class Strike:
    """A fault that strikes, and a seed for what it makes up."""

    fault: Fault
    seed: int


def number_drawn(seed: int, place: FaultPlace) -> int:
    """Return the number in 0..2**64 - 1 that decides what happens at a place (docs/faults.md)."""
    named = [seed, place.side.value, place.trajectory, place.attempt, place.call, place.send]
    digest = blake2b(json.dumps(named).encode("ascii"), digest_size=8).digest()
    return int.from_bytes(digest, "big")


class FaultPlan:
    """The faults of a run, and where they strike: at most one at a place."""

    def __init__(self, faults: Iterable[Fault], *, seed: int) -> None:
        self.faults = tuple(faults)
        self._seed = seed
        self._reached: set[FaultSide] = set()
        self._limits: dict[FaultSide, list[tuple[int, Fault]]] = {side: [] for side in FaultSide}
        for side, limits in self._limits.items():
            total = 0
            for fault in self.faults:
                if fault.side is side:
                    total += int(fault.rate * _ALL)
                    limits.append((total, fault))

    def has(self, *sides: FaultSide) -> bool:
        """Whether a fault can strike on one of these sides."""
        return any(self._limits[side] for side in sides)

    def without_effect(self) -> tuple[FaultSide, ...]:
        """Return the sides that the flag names and of which nothing was called so far."""
        named = {fault.side for fault in self.faults if fault.has_own_side}
        return tuple(side for side in FaultSide if side in named - self._reached)

    def strike(self, place: FaultPlace) -> Strike | None:
        """Return what strikes at a place: each fault in its share, in the order of the flag."""
        limits = self._limits[place.side]
        if not limits:
            return None
        self._reached.add(place.side)
        number = number_drawn(self._seed, place)
        for limit, fault in limits:
            if number < limit:
                return Strike(fault, number)
        return None
