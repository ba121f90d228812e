"""The JSON documents of debug runs, as types (see `arkdev.cli.documents`)."""

from __future__ import annotations

from typing import Any

from typing_extensions import TypedDict

from arkdev.harness.forecast.forecast import Forecast
from arkdev.harness.steps import StepRecord
from arkdev.harness.summary import Summary
from arkdev.harness.thresholds import ThresholdResult


class DebugDocument(TypedDict):
    """``arkdev debug --json``."""

    schema_version: int
    run: str
    folder: str
    job_id: str
    report: str
    """Path of the report as a page."""
    exit_code: int
    settings: dict[str, Any]
    steps: list[StepRecord]
    failure: str | None
    """Why a job would fail; None: it would not."""
    summary: Summary
    """Of the training steps."""
    validation: Summary | None
    forecast: Forecast
    thresholds: list[ThresholdResult]
    warnings: list[str]


class ForecastDocument(TypedDict):
    """``arkdev forecast RUN --json``."""

    schema_version: int
    run: str
    folder: str
    forecast: Forecast


class StepGroupRow(TypedDict):
    """A group of a step."""

    phase: str
    sample_index: int
    verdict: str
    error: str | None
    trajectory_ids: list[str]
    rewards: list[float | None]
    advantages: list[float | list[float] | None]
    """None where there is none, as in a round of validation. Of OPD the task's."""
    loss_shares: list[float | None]
    """Each trajectory's part of the step's loss; None where nobody counted the tokens."""


class SpreadRow(TypedDict):
    """Of the tokens of a trajectory."""

    mean: float
    min: float
    max: float


class DistilledRow(TypedDict):
    """What the teacher's endpoint made of a trajectory of an OPD job."""

    trajectory_id: str
    num_tokens: int
    gap: SpreadRow | None
    """Student's minus teacher's log probability."""
    advantages: SpreadRow | None
    """None: the job leaves a coefficient open."""
    problem: str
    """Why there are no numbers; "" when there are."""


class StepDocument(TypedDict):
    """``arkdev show RUN --step N --json``."""

    schema_version: int
    steps: list[StepRecord]
    """The step, and the round of validation after it."""
    groups: list[StepGroupRow]
    distilled: list[DistilledRow]
    notes: list[str]
    """What was not computed, and why."""


class DebugPart(TypedDict):
    """What a debug run adds to the document of a run."""

    job_id: str | None
    """None: the run has not ended."""
    failure: str | None
    warnings: list[str]
    steps: list[StepRecord]
    validation: dict[str, Any] | None


class ContextMessageRow(TypedDict):
    """A message as a critic or a teacher sees it."""

    message: dict[str, Any]
    is_inserted: bool
    """True: the policy does not see it."""


class TeacherReplyRow(TypedDict):
    """What a teacher's endpoint said before an answer of the policy."""

    turn: int
    """Number of the answer, from 0."""
    reply: str
    error: str
    """Why there is no reply; "" when there is one."""


class ContextRow(TypedDict):
    """What a critic or a teacher sees of a trajectory."""

    reader: str
    """``critic``, or the teacher's name."""
    estimated_tokens: int
    """Of what the policy does not see."""
    messages: list[ContextMessageRow]
    replies: list[TeacherReplyRow]
