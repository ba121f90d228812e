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
from arkdev.harness.functions_report import FunctionSummary
from arkdev.harness.limits_report import LimitsReport
from arkdev.harness.services import ServiceSummary
from arkdev.harness.slowest import SlowCall
from arkdev.harness.stability import Instability
from arkdev.harness.stalls import StallRecord


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
    place: str = ""
    """file:line of its function; "" when the run did not keep it."""
    slowest: tuple[SlowCall, ...] = ()
    """By the first trajectory of the group."""


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
    unstable: tuple[Instability, ...] = ()
    """How that time grew; quarters in the order in which the rollouts finished."""
    slowest: tuple[SlowCall, ...] = ()


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
    """Trajectory ids; for group graders the first id of the group."""
    hint: str = ""
    """What to do about it, when arkdev knows."""


@dataclass(frozen=True)
class ExtremeReward:
    """A trajectory worth looking at."""

    trajectory_id: str
    reward: float


@dataclass(frozen=True)
class ShiftSummary:
    """How far trajectories moved the advantages of their siblings against being dropped."""

    num_trajectories: int
    num_siblings: int
    largest: float
    """Absolute, as is `mean`, which is over all siblings."""
    mean: float
    num_sign_changes: int
    """Siblings that are pushed the other way because of it."""
    largest_of: str
    """The trajectory that moved a sibling by `largest`."""


@dataclass(frozen=True)
class FailureRow:
    """Failures of one kind that were handled alike. Each of the three dicts counts all of them."""

    side: str
    """``model``, ``tool``, ``rollout``, ``grader``"""
    kind: str
    """Of a fault its kind; of a failed attempt ``exception``, ``timeout``, ``bad_result`` or the
    status that the plugin returned."""
    plugin: str
    """Whose call it fell on: ``rollout`` or ``grader``."""
    is_injected: bool
    handling: str
    """`failures.Handling`"""
    count: int
    attempts: dict[str, int]
    """How many failures fell on rollouts (or gradings) of 1, 2, 3, ... attempts."""
    verdicts: dict[str, int]
    """How these ended."""
    fates: dict[str, int]
    """What became of their trajectories: `failures.Fate`."""
    shift: ShiftSummary | None
    """None when no single trajectory of theirs is in a group with built-in advantages."""
    examples: tuple[str, ...]
    """Trajectory ids; of what concerns a whole group its first one."""


@dataclass(frozen=True)
class SuspectReward:
    """A trajectory whose reward may stand for a failure."""

    trajectory_id: str
    reward: float
    """What the grader concerned gave, or the weighted sum."""
    cause: str
    """What went wrong: ``tool 503``."""
    is_whole_group: bool = False
    """It is not known whose failure it was: the trajectory is the one of its group that got the
    lowest reward."""


@dataclass(frozen=True)
class Suspicion:
    """Errors that look swallowed; `swallowed_errors.QUESTIONS` has a text for each code."""

    code: str
    count: int
    """Trajectories."""
    examples: tuple[SuspectReward, ...]


@dataclass(frozen=True)
class FailureSummary:
    """What went wrong in a run and what became of it (docs/failures.md)."""

    num_faults: int
    num_injected: int
    num_failed_attempts: int
    faults: tuple[FailureRow, ...]
    """The most frequent first, as below."""
    failed_attempts: tuple[FailureRow, ...]
    suspicions: tuple[Suspicion, ...]


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
    services: tuple[ServiceSummary, ...]
    """What the plugins called over HTTP for themselves; of a resumed run, since then."""
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
    limit_wait_s: float
    """What model calls waited for the endpoint's limits, added up; no part of their latency."""
    warnings: tuple[WarningSummary, ...]
    errors: tuple[ErrorSummary, ...]
    """The most frequent first."""
    failures: FailureSummary | None
    """None when nothing went wrong."""
    first_failure: str | None
    """Id of the first rollout that did not succeed."""
    limits: LimitsReport | None = None
    """What the limits of the run did; None when there is nothing to tell."""
    stalls: tuple[StallRecord, ...] = ()
    """What blocked or starved other rollouts, the most expensive first."""
    functions: tuple[FunctionSummary, ...] = ()
    """Of a run with ``--faas``."""

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
