"""One step of a job as a debug run sees it, and its metrics under their documented names.

The documents name ``train/reward->final_reward.mean``, ``test/reward->final_reward.mean``
(OBS-10, OBS-11) and ``train/critic/context/n_tokens_injected`` (CRIT-06), and say that the metrics
of graders are aggregated per step and key with mean, max and min (OBS-08). The names of these, and
all others here, are arkdev's own, formed alike.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from arkdev.harness.advantages import Advantage
from arkdev.harness.loss_shares import LossShares
from arkdev.harness.token_counts import CountedBy, TokenCount
from arkdev.runs.records import GroupRecord, Verdict

FINAL_REWARD = "reward->final_reward"
CRITIC_TOKENS = "critic/context/n_tokens_injected"


@dataclass(frozen=True)
class StepRecord:
    """A step of training (phase ``train``) or a round on the validation set after it (``test``)."""

    step: int
    phase: str
    epoch: int
    num_groups: int
    num_kept: int
    """Groups that are trained on; in a round of validation those that were graded."""
    num_without_signal: int | None
    """Of these, groups all of whose advantages are 0; None where advantages do not say it."""
    dropped: Mapping[str, int]
    """Why groups left, and how many."""
    duration_s: float
    metrics: Mapping[str, float]
    message: str = ""
    """What a person should know of the step."""
    failure: str = ""
    """Why a job would have ended here."""
    estimated: tuple[str, ...] = ()
    """Metrics that are no exact counts."""
    loss: LossShares | None = None
    """What its loss is made of; None in a round of validation, and where nobody can say."""

    @property
    def reward_mean(self) -> float | None:
        """``<phase>/reward->final_reward.mean``; None when nothing was graded."""
        return self.metrics.get(f"{self.phase}/{FINAL_REWARD}.mean")

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> StepRecord:
        """Read what `to_json` wrote; unknown keys are left out."""
        names = {field.name for field in dataclasses.fields(cls)}
        known = {name: value for name, value in document.items() if name in names}
        loss = known.get("loss")
        known["loss"] = loss and LossShares.from_json(loss)
        return cls(**{**known, "estimated": tuple(known.get("estimated", ()))})


@dataclass(frozen=True)
class Counted:
    """The tokens of a trajectory."""

    counts: Mapping[CountedBy, TokenCount]
    loss_weight: tuple[float, ...] | None = None
    """Of each token, where the endpoint gave token ids."""


@dataclass
class StepContent:
    """What a step has gathered so far."""

    groups: list[GroupRecord] = field(default_factory=list)
    num_trajectories: int = 0
    num_tokens: int = 0
    """Answers' tokens, where the endpoint counts them."""
    num_counted: int = 0
    """Trajectories whose tokens are in `num_tokens`."""
    num_critic_tokens: int = 0
    counted: dict[str, Counted] = field(default_factory=dict)
    """By trajectory id."""
    num_truncated: int = 0
    """Trajectories with an answer that was cut at its most tokens."""


def why_it_left(group: GroupRecord) -> str:
    """Return why a group of a round of validation has no reward; "" when it has one."""
    if any(reward is not None for reward in group.rewards):
        return ""
    words = {
        Verdict.DISCARD: "discarded",
        Verdict.RETRY: "dropped after its retries",
        Verdict.FAILURE: "failed",
    }
    return words.get(group.verdict, "ungraded")


def step_metrics(
    content: StepContent,
    *,
    phase: str,
    advantages: Iterable[Advantage] = (),
    has_critic: bool = False,
) -> dict[str, float]:
    """Return the metrics of a step; what nothing was measured of is left out."""
    groups = content.groups
    metrics = {f"{phase}/trajectories": float(content.num_trajectories)}
    rewards = [reward for group in groups for reward in group.rewards if reward is not None]
    metrics |= _spread(f"{phase}/{FINAL_REWARD}", rewards)
    for name, values in _of_graders(groups).items():
        metrics |= _spread(f"{phase}/grader->{name}", values)
    for key, values in _of_metrics(groups).items():
        metrics |= _spread(f"{phase}/{_metric_name(key)}", values)
    metrics |= _spread(f"{phase}/advantages", [a for one in advantages for a in _flat(one)])
    if content.num_counted:
        mean = content.num_tokens / content.num_counted
        metrics[f"{phase}/completion_tokens.mean"] = mean
    if content.num_trajectories:
        share = content.num_truncated / content.num_trajectories
        metrics[f"{phase}/truncated_ratio"] = share
    if has_critic:
        metrics[f"{phase}/{CRITIC_TOKENS}"] = float(content.num_critic_tokens)
    return metrics


def _metric_name(key: str) -> str:
    """A metric must not hide the reward of the job."""
    return f"metrics->{key}" if f"reward->{key}" == FINAL_REWARD else f"reward->{key}"


def _spread(name: str, values: Sequence[float]) -> dict[str, float]:
    if not values:
        return {}
    total = math.fsum(value / len(values) for value in values)
    return {f"{name}.mean": total, f"{name}.max": max(values), f"{name}.min": min(values)}


def _flat(advantage: Advantage) -> Iterator[float]:
    if isinstance(advantage, tuple):
        yield from advantage
    else:
        yield advantage


def _of_graders(groups: Iterable[GroupRecord]) -> dict[str, list[float]]:
    """Rewards of each grader; those of a weight of 0 are observed too."""
    found: dict[str, list[float]] = {}
    for group in groups:
        for grader in group.graders:
            given = [reward for reward in grader.rewards if reward is not None]
            found.setdefault(grader.name, []).extend(given)
    return found


def _of_metrics(groups: Iterable[GroupRecord]) -> dict[str, list[float]]:
    """Values of each key, one for each call of a grader."""
    found: dict[str, list[float]] = {}
    for group in groups:
        for grader in group.graders:
            for call in grader.call_metrics or (grader.metrics,):
                for key, value in call.items():
                    found.setdefault(key, []).append(value)
    return found
