"""What a run's records say, group by group, as far as a forecast needs it.

Groups of training alone: rounds on the validation set are left out. A group that was discarded,
dropped, failed or not graded stays what it is: a group without a batch to be in, and no reward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from arkdev.errors import PluginResultError
from arkdev.harness.advantages import (
    Advantage,
    advantage_grader,
    are_equal,
    group_advantages,
)
from arkdev.harness.forecast.quantity import Clusters
from arkdev.runs.records import TEST, GroupRecord, TrajectoryRecord, Verdict

_DROPS_THE_GROUP = (Verdict.DISCARD, Verdict.RETRY)
_SHOWN = 60


@dataclass(frozen=True)
class ObservedGrader:
    """A grader, as far as it takes time."""

    name: str
    max_calls: int | None
    """Its `request_concurrency`; None: not recorded, no limit is assumed."""
    is_single: bool
    """Called once for each trajectory, not once for the group."""


@dataclass(frozen=True, slots=True)
class ObservedGroup:
    """One group of a step."""

    sample_index: int
    num_members: int
    """Trajectories that it has, or should have had."""
    rewards: tuple[float, ...]
    """Of the members that have one."""
    is_kept: bool
    """It is in the step's batch."""
    why_left: str
    """Why it is not; "" when it is."""
    num_with_advantage: int
    """Members whose advantage is not 0; those with an advantage of a token that is not."""
    has_own_advantages: bool
    calls_s: tuple[float, ...]
    """How long each call of the rollout took, with all its attempts."""
    gradings_s: tuple[float, ...]
    """How long each grader took for the group; empty when it was not graded."""
    prompt_tokens: float | None
    """Of all its model calls whose attempt counted; None: the endpoint does not count them."""
    completion_tokens: float | None

    @property
    def has_signal(self) -> bool:
        """Whether anything is learnt from it."""
        return self.num_with_advantage > 0

    @property
    def is_settled(self) -> bool:
        """It is kept, and all its rewards are the same."""
        return self.is_kept and are_equal(self.rewards)


@dataclass
class _Calls:
    """Of one trajectory."""

    duration_s: float | None
    tokens: list[tuple[str | None, int | None, int | None]]


@dataclass
class Observations:
    """Add the trajectories of a run, then its groups."""

    groups: list[ObservedGroup] = field(default_factory=list)
    prompts: dict[int, str] = field(default_factory=dict)
    """The beginning of each sample's question."""
    num_failed_attempts: int = 0
    """Attempts that did not end well; nobody counted their tokens."""
    num_graded: int = 0
    """Trajectories that were graded, in rounds of validation too."""
    _calls: dict[str, _Calls] = field(default_factory=dict)

    def add_trajectory(self, record: TrajectoryRecord) -> None:
        """Note one finished rollout; one of validation is passed over."""
        if record.phase == TEST:
            return
        if record.is_first_of_call:
            self.num_failed_attempts += sum(a.verdict != Verdict.SUCCESS for a in record.attempts)
        self._calls[record.trajectory_id] = _Calls(
            record.duration_s if record.is_first_of_call else None,
            [
                (turn.response_id, turn.prompt_tokens, turn.completion_tokens)
                for turn in record.turns
            ],
        )
        if record.sample_index not in self.prompts and record.messages:
            self.prompts[record.sample_index] = _question(record.messages)

    def add_group(self, record: GroupRecord, *, num_generations: int) -> None:
        """Note one finished group, after its trajectories."""
        self.num_graded += sum(reward is not None for reward in record.rewards)
        if record.phase == TEST:
            return
        calls = [self._calls.pop(name) for name in record.trajectory_ids if name in self._calls]
        advantages, has_own = _advantages(record)
        why_left = _why_left(record)
        turns = {key: turn for call in calls for key, turn in _turns(call)}
        self.groups.append(
            ObservedGroup(
                sample_index=record.sample_index,
                num_members=max(num_generations, len(record.trajectory_ids)),
                rewards=tuple(r for r in record.rewards if r is not None),
                is_kept=not why_left,
                why_left=why_left,
                num_with_advantage=0 if why_left else sum(map(_is_not_zero, advantages)),
                has_own_advantages=has_own,
                calls_s=tuple(c.duration_s for c in calls if c.duration_s is not None),
                gradings_s=tuple(grader.duration_s for grader in record.graders),
                prompt_tokens=_total([prompt for prompt, _ in turns.values()]),
                completion_tokens=_total([completion for _, completion in turns.values()]),
            )
        )


@dataclass(frozen=True)
class ObservedRun:
    """A run, ready to forecast from."""

    groups: Sequence[ObservedGroup]
    prompts: dict[int, str]
    num_generations: int
    concurrency: int
    graders: Sequence[ObservedGrader]
    success_threshold: float
    makes_groups: bool
    """One call of the rollout makes all trajectories of a group."""
    has_rewards_as_signal: bool
    """False where a critic or a teacher gives the signal: equal rewards say nothing there."""
    num_failed_attempts: int = 0
    judge_calls: float | None = None
    """Model calls of graders for each graded trajectory; None: not known, they went past arkdev."""


def by_prompt(
    groups: Iterable[ObservedGroup], value: Callable[[ObservedGroup], float | None]
) -> Clusters:
    """Return the sum and the number of the groups' values for each prompt; None is left out."""
    sums: dict[int, float] = {}
    counts: dict[int, int] = {}
    for group in groups:
        one = value(group)
        if one is not None:
            sums[group.sample_index] = sums.get(group.sample_index, 0.0) + one
            counts[group.sample_index] = counts.get(group.sample_index, 0) + 1
    return Clusters(list(sums.values()), list(counts.values()))


def _advantages(record: GroupRecord) -> tuple[tuple[Advantage | None, ...], bool]:
    try:
        return group_advantages(record), advantage_grader(record.graders) is not None
    except PluginResultError:  # two graders gave some: a job would end
        return (), True


def _is_not_zero(advantage: Advantage | None) -> bool:
    return any(advantage) if isinstance(advantage, tuple) else bool(advantage)


def _why_left(record: GroupRecord) -> str:
    if record.verdict in _DROPS_THE_GROUP:
        return "discarded" if record.verdict is Verdict.DISCARD else "dropped after its retries"
    if all(reward is None for reward in record.rewards):
        return "failed" if record.verdict is Verdict.FAILURE else "ungraded"
    return ""


def _turns(call: _Calls) -> Iterable[tuple[Any, tuple[int | None, int | None]]]:
    """Yield each model call under a key that calls shared by trajectories have in common."""
    for number, (response_id, prompt, completion) in enumerate(call.tokens):
        yield response_id or (id(call), number), (prompt, completion)


def _total(tokens: Sequence[int | None]) -> float | None:
    known = [number for number in tokens if number is not None]
    return float(sum(known)) if known and len(known) == len(tokens) else None


def _question(messages: Sequence[dict[str, Any]]) -> str:
    """Return the beginning of the first message of the user."""
    content = next((m.get("content") for m in messages if m.get("role") == "user"), "")
    if isinstance(content, list):
        content = " ".join(str(p.get("text", "")) for p in content if isinstance(p, dict))
    text = " ".join(str(content or "").split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
