"""The JSON documents of functions that are called by hand, as types."""

from __future__ import annotations

from typing import Any

from typing_extensions import TypedDict

from arkdev.cli.faas_plan_documents import CapacityDocument
from arkdev.faas_emulator.kept_deployments import KeptFunction
from arkdev.flows.faas_deployments import FunctionStatus


class DeployedCodeNote(TypedDict):
    """Which code ran, and how the workspace's differs from it."""

    deployed_at: str
    was_deployed_now: bool
    changed: list[str]
    added: list[str]
    removed: list[str]


class PipelinePluginDocument(TypedDict):
    """``arkdev test pipeline_plugin --json``."""

    schema_version: int
    exit_code: int
    function: str
    """``module:function``."""
    request_id: str
    status: int
    """Of HTTP: 200, 400 for a request that is none of the plugin's, 500."""
    result: dict[str, Any] | None
    error: dict[str, Any] | None
    code: DeployedCodeNote


class _Deployment(TypedDict):
    id: str
    workspace: str
    url: str
    """Of the front door."""
    pid: int
    engine: str
    """``container`` or ``process``."""
    network: str
    endpoint: str
    """Where calls to Ark go; empty: to Ark."""
    started_at: str


class FaasUpDocument(_Deployment):
    """``arkdev faas up --json``."""

    schema_version: int
    functions: list[KeptFunction]


class DeploymentRow(_Deployment):
    """A deployment that is up."""

    functions: list[FunctionStatus]


class FaasStatusDocument(TypedDict):
    """``arkdev faas status --json``."""

    schema_version: int
    deployments: list[DeploymentRow]


class FunctionLogRow(TypedDict):
    """One line that a function logged or printed."""

    at: str
    function: str
    request_id: str
    """Empty: nobody knows whose it is."""
    stream: str
    level: str
    logger: str
    text: str


class FaasLogsDocument(TypedDict):
    """``arkdev faas logs --json``."""

    schema_version: int
    id: str
    lines: list[FunctionLogRow]


class FaasDownDocument(TypedDict):
    """``arkdev faas down --json``."""

    schema_version: int
    ended: list[str]


FAAS_DOCUMENTS: dict[str, type] = {
    "test-pipeline-plugin": PipelinePluginDocument,
    "faas-up": FaasUpDocument,
    "faas-status": FaasStatusDocument,
    "faas-logs": FaasLogsDocument,
    "faas-down": FaasDownDocument,
    "faas-plan": CapacityDocument,
}
"""Name of a schema → type of the document."""
