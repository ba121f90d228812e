"""The records of a run folder, schema version 1 (docs/runs.md). Plain data, no behaviour.

One sample with two rollouts, the second of which needed a second attempt, gives two lines in
``trajectories.jsonl`` and, once graded, one line in ``groups.jsonl``::

    TrajectoryRecord(trajectory_id="7.0", sample_index=7, generation=0, verdict=SUCCESS, ...)
    TrajectoryRecord(trajectory_id="7.1", sample_index=7, generation=1, verdict=SUCCESS,
                     attempts=(Attempt(RETRY, error="search timed out"), Attempt(SUCCESS)), ...)
    GroupRecord(sample_index=7, verdict=SUCCESS, trajectory_ids=("7.0", "7.1"),
                rewards=(1.0, 0.0), graders=(GraderRecord("weather", weight=1.0, ...),))
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

SCHEMA_VERSION = 1

TRAIN = "train"
TEST = "test"
"""The phases of a job: a step of training, and a round on the validation set (CTX-05)."""


class Verdict(StrEnum):
    """What became of an attempt, a rollout, a grading or a group (decision 1)."""

    SUCCESS = "success"
    FAILURE = "failure"
    """The plugin failed and its retries are used up: a job would fail."""
    DISCARD = "discard"
    """The plugin gave the sample up: its whole group is dropped."""
    RETRY = "retry"
    """The plugin asked to try again and its retries are used up: its whole group is dropped."""


class FaultSide(StrEnum):
    """Where a fault happened."""

    MODEL = "model"
    """A model call of the rollout."""
    TOOL = "tool"
    """An HTTP call that a plugin made, of a tool or of a grader's judge."""
    GRADER = "grader"
    """The call of a grader."""
    ROLLOUT = "rollout"
    """The call of a rollout."""


class HandledBy(StrEnum):
    """Who saw to it that the attempt went on after a fault."""

    HARNESS = "harness"
    """arkdev sent the model call again, and it was answered."""
    PLUGIN = "plugin"
    """The plugin got the fault, and its attempt ended well."""
    NOBODY = "nobody"
    """The attempt did not end well."""


@dataclass(frozen=True)
class FaultRecord:
    """Something that went wrong in an attempt, real or injected (``--inject``)."""

    side: FaultSide
    kind: str
    """``timeout``, ``429``, ``500`` (any status of 400 and more; ``200`` is an error inside a
    success answer), ``unreachable``, ``garbage``, ``cut_json``, ``empty``, ``slow``, ``raise``."""
    target: str
    """What was called: ``call 2`` (the attempt's model calls count from 1), a tool's host, a
    grader's name."""
    started_s: float
    """Since the start of the attempt."""
    is_injected: bool = False
    handled_by: HandledBy = HandledBy.NOBODY
    detail: str = ""
    """The error's text, or the injected delay."""
    trajectory_id: str | None = None
    """Which trajectory a single grader was grading; None elsewhere."""
    is_answered_later: bool = False
    """The plugin sent the same HTTP request again in the same attempt, and it was answered."""


@dataclass(frozen=True)
class Attempt:
    """One invocation of a plugin."""

    verdict: Verdict
    duration_s: float
    num_turns: int = 0
    error: str | None = None
    where: str | None = None
    """file:line of the user's code that raised, when it raised."""
    traceback: str | None = None
    num_model_call_retries: int = 0
    """How often model calls were sent again, those included that failed in the end."""
    limit_wait_s: float = 0.0
    """What its model calls, added up, waited for the endpoint's limits."""
    faults: tuple[FaultRecord, ...] = ()
    """In the order in which they happened."""


@dataclass(frozen=True)
class TurnRecord:
    """One model call of the attempt that counts. Times are seconds; None means unknown."""

    started_s: float
    """Since the start of the attempt."""
    duration_s: float
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    tool_calls: tuple[str, ...] = ()
    """Names of the tools that this answer calls."""
    tool_duration_s: float | None = None
    """From this answer to the next request, when it called tools and a next request came."""
    num_retries: int = 0
    """How often the session sent the call again."""
    waited_s: float = 0.0
    """For the endpoint's limits, before it was sent; not in `duration_s`."""
    via: str = "wrapped"
    """"wrapped" client or "raw" through the gateway."""
    response_id: str | None = None
    """Of a Responses call. Trajectories of one group rollout share the turns of their common
    beginning: the same id is the same call."""
    answer_index: int | None = None
    """Of a Responses call: the place of its answer in the trajectory's messages."""
    policy_version: int | None = None
    """Of the weights that answered: the updates that made them. None: no policy of ours."""


def trajectory_id_of(
    sample_index: int, generation: int, *, phase: str = TRAIN, step: int | None = None
) -> str:
    """Return ``7.1``; in step 3 of a job ``3/7.1``, in a round of validation ``test3/7.1``.

    >>> trajectory_id_of(7, 1), trajectory_id_of(7, 1, phase="test", step=3)
    ('7.1', 'test3/7.1')
    """
    name = f"{sample_index}.{generation}"
    if step is None:
        return name
    return f"test{step}/{name}" if phase == TEST else f"{step}/{name}"


def step_of_id(trajectory_id: str) -> tuple[str, int | None]:
    """Return phase and step of a trajectory by its id.

    >>> step_of_id("test3/7.1"), step_of_id("3/7.1"), step_of_id("7.1")
    (('test', 3), ('train', 3), ('train', None))
    """
    place, slash, _ = trajectory_id.rpartition("/")
    if not slash:
        return TRAIN, None
    number = place.removeprefix(TEST)
    return (TRAIN if number == place else TEST), int(number)


@dataclass(frozen=True)
class SampleRecord:
    """A sample as its rollouts and graders were given it: a line of ``samples.jsonl``."""

    sample_index: int
    sample: dict[str, Any]
    phase: str = TRAIN
    step: int | None = None


@dataclass(frozen=True)
class TrajectoryRecord:
    """One finished rollout: a line of ``trajectories.jsonl``."""

    trajectory_id: str
    """`trajectory_id_of`: ``<sample_index>.<generation>``, in a job with its step before it."""
    sample_index: int
    generation: int
    verdict: Verdict
    duration_s: float
    attempts: tuple[Attempt, ...]
    """Of the plugin call, which is the same for all trajectories of a group rollout."""
    messages: tuple[dict[str, Any], ...] = ()
    usage: dict[str, int | None] | None = None
    finish_reason: str | None = None
    extra: dict[str, Any] | None = None
    config: dict[str, Any] | None = None
    turns: tuple[TurnRecord, ...] = ()
    warnings: tuple[str, ...] = ()
    """Counted in the report: ``code`` or ``code: detail``, e.g. ``tool_calls_with_finish_stop``."""
    call_size: int = 1
    """Trajectories that the plugin call was to make: n_sample of a group rollout, else 1. A group
    rollout that did not succeed leaves one line, of its first generation, for all of them."""
    phase: str = TRAIN
    step: int | None = None
    """Of the job; None in a test."""
    policy_version: int | None = None
    """The oldest of its turns'."""

    @property
    def num_trajectories(self) -> int:
        """Trajectories that this line stands for."""
        return 1 if self.verdict is Verdict.SUCCESS else self.call_size

    @property
    def is_first_of_call(self) -> bool:
        """Whether to count here what belongs to the plugin call, not to one trajectory of it."""
        return self.call_size == 1 or self.generation == 0


@dataclass(frozen=True)
class TokenRecord:
    """Token evidence of one trajectory: a line of ``tokens.jsonl``; the three lists align."""

    trajectory_id: str
    token_ids: tuple[int, ...]
    loss_weight: tuple[float, ...]
    logprobs: tuple[float, ...]


@dataclass(frozen=True)
class FailedGrading:
    """An attempt of a grader that did not end well."""

    verdict: Verdict
    error: str | None = None
    where: str | None = None
    trajectory_id: str | None = None
    """Which trajectory a single grader was grading; None: all of the group."""


@dataclass(frozen=True)
class GraderRecord:
    """What one grader said of a group. A reward is a finite number or None (ungraded), never 0
    in place of an error."""

    name: str
    weight: float
    verdict: Verdict
    rewards: tuple[float | None, ...]
    """In the order of the group's `trajectory_ids`."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Of a grader that is called for each trajectory the means over its calls."""
    attempts: int = 1
    """Of a grader that is called for each trajectory those of the call that took the most;
    `failed_attempts` has those of each."""
    duration_s: float = 0.0
    error: str | None = None
    where: str | None = None
    traceback: str | None = None
    faults: tuple[FaultRecord, ...] = ()
    """Of all its attempts, those included that a later attempt made good."""
    failed_attempts: tuple[FailedGrading, ...] = ()
    """Of all its calls, those included that a later attempt made good."""
    seq_advantages: tuple[float | None, ...] | None = None
    """Advantages of its own instead of the built-in ones, in the order of `rewards`."""
    tok_advantages: tuple[tuple[float, ...] | None, ...] | None = None
    """The same for each token of each trajectory."""
    call_metrics: tuple[dict[str, float], ...] = ()
    """Of a grader that is called for each trajectory the metrics of each call; else nothing."""


@dataclass(frozen=True)
class GroupRecord:
    """All trajectories of one sample: a line of ``groups.jsonl``, the unit of resume."""

    sample_index: int
    verdict: Verdict
    trajectory_ids: tuple[str, ...]
    rewards: tuple[float | None, ...]
    """Weighted sum over the graders, in the order of `trajectory_ids`; None is ungraded."""
    graders: tuple[GraderRecord, ...] = ()
    error: str | None = None
    warnings: tuple[str, ...] = ()
    """Counted in the report, as in a trajectory."""
    sample_extra: dict[str, Any] | None = None
    """The sample's own ``extra``, which often holds the answer that graders look for."""
    phase: str = TRAIN
    step: int | None = None
    """Of the job; None in a test."""


@dataclass(frozen=True)
class Manifest:
    """What a run was: ``manifest.json``, written when it starts and when it ends."""

    schema_version: int
    run_id: str
    kind: str
    """``test``, ``debug``, ``replay`` or ``train``."""
    status: str
    """``running`` until the run says how it ended."""
    started_at: str
    """UTC, ISO 8601 with microseconds, ending in Z."""
    settings: dict[str, Any]
    hashes: dict[str, str]
    """SHA-256 of plugin code, data and configuration, by file (relative to the workspace)."""
    versions: dict[str, str]
    finished_at: str | None = None
    summary: dict[str, Any] | None = None
    resumed_at: tuple[str, ...] = ()
    """When the run was gone on with, each time, as `started_at`."""
    earlier_s: float = 0.0
    """How long the run had worked before it was last resumed."""


@dataclass(frozen=True)
class PluginLogRecord:
    """One line that plugins logged or printed: a line of ``logs/plugin.jsonl``."""

    at: str
    """UTC, as in the manifest."""
    level: str
    """A level of `logging`; ``PRINT`` for what is printed, ``OUTPUT`` for what is written past
    Python."""
    trajectory_ids: tuple[str, ...]
    """Several when a grader sees a group; none when nobody knows whose it is."""
    attempt: int | None
    """From 0: retried attempts keep their lines."""
    grader: str | None
    """None: a rollout's."""
    step: int | None
    """Of the training; None in a test."""
    logger: str
    text: str
    """With the traceback of an exception below it."""
    num_cut: int = 0
    """Characters that are left out of `text`."""
    num_left_out: int = 0
    """Lines that this one stands for."""


@dataclass(frozen=True)
class SpanRecord:
    """One span of a trace: a line of ``traces.jsonl``. Ids are hexadecimal, as in OTLP."""

    trace_id: str
    span_id: str
    parent_span_id: str | None
    name: str
    kind: str
    """``internal`` or ``client``."""
    started_at: str
    """UTC, as in the manifest."""
    duration_s: float
    trajectory_ids: tuple[str, ...]
    """Several for a group rollout, and for a grader that sees a group."""
    attempt: int
    """Of the rollout or grader, from 0."""
    error: str | None = None
    attributes: dict[str, Any] = field(default_factory=dict)
    """By OpenTelemetry's names where it has one, and ``arkdev.*``."""
    links: tuple[dict[str, str], ...] = ()
    """``trace_id`` and ``span_id`` of spans of other traces."""
