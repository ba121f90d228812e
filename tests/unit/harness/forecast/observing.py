"""Runs for the tests of forecasts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from arkdev.harness.advantages import grpo_advantages
from arkdev.harness.forecast.observed import ObservedGrader, ObservedGroup, ObservedRun


def group(index: int, rewards: Sequence[float], **changes: Any) -> ObservedGroup:
    """A group of the sample `index` that is kept, each of whose rollouts took a second."""
    n = len(rewards)
    values: dict[str, Any] = {
        "sample_index": index,
        "num_members": n,
        "rewards": tuple(rewards),
        "is_kept": True,
        "why_left": "",
        "num_with_advantage": sum(map(bool, grpo_advantages(rewards))),
        "has_own_advantages": False,
        "calls_s": (1.0,) * n,
        "gradings_s": (),
        "prompt_tokens": 100.0 * n,
        "completion_tokens": 10.0 * n,
    }
    return ObservedGroup(**{**values, **changes})


def left(index: int, n: int) -> ObservedGroup:
    """A group that was discarded."""
    return group(
        index, (), num_members=n, is_kept=False, why_left="discarded", num_with_advantage=0
    )


def solved(index: int, successes: int, n: int) -> ObservedGroup:
    """A group with so many rewards of 1, the others 0."""
    return group(index, [1.0] * successes + [0.0] * (n - successes))


def run(groups: Sequence[ObservedGroup], n: int, **changes: Any) -> ObservedRun:
    """A run of groups of `n`."""
    values: dict[str, Any] = {
        "groups": groups,
        "prompts": {},
        "num_generations": n,
        "concurrency": 8,
        "graders": (ObservedGrader("one", max_calls=None, is_single=True),),
        "success_threshold": 1.0,
        "makes_groups": False,
        "has_rewards_as_signal": True,
    }
    return ObservedRun(**{**values, **changes})
