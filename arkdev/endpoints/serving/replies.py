"""What a served model answers: a whole body, or events while they come."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias
from uuid import uuid4

from arkdev.endpoints.serving.requests import RequestError, error_body

CREATED = 1_735_689_600
"""The time stamp of what is to have the same bytes each time (2025-01-01 UTC)."""

Events: TypeAlias = AsyncGenerator[dict[str, Any]]
"""Chunks of a Chat Completions answer, or the events of a Response."""


@dataclass(frozen=True)
class Reply:
    """What goes back: a JSON body, or a str that is sent as text; seconds to wait before."""

    body: Any
    latency_s: float = 0.0
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    events: Events | None = None
    """In place of a body: what a stream is made of while the answer is not complete."""


class ServedModel(Protocol):
    """What `serving.server.ModelServer` serves. Neither call raises for a wrong request."""

    name: str

    async def chat(self, body: object, *, seed: int | None) -> Reply:
        """Answer a Chat Completions request; `seed` wins over the one in its body."""
        ...

    async def responses(self, body: object, *, seed: int | None) -> Reply:
        """Answer a Responses request."""
        ...


def refusal(error: RequestError) -> Reply:
    """Return the answer to a request that is not valid."""
    request_id = uuid4().hex
    return Reply(
        error_body(error, request_id=request_id),
        status=error.status,
        headers={"x-request-id": request_id},
    )
