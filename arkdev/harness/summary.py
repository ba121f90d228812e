"""The numbers of one test run. Plain data; `statistics.RunStatistics` computes them.

Rewards count each graded rollout once, whatever its number of turns. Rollouts that have no reward
are counted, never averaged: ``num_rollouts`` = failed + discarded + retry (``verdicts``) +
``num_graded`` + ``num_ungraded`` + ``num_dropped`` + ``num_pending``.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from arkdev.harness.distributions import CountSummary, LatencySummary, RewardSummary


@dataclass(frozen=True)
class MetricSummary:
    """One key of a grader's metrics over the groups that reported it (GRADE-09)."""

    count: int
    min: float
    mean: float
    max: float


@dataclass(frozen=True)
class GraderSummary:
    """One grader. `verdicts` and `attempts` count its invocations, one per group."""

    name: str
    weight: float
    reward: RewardSummary | None
    verdicts: dict[str, int]
    attempts: dict[str, int]
    metrics: dict[str, MetricSummary]
    latency: LatencySummary | None


@dataclass(frozen=True)
class EqualReward:
    """A value that all members of `num_groups` groups got."""

    reward: float
    num_groups: int


@dataclass(frozen=True)
class ZeroVariance:
    """Groups of two or more rewards that are all equal: their advantages are 0."""

    num_groups: int
    num_eligible: int
    """Groups with at least two rewards."""
    share: float
    values: tuple[EqualReward, ...]
    """The most frequent values, at most five."""


@dataclass(frozen=True)
class PassAtK:
    """The unbiased estimate that at least one of k rollouts succeeds, over `num_groups` groups."""

    k: int
    value: float
    num_groups: int


@dataclass(frozen=True)
class SuccessSummary:
    """Graded rollouts whose weighted reward reached the success threshold."""

    num_graded: int
    num_successes: int
    rate: float
    standard_error: float | None
    """Of the rate, clustered by sample; None for only one sample."""


@dataclass(frozen=True)
class GroupSummary:
    """Groups by verdict and what their rewards say. `num_incomplete` groups are in no pass@k."""

    count: int
    verdicts: dict[str, int]
    zero_variance: ZeroVariance | None
    pass_at_k: tuple[PassAtK, ...]
    num_incomplete: int
    """Groups with an ungraded or missing member."""


@dataclass(frozen=True)
class ToolSummary:
    """One tool. `latency` is from the model's answer to the next request, for turns that called
    this tool alone; other turns are under ``several tools``."""

    name: str
    num_calls: int
    latency: LatencySummary | None


@dataclass(frozen=True)
class WarningSummary:
    """How many rollouts (or groups) carry a warning code, with up to three of them."""

    code: str
    count: int
    examples: tuple[str, ...]
    detail: str = ""
    """What the first of them says beyond the code, such as the id of a tool call."""


@dataclass(frozen=True)
class ErrorSummary:
    """Attempts that ended with the same error; ids, numbers and quoted data may differ."""

    source: str
    """``rollout``, ``grader NAME`` or ``group``."""
    message: str
    where: str | None
    """file:line of the user's code, when it raised."""
    count: int
    """Attempts, also those that a later attempt made good."""
    num_final: int
    """Of these, the ones that decided the rollout or grading."""
    examples: tuple[str, ...]
    """Trajectory ids; for graders the first id of the group."""
    hint: str = ""
    """What to do about it, when arkdev knows."""


@dataclass(frozen=True)
class ExtremeReward:
    """A trajectory worth looking at."""

    trajectory_id: str
    reward: float


@dataclass(frozen=True)
class Summary:
    """See the module. Latencies in seconds; counts per rollout are over successful rollouts."""

    num_rollouts: int
    num_generations: int
    success_threshold: float
    verdicts: dict[str, int]
    attempts: dict[str, int]
    """How many rollouts needed 1, 2, 3, ... attempts."""
    num_recovered: int
    """Rollouts that succeeded after at least one failed attempt."""
    num_graded: int
    num_ungraded: int
    """Successful, but a grader failed on them or on their group."""
    num_dropped: int
    """Successful, but their group was dropped by a discard or a retry that was used up."""
    num_pending: int
    """Successful, but their group has not been graded: no graders, or the run was cut short."""
    would_fail_job: bool
    reward: RewardSummary | None
    """The weighted reward."""
    success: SuccessSummary | None
    """None when nothing was graded."""
    lowest: ExtremeReward | None
    highest: ExtremeReward | None
    graders: tuple[GraderSummary, ...]
    groups: GroupSummary | None
    rollout_latency: LatencySummary | None
    model_call_latency: LatencySummary | None
    tools: tuple[ToolSummary, ...]
    turns: CountSummary | None
    prompt_tokens: CountSummary | None
    completion_tokens: CountSummary | None
    longest_context: CountSummary | None
    """Prompt and completion of a rollout's longest call."""
    finish_reasons: dict[str, int]
    """Of each successful rollout's last answer; ``unknown`` when there was none."""
    num_model_calls: int
    """Each counted once, also where several trajectories of a group share it."""
    num_shared_turns: int
    """Turns of trajectories whose call was counted with another trajectory of the group."""
    num_model_call_retries: int
    """How often arkdev sent a call again, in all attempts."""
    num_reruns: int
    """How often the plugin was called again after a failed attempt."""
    warnings: tuple[WarningSummary, ...]
    errors: tuple[ErrorSummary, ...]
    """The most frequent first."""
    first_failure: str | None
    """Id of the first rollout that did not succeed."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data; numbers that are not finite become null."""
        document = _json_value(dataclasses.asdict(self))
        assert isinstance(document, dict)
        return document


def _json_value(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _json_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_value(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
