"""The JSON documents of commands about training runs, as types."""

from __future__ import annotations

from typing import Any

from typing_extensions import TypedDict

from arkdev.flows.training_runs import SavedModelRow, TrainingRun
from arkdev.harness.steps import StepRecord
from arkdev.harness.summary import Summary


class ValueRow(TypedDict):
    """A hyperparameter that is not the job's own."""

    name: str
    value: Any
    where: str
    in_job: Any
    """None: the job gives none."""


class TrainDocument(TypedDict):
    """``arkdev train --json``."""

    schema_version: int
    run: str
    folder: str
    job_id: str
    exit_code: int
    settings: dict[str, Any]
    values: list[ValueRow]
    steps: list[StepRecord]
    failure: str | None
    """Why the job ended before its last step."""
    was_stopped: bool
    summary: Summary
    """Of the training steps."""
    validation: Summary | None
    models: dict[str, str]
    """Folders of the ``best`` and the ``last`` saved model."""
    warnings: list[str]


class TrainingPart(TypedDict):
    """What a training adds to the document of a run."""

    job_id: str
    failure: str | None
    warnings: list[str]
    steps: list[StepRecord]
    validation: dict[str, Any] | None
    models: dict[str, str]


class _Document(TypedDict):
    schema_version: int


class JobsDocument(_Document):
    """``arkdev list mcj --json``."""

    jobs: list[TrainingRun]
    page_number: int
    page_size: int
    num_jobs: int
    """Of all pages."""


class JobDocument(_Document):
    """``arkdev get mcj RUN --json``: a `TrainingRun`, and more of it."""

    run: str
    job_id: str
    name: str | None
    customization_type: str | None
    foundation_model: str | None
    phase: str
    num_steps_done: int
    num_steps: int | None
    started_at: str
    finished_at: str | None
    folder: str
    models: list[SavedModelRow]
    hyperparameters: dict[str, Any]
    data: list[str]


class DetachedDocument(_Document):
    """``arkdev train --detach --json``."""

    run: str
    folder: str
    pid: int
    output: str
    """The file that it writes to."""


class StopDocument(_Document):
    """``arkdev stop RUN --json``."""

    run: str
    folder: str
    has_ended: bool
    """False: it was asked to end after its step."""


class ExportDocument(_Document):
    """``arkdev export RUN --to DIR --json``."""

    run: str
    step: int
    score: float | None
    base_model: str
    best_step: int | None
    is_merged: bool
    folder: str
    files: list[str]
    num_bytes: int


class WatchLine(_Document):
    """A line of ``arkdev watch --json``: one for each step and round, and one for the end."""

    run: str
    kind: str
    """``step``, ``resumed`` or ``end``."""
    status: str
    """Of the run, when the line was written."""
    step: int | None
    """The step that is done, or that the run goes on from; None at the end."""
    phase: str | None
    """``train``, or ``test`` for a round of validation."""
    metrics: dict[str, float]


TRAINING_DOCUMENTS: dict[str, type] = {
    "export": ExportDocument,
    "get-mcj": JobDocument,
    "list-mcj": JobsDocument,
    "stop": StopDocument,
    "train": TrainDocument,
    "train-detached": DetachedDocument,
    "watch": WatchLine,
}
"""Name of a schema → type of the document."""
