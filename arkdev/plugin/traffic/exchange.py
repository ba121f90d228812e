"""One HTTP call of a plugin, whichever library makes it, and the rules that may act on it.

A call of a weather tool that a limit holds back for a while and that then times out passes a rule
like this::

    rule.before(request)                                   # a future to wait for
    rule.answer(request)                                   # None: let it through
    rule.after(request, HttpFailure("timeout", "..."), duration_s=5.0)

Model calls of clients that are wrapped, handed out by the proxy or pointed at the gateway are not
traffic: they belong to the session (decision 10).
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class HttpRequest:
    """What a plugin is about to send. Header names are in lower case."""

    library: str
    """``httpx``, ``httpx2``, ``aiohttp`` or ``requests``."""
    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None
    """None: a stream, which cannot be read before it is sent."""

    @property
    def host(self) -> str:
        """``host:port``, or the host alone where the URL names no port."""
        return self.url.partition("://")[2].partition("/")[0].rpartition("@")[2].partition("?")[0]


@dataclass(frozen=True)
class HttpResponse:
    """What came back. Header names are in lower case; `body` is decoded (no content encoding)."""

    status: int
    headers: Mapping[str, str]
    body: bytes | None
    """None: an event stream, which the plugin reads as it comes."""


@dataclass(frozen=True)
class HttpFailure:
    """No answer came: `kind` is ``timeout``, ``unreachable`` or ``raise``; `message` says why.

    The adapter raises the error that the library itself raises in this case.
    """

    kind: str
    message: str


Outcome = HttpResponse | HttpFailure


class TrafficRule(Protocol):
    """Acts on the HTTP calls of plugins. Called in the context of the plugin that makes the call.

    Methods are called from event loops and from threads, must not block, and see
    `arkdev.observe.attempt.current_attempt`.
    """

    def before(self, request: HttpRequest) -> Future[None] | None:
        """Hold the call back until the future is done; None: do not."""
        ...

    def answer(self, request: HttpRequest) -> Outcome | None:
        """Answer in place of the network; None: send it."""
        ...

    def changed(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        """Return what the plugin gets of a response: the same, or another."""
        ...

    def after(self, request: HttpRequest, outcome: Outcome, *, duration_s: float) -> None:
        """The call ended with what the plugin got; seconds, without the time it was held back."""
        ...
