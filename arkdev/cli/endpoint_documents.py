"""The JSON documents of `arkdev endpoint`, as types."""

from __future__ import annotations

from typing_extensions import TypedDict


class _Document(TypedDict):
    schema_version: int


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
    """``arkdev endpoint serve --json``, printed once it answers."""

    url: str
    model: str
    skill: float | None
    """This and `latency_s` are the scripted model's."""
    latency_s: float | None
    device: str | None
    """This and the rest are a policy's: ``cpu``, ``cuda``."""
    num_threads: int | None
    max_context_tokens: int | None
    seed: int | None


ENDPOINT_DOCUMENTS: dict[str, type] = {
    "endpoint-list": EndpointsDocument,
    "endpoint-check": EndpointCheckDocument,
    "endpoint-serve": ServedDocument,
}
"""Name of a schema → type of the document."""
