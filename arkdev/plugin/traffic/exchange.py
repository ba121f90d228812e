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
    """``httpx``, ``httpx2``, ``aiohttp``, ``requests`` or ``urllib3``."""
    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None
    """None: a stream, which cannot be read before it is sent."""
    blocks_a_loop: bool = False
    """A synchronous call in a thread that runs an event loop: what waits for that loop waits for
    it."""

    @property
    def host(self) -> str:
        """``host:port``, or the host alone where the URL names no port."""
        return self.url.partition("://")[2].partition("/")[0].rpartition("@")[2].partition("?")[0]


@dataclass(frozen=True)
class HttpResponse:
    """What came back. Header names are in lower case; `body` is decoded (no content encoding)."""

    status: int
    headers: Mapping[str, str]
    """Values of a header that came several times are joined: by ``, ``, of ``set-cookie`` by a line
    break."""
    body: bytes | None
    """None: an event stream or another one, which the plugin reads as it comes."""
    is_injected: bool = False
    """A rule made it in place of the service, and has recorded the fault."""


@dataclass(frozen=True)
class HttpFailure:
    """No answer came.

    Of one that a rule made, the adapter raises the error that the library itself raises then.
    """

    kind: str
    """``timeout``, ``unreachable``, ``raise`` (the connection broke, or another error of the
    library), ``cancelled`` (given up by the plugin, or not sent: no failure; for `after` alone)."""
    message: str
    is_injected: bool = False
    """As of a response."""


Outcome = HttpResponse | HttpFailure


class TrafficRule(Protocol):
    """Acts on the HTTP calls of plugins. Called in the context of the plugin that makes the call.

    Methods are called from event loops and from threads, must not block, and see
    `arkdev.observe.attempt.attempt_here`. All of one call get the same request object. What a
    method raises reaches the plugin.
    """

    def before(self, request: HttpRequest) -> Future[None] | None:
        """Hold the call back until the future is done; None: do not.

        Rules are asked one after the other. The future must not wait for the caller's thread, which
        a synchronous client blocks; of one that `blocks_a_loop`, nor for other calls to end: they
        may need that loop. It is cancelled when the plugin gives the call up meanwhile, and when
        the plugin's attempt ends.
        """
        ...

    def answer(self, request: HttpRequest) -> Outcome | None:
        """Answer in place of the network; None: send it. The first rule that answers decides."""
        ...

    def changed(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        """Return what the plugin gets of a response, a rule's or a service's: it, or another.

        Not asked about streams.
        """
        ...

    def after(self, request: HttpRequest, outcome: Outcome, *, duration_s: float) -> None:
        """The call ended with what the plugin got; seconds, without the time it was held back.

        Called once for every call, whatever happened. Of a stream (`HttpResponse.body` is None)
        the call ends when its head is there.
        """
        ...
