"""Request, exchange and finding: what a check asks, what came back, what that shows.

A check is a generator, so that it needs no HTTP and a test can play the server::

    check = check_chat("m1")
    request = next(check)                       # what to send
    check.send(Exchange(status=200, body={...}))  # ends with the findings, in StopIteration.value
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from arkdev.endpoints.answers import check_answer, server_sentence
from arkdev.errors import EndpointError, EndpointResponseError

MAX_SAID_CHARS = 200
"""How much of a server's sentence a finding keeps."""

_SAYS_NOTHING = frozenset({408, 409, 429, 502, 503, 504, 529})
"""Statuses of a server that is busy or away, whatever it could do otherwise."""


class Support(StrEnum):
    """Whether a server can do something."""

    YES = "yes"
    PARTLY = "partly"
    NO = "no"
    UNKNOWN = "unknown"
    """It did not get as far as showing it: too busy, no answer in time, connection lost."""


CAPABILITIES = {
    "chat": "chat",
    "usage": "usage",
    "tool_calls": "tool calls",
    "parallel_tool_calls": "parallel tool calls",
    "tool_results": "tool result follow-up",
    "responses": "Responses API",
    "responses_follow_up": "Responses follow-up",
    "streaming": "streamed chat",
    "structured_output": "structured output",
    "logprobs": "logprobs",
    "token_ids": "token ids",
}
"""What is checked, in the order of the table, with its title."""


@dataclass(frozen=True)
class Request:
    """One POST: `path` is below the base URL."""

    path: str
    body: dict[str, Any]


@dataclass(frozen=True)
class Exchange:
    """What came back for one request."""

    status: int | None
    """None when nothing came back; `error` says why."""

    body: object = None
    """Decoded JSON, text that is not JSON, or the completion that a stream was put together to."""

    content_type: str = "application/json"
    num_events: int | None = None
    """Of a stream; None for an answer in one piece."""

    stream_problem: str = ""
    """Why a stream could not be put together."""

    error: EndpointError | None = None
    duration_s: float = 0.0

    @property
    def is_success(self) -> bool:
        """A status from 200 to 299."""
        return self.status is not None and 200 <= self.status < 300

    def completion(self) -> dict[str, Any] | None:
        """Return the answer as a Chat Completions object; None when it is none."""
        if self.status is None or self.stream_problem:
            return None
        try:
            return check_answer(self.body, status=self.status, headers={})
        except EndpointResponseError:
            return None

    def reason(self) -> str:
        """Return why this is no answer, in the server's words; at most `MAX_SAID_CHARS` long."""
        if self.error is not None:
            said = self.error.message
        elif self.stream_problem:
            said = f"a stream that cannot be put together: {self.stream_problem}"
        else:
            said = server_sentence(self.body)
        said = " ".join(said.split())
        return said if len(said) <= MAX_SAID_CHARS else said[: MAX_SAID_CHARS - 1] + "…"


@dataclass(frozen=True)
class Finding:
    """One line of the table."""

    capability: str
    """A key of `CAPABILITIES`."""

    support: Support
    evidence: str
    """What was seen, in one line."""

    status: int | None = None
    """The HTTP status of the answer that decided it; None when nothing was asked or came back."""

    server_said: str = ""
    """The server's sentence when it refused."""

    kind: str = ""
    """What sort of partly or no this is, for `features`: as_text, required_only, streamed, ..."""

    duration_s: float | None = None
    """How long that answer took."""


Check: TypeAlias = Generator[Request, Exchange, list[Finding]]


def found(
    capability: str, support: Support, evidence: str, *, exchange: Exchange, kind: str = ""
) -> Finding:
    """Make the finding that `exchange` shows."""
    return Finding(
        capability,
        support,
        evidence,
        status=exchange.status,
        kind=kind,
        duration_s=exchange.duration_s,
    )


def refused(capability: str, exchange: Exchange) -> Finding:
    """Make the finding for an answer that is none; `unknown` when it shows nothing."""
    is_hidden_error = exchange.is_success and _has_error(exchange.body)
    shows_nothing = exchange.status is None or exchange.status in _SAYS_NOTHING or is_hidden_error
    said = exchange.reason()
    return Finding(
        capability,
        Support.UNKNOWN if shows_nothing else Support.NO,
        said if exchange.status is None else f"{exchange.status}: {said}",
        status=exchange.status,
        server_said="" if exchange.status is None else said,
        kind="refused",
        duration_s=exchange.duration_s,
    )


def not_asked(capability: str, why: str, *, support: Support = Support.NO) -> Finding:
    """Make the finding for something that an earlier one rules out."""
    return Finding(capability, support, f"not asked: {why}", kind="not_asked")


def _has_error(body: object) -> bool:
    return isinstance(body, dict) and bool(body.get("error"))
