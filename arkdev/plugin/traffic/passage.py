"""How one call passes the rules: before, answer, network, changed, after.

The adapters of the client libraries say how to send a call, and make of an outcome what their
library would give the plugin; everything else is here, once for threads and once for event loops.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import nullcontext
from dataclasses import replace
from typing import TypeVar

from arkdev.errors import ArkdevError
from arkdev.observe.attempt import attempt_here
from arkdev.observe.held_calls import current_held_calls, late_call
from arkdev.plugin.traffic.exchange import (
    HttpFailure,
    HttpRequest,
    HttpResponse,
    Outcome,
    TrafficRule,
)

_Native = TypeVar("_Native")
"""A response object of a client library."""

MAX_READ_BYTES = 8 * 2**20
"""Longer responses are left to the plugin unread."""
_STREAMS = (
    "text/event-stream",
    "application/x-ndjson",
    "application/jsonl",
    "application/stream+json",
    "multipart/x-mixed-replace",
)
_MAYBE_STREAMS = ("application/octet-stream", "audio/", "video/")
_NO_BODY = frozenset((204, 304))
_SWITCHING_PROTOCOLS = 101


class Passage:
    """The rules, for the calls that are to pass them.

    `own_urls` are the beginnings of URLs that belong to arkdev itself, such as the gateway's.
    """

    def __init__(self, rules: Sequence[TrafficRule], *, own_urls: Sequence[str] = ()) -> None:
        self._rules = tuple(rules)
        self._own_urls = tuple(url.rstrip("/") for url in own_urls)

    def is_for(self, url: str) -> bool:
        """Tell whether a call to `url` from here is a plugin's."""
        return attempt_here() is not None and not any(
            url.startswith(own) and url[len(own) : len(own) + 1] in ("", "/", "?")
            for own in self._own_urls
        )

    def through(
        self,
        request: HttpRequest,
        send: Callable[[], tuple[_Native, HttpResponse]],
        *,
        failure: Callable[[Exception], HttpFailure],
    ) -> _Native | Outcome:
        """Take a call through the rules, in a thread.

        Returns the library's own response, or what is to be given in its place; raises what `send`
        raised, which `failure` puts into words, and `LateCallError` when the attempt ended while
        the call was held back.
        """
        if _runs_a_loop():
            request = replace(request, blocks_a_loop=True)
        ending = _Ending(self._rules, request, failure)
        with ending:
            for rule in self._rules:
                hold = rule.before(request)
                if hold is not None:
                    _wait(hold)
            ending.start()
            native, outcome = None, self._answer(request)
            if outcome is None:
                native, outcome = send()
            given = self._changed(request, outcome)
            ending.outcome = given
        return native if given is outcome and native is not None else given

    async def async_through(
        self,
        request: HttpRequest,
        send: Callable[[], Awaitable[tuple[_Native, Outcome]]],
        *,
        failure: Callable[[Exception], HttpFailure],
        is_held: bool = False,
    ) -> _Native | Outcome:
        """Take a call through the rules, on an event loop; `is_held`: after `async_hold`."""
        ending = _Ending(self._rules, request, failure)
        with ending:
            if not is_held:
                await self._hold(request)
            ending.start()
            native, outcome = None, self._answer(request)
            if outcome is None:
                native, outcome = await send()
            given = self._changed(request, outcome)
            ending.outcome = given
        return native if given is outcome and native is not None else given

    async def async_hold(self, request: HttpRequest) -> None:
        """Hold a call back, where that must not count towards the library's own timeout.

        The call ends here when the plugin gives it up.
        """
        try:
            await self._hold(request)
        except BaseException as error:
            self.give_up(request, error)
            raise

    def give_up(self, request: HttpRequest, error: BaseException | None = None) -> None:
        """End a call that was held back and is not going to be sent."""
        _Ending(self._rules, request, _unexpected).end(error)

    async def _hold(self, request: HttpRequest) -> None:
        for rule in self._rules:
            hold = rule.before(request)
            if hold is not None:
                await _async_wait(hold)

    def _answer(self, request: HttpRequest) -> Outcome | None:
        for rule in self._rules:
            outcome = rule.answer(request)
            if outcome is not None:
                return outcome
        return None

    def _changed(self, request: HttpRequest, outcome: Outcome) -> Outcome:
        if isinstance(outcome, HttpResponse) and outcome.body is not None:
            for rule in self._rules:
                outcome = rule.changed(request, outcome)
        return outcome


def _runs_a_loop() -> bool:
    """Tell whether this thread's event loop stands still while the caller waits."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _wait(hold: Future[None]) -> None:
    """Wait in a thread until a call may go on; raises `LateCallError` when it must not any more."""
    held = current_held_calls.get()
    try:
        with held.holding(hold) if held else nullcontext():
            hold.result()
    except CancelledError:  # nobody else cancels it: the caller's thread waits here
        raise late_call() from None


async def _async_wait(hold: Future[None]) -> None:
    """Do the same on an event loop, where the plugin can also give the call up."""
    held = current_held_calls.get()
    with held.holding(hold) if held else nullcontext():
        waiting = asyncio.wrap_future(hold)
        try:
            await asyncio.wait({waiting})
        except asyncio.CancelledError:
            waiting.cancel()
            raise
        if waiting.cancelled():
            raise late_call()
        waiting.result()


class _Ending:
    """Tells the rules how a call ended, once, however it ends."""

    def __init__(
        self,
        rules: Sequence[TrafficRule],
        request: HttpRequest,
        failure: Callable[[Exception], HttpFailure],
    ) -> None:
        self._rules = rules
        self._request = request
        self._failure = failure
        self._started: float | None = None
        self.outcome: Outcome | None = None

    def start(self) -> None:
        self._started = time.perf_counter()

    def __enter__(self) -> None:
        return None

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        self.end(error)

    def end(self, error: BaseException | None) -> None:
        duration_s = 0.0 if self._started is None else time.perf_counter() - self._started
        outcome = self.outcome
        if isinstance(error, Exception) and not isinstance(error, ArkdevError):
            outcome = self._failure(error)
        elif outcome is None:
            outcome = HttpFailure("cancelled", described(error) if error else "it was not sent")
        for rule in self._rules:
            rule.after(self._request, outcome, duration_s=duration_s)


def _unexpected(error: Exception) -> HttpFailure:
    return HttpFailure("raise", described(error))


def described(error: BaseException) -> str:
    """Name an error; some of the libraries' have no text of their own."""
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def joined_headers(items: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return headers as `HttpResponse` has them."""
    headers: dict[str, str] = {}
    for name, value in items:
        lower = name.lower()
        if lower in headers:
            value = f"{headers[lower]}{_JOINTS.get(lower, ', ')}{value}"
        headers[lower] = value
    return headers


_JOINTS = {"set-cookie": "\n"}
_OF_THE_BODY = ("content-encoding", "transfer-encoding", "content-length")


def headers_to_give(response: HttpResponse) -> list[tuple[str, str]]:
    """Return the headers of a response whose body is given whole and decoded."""
    headers = [
        (name, value)
        for name, values in response.headers.items()
        if name not in _OF_THE_BODY
        for value in values.split(_JOINTS.get(name, "\0"))
    ]
    return [*headers, ("content-length", str(len(response.body or b"")))]


def is_stream(status: int, headers: Mapping[str, str]) -> bool:
    """Tell whether the plugin is to read a response as it comes, from its head.

    Event streams, lines of JSON, what is long, and binary data of unknown length.
    """
    if status in _NO_BODY:
        return False
    content_type = headers.get("content-type", "").lower()
    length = headers.get("content-length", "")
    if status == _SWITCHING_PROTOCOLS or content_type.startswith(_STREAMS):
        return True
    if length.isdecimal():
        return int(length) > MAX_READ_BYTES
    return content_type.startswith(_MAYBE_STREAMS)
