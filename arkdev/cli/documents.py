"""The JSON documents that commands print with ``--json``, as types; `arkdev schema` prints them.

A document only grows within one ``schema_version``: scripts read the keys that they know.
"""

from __future__ import annotations

from typing import Any

from typing_extensions import TypedDict

from arkdev.cli.output import JSON_SCHEMA_VERSION
from arkdev.harness.attack_verdicts import AttackedGraderReport
from arkdev.harness.failures import Failure, Fate
from arkdev.harness.grader_diff import GraderDiff
from arkdev.harness.repeated_grading import GraderAgreement, RepeatedGrader
from arkdev.harness.reward_changes import RunChanges
from arkdev.harness.summary import Summary
from arkdev.harness.thresholds import ThresholdResult
from arkdev.runs.reader import RunSummary, TornLine
from arkdev.runs.records import GraderRecord, GroupRecord, Manifest, TrajectoryRecord


class _Document(TypedDict):
    schema_version: int


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


class GraderAttackDocument(_Document):
    """``arkdev test grader --attack --json``."""

    run: str | None
    """Id of the run that the samples come from; None: `data`."""
    data: list[str]
    exit_code: int
    num_samples: int
    num_without_reference: int
    """Samples whose ``extra`` names no right answer."""
    reference_key: str | None
    graders: list[AttackedGraderReport]
    judge_calls: int
    warnings: list[str]


class GraderRepeatDocument(_Document):
    """``arkdev test grader --repeat N --json``."""

    run: str | None
    data: list[str]
    exit_code: int
    num_groups: int
    num_gradings: int
    """Of each trajectory: N."""
    num_small_groups: int
    """Groups that were left out: fewer than two successful rollouts."""
    graders: list[RepeatedGrader]
    """With several also ``weighted``, the sum that training sees."""
    agreement: GraderAgreement | None
    judge_calls: int
    warnings: list[str]


class RunsDocument(_Document):
    """``arkdev runs --json``."""

    runs: list[RunSummary]


class RunDocument(_Document):
    """``arkdev show RUN --json``: the manifest, its summary computed anew from the records."""

    run: Manifest
    torn: list[TornLine]


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


class FailedDocument(_Document):
    """``arkdev show RUN --failed --json``."""

    trajectories: list[TrajectoryRecord]
    groups: list[GroupRecord]


class EndpointRow(TypedDict):
    """One endpoint that has a name."""

    name: str
    url: str | None
    model: str | None
    family: str
    api_key_env: str | None
    is_key_set: bool | None
    """None: it needs no key."""
    source: str


class EndpointsDocument(_Document):
    """``arkdev endpoint list --json``."""

    endpoints: list[EndpointRow]


class CapabilityRow(TypedDict):
    """What one request told of an endpoint."""

    name: str
    support: str
    evidence: str
    status: int | None
    server_said: str | None
    duration_s: float | None


class FeatureRow(TypedDict):
    """Whether a part of arkdev works with an endpoint."""

    name: str
    support: str
    reason: str


class EndpointCheckDocument(_Document):
    """``arkdev endpoint check NAME --json``."""

    endpoint: str
    url: str
    model: str
    num_requests: int
    capabilities: list[CapabilityRow]
    features: list[FeatureRow]


class ServedDocument(_Document):
    """``arkdev endpoint serve scripted --json``, printed once it answers."""

    url: str
    model: str
    skill: float
    latency_s: float


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


class CheckRow(TypedDict):
    """One thing that `arkdev doctor` looked at."""

    name: str
    status: str
    """``ok``, ``note``, ``warning`` or ``error``."""
    detail: str
    fix: str
    """What to do; empty where there is nothing to do."""


class DoctorDocument(_Document):
    """``arkdev doctor --json``."""

    exit_code: int
    checks: list[CheckRow]


DOCUMENTS: dict[str, type] = {
    "test": TestDocument,
    "test-sample": SampleTestDocument,
    "test-grader-attack": GraderAttackDocument,
    "test-grader-repeat": GraderRepeatDocument,
    "replay": ReplayDocument,
    "runs": RunsDocument,
    "show": RunDocument,
    "show-trajectory": TrajectoryDocument,
    "show-failed": FailedDocument,
    "endpoint-list": EndpointsDocument,
    "endpoint-check": EndpointCheckDocument,
    "endpoint-serve": ServedDocument,
    "init": InitDocument,
    "init-list": TemplatesDocument,
    "doctor": DoctorDocument,
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
