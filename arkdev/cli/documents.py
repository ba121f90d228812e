"""The JSON documents that commands print with ``--json``, as types; `arkdev schema` prints them.

A document only grows within one ``schema_version``: scripts read the keys that they know.
"""

from __future__ import annotations

from typing import Any

from typing_extensions import TypedDict

from arkdev.cli.debug_documents import (
    ContextRow,
    DebugDocument,
    DebugPart,
    ForecastDocument,
    StepDocument,
)
from arkdev.cli.doctor_documents import DoctorDocument, TokenDriftDocument
from arkdev.cli.endpoint_documents import ENDPOINT_DOCUMENTS
from arkdev.cli.faas_documents import FAAS_DOCUMENTS
from arkdev.cli.freeze_documents import FindingRow, FreezeDocument
from arkdev.cli.grader_documents import GraderAttackDocument, GraderRepeatDocument
from arkdev.cli.output import JSON_SCHEMA_VERSION
from arkdev.cli.training_documents import TRAINING_DOCUMENTS, TrainingPart
from arkdev.flows.data_report import DuplicateReport, JobNumbers, SetReport
from arkdev.harness.failures import Failure, Fate
from arkdev.harness.grader_diff import GraderDiff
from arkdev.harness.reward_changes import RunChanges
from arkdev.harness.summary import Summary
from arkdev.harness.thresholds import ThresholdResult
from arkdev.observe.span_export import ExportCounts
from arkdev.runs.reader import RunSummary, TornLine
from arkdev.runs.records import (
    GraderRecord,
    GroupRecord,
    Manifest,
    PluginLogRecord,
    SpanRecord,
    TrajectoryRecord,
)


class _Document(TypedDict):
    schema_version: int


class TraceNote(TypedDict):
    """What became of the spans of a test."""

    num_spans: int
    receivers: list[ExportCounts]


class TestDocument(_Document):
    """``arkdev test plugin --json``."""

    run: str
    folder: str
    exit_code: int
    settings: dict[str, Any]
    summary: Summary
    clients_built: int
    judge_calls: int
    client_cost_s: float
    thresholds: list[ThresholdResult]
    warnings: list[str]
    trace: TraceNote | None
    """None: nothing was traced."""


class SampleTestDocument(TestDocument):
    """``arkdev test plugin --sample N --json``."""

    trajectories: list[TrajectoryRecord]
    groups: list[GroupRecord]


class ReplayDocument(_Document):
    """``arkdev replay RUN --json``."""

    run: str
    folder: str
    replayed: str
    """Id of the run that was graded again."""
    exit_code: int
    settings: dict[str, Any]
    summary: Summary
    changes: RunChanges
    diff: GraderDiff | None
    """Of ``--diff``."""
    judge_calls: int
    num_left_out: int
    """Groups that the run does not hold whole."""
    num_not_whole: int
    """Trajectories with values that the run could not keep as they were."""
    warnings: list[str]


class RunsDocument(_Document):
    """``arkdev runs --json``."""

    runs: list[RunSummary]


class RunDocument(_Document):
    """``arkdev show RUN --json``: the manifest, its summary computed anew from the records."""

    run: Manifest
    torn: list[TornLine]
    debug: DebugPart | None
    """None: it is no debug run."""
    training: TrainingPart | None
    """None: it is no training."""


class SiblingRow(TypedDict):
    """A sibling's advantage, and what it would be without the trajectory."""

    trajectory_id: str
    advantage: float
    without: float
    shift: float
    changes_sign: bool


class TrajectoryDocument(_Document):
    """``arkdev show RUN TRAJECTORY --json``."""

    trajectory: TrajectoryRecord
    index: int
    """Place of the trajectory in its group."""
    fate: Fate
    failures: list[Failure]
    """Of its rollout's attempts in order, then of its gradings."""
    sibling_shift: list[SiblingRow] | None
    """None where nothing is known of it (docs/failures.md)."""
    reward: float | None
    graders: list[GraderRecord]
    contexts: list[ContextRow]
    context_problem: str
    """Why what a critic or a teacher is given cannot be put in; "" when it can."""
    logs: list[PluginLogRecord]
    """What its rollout and its graders logged, in order."""


class TraceDocument(_Document):
    """``arkdev show RUN TRAJECTORY --trace --json``."""

    trajectory: str
    spans: list[SpanRecord]
    """In the order of their beginnings."""


class LogsDocument(_Document):
    """``arkdev show RUN --logs --json``."""

    logs: list[PluginLogRecord]


class FailedDocument(_Document):
    """``arkdev show RUN --failed --json``."""

    trajectories: list[TrajectoryRecord]
    groups: list[GroupRecord]


class InitDocument(_Document):
    """``arkdev init DIR --json``."""

    template: str
    directory: str
    files: list[str]


class TemplateRow(TypedDict):
    """One template."""

    name: str
    description: str


class TemplatesDocument(_Document):
    """``arkdev init --list --json``."""

    default: str
    templates: list[TemplateRow]


class DataCheckDocument(_Document):
    """``arkdev data check --json``."""

    exit_code: int
    sets: list[SetReport]
    duplicates: DuplicateReport
    job: JobNumbers | None
    """None for files alone, and when the data is refused."""
    notes: list[str]


class JobCheckDocument(_Document):
    """``arkdev check --json``."""

    exit_code: int
    job: str
    customization_type: str | None
    """None: the file is no valid job."""
    inferred: list[str]
    problems: list[FindingRow]
    warnings: list[FindingRow]


class PlanRow(TypedDict):
    """What one key of a job does on the plan's backend."""

    key: str
    value: str
    origin: str
    """``file``, ``default``, ``inferred``, ``flag`` or ``workspace``."""
    where: str
    support: str
    """``used``, ``partly``, ``recorded`` or ``refused``."""
    effect: str
    instead: str
    """The nearest setting that works; "" but for what is refused."""


class DifferenceRow(TypedDict):
    """What local training and a job on the platform do not do alike."""

    what: str
    local: str
    remote: str


class PlanProblemRow(TypedDict):
    """Why a job cannot run on the plan's backend."""

    where: str
    """file:line, or a flag."""
    message: str


class JobPlanDocument(_Document):
    """``arkdev plan --backend B --json``."""

    exit_code: int
    job: str
    backend: str
    customization_type: str
    work: list[str]
    keys: list[PlanRow]
    differences: list[DifferenceRow]
    notes: list[str]
    problems: list[PlanProblemRow]


class HyperparameterRow(TypedDict):
    """One hyperparameter of a method; None where nothing is publicly known."""

    name: str
    type: str
    default_value: str | int | float | bool | None
    min: float | None
    is_min_excluded: bool
    max: float | None
    options: list[str] | None
    usual: list[str | int | float | bool]
    seen: list[str | int | float | bool]
    evidence: str
    """``documented``, ``example`` or ``inferred``: whether the method takes it."""
    sources: list[str]
    meaning: str
    note: str


class MethodSection(TypedDict):
    """The hyperparameters of one training method."""

    customization_type: str
    hyperparameters: list[HyperparameterRow]


class FoundationModelDocument(_Document):
    """``arkdev get foundation-model --json``."""

    model: str
    version: str
    is_live: bool
    """False: arkdev's catalogue, which does not know what a model supports."""
    methods: list[MethodSection]


DOCUMENTS: dict[str, type] = {
    "test": TestDocument,
    "test-sample": SampleTestDocument,
    "debug": DebugDocument,
    "forecast": ForecastDocument,
    "test-grader-attack": GraderAttackDocument,
    "test-grader-repeat": GraderRepeatDocument,
    "replay": ReplayDocument,
    "runs": RunsDocument,
    "show": RunDocument,
    "show-step": StepDocument,
    "show-trajectory": TrajectoryDocument,
    "show-trace": TraceDocument,
    "show-logs": LogsDocument,
    "show-failed": FailedDocument,
    **ENDPOINT_DOCUMENTS,
    "init": InitDocument,
    "init-list": TemplatesDocument,
    "doctor": DoctorDocument,
    "doctor-tokens": TokenDriftDocument,
    "freeze": FreezeDocument,
    **FAAS_DOCUMENTS,
    "data-check": DataCheckDocument,
    "check": JobCheckDocument,
    "plan": JobPlanDocument,
    "get-foundation-model": FoundationModelDocument,
    **TRAINING_DOCUMENTS,
}
"""Name of a schema → type of the document."""


def json_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of the document called `name`, a key of `DOCUMENTS`."""
    from pydantic import TypeAdapter  # a fifth of a second, and only this command wants it

    schema = TypeAdapter(DOCUMENTS[name]).json_schema(mode="serialization")
    schema["properties"]["schema_version"] = {"const": JSON_SCHEMA_VERSION}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"arkdev/{name}/v{JSON_SCHEMA_VERSION}",
        **schema,
    }
