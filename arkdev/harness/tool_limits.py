"""Plugins' HTTP calls within the limits of their hosts, counted over all loops and threads.

A `arkdev.plugin.traffic.exchange.TrafficRule`. A host with a limit of its own and a limit of one of
its ports has both. A synchronous call that blocks an event loop goes over the number of calls under
way: those that it would wait for may need that loop to end.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from urllib.parse import urlsplit

from arkdev.endpoints.pace import Gate, even_rate
from arkdev.job.tools import ToolLimits
from arkdev.observe.held_calls import current_held_calls
from arkdev.plugin.traffic.exchange import HttpRequest, HttpResponse, Outcome

_DEFAULT_PORTS = {"http": 80, "https": 443}
_UNNOTICED_S = 0.001


@dataclass(frozen=True)
class ToolUse:
    """How the limits of one host were used."""

    host: str
    num_calls: int
    num_held_back: int
    waited_s: float
    """What calls waited for these limits, added up, those included that were given up meanwhile."""
    num_over: int = 0
    """Calls that went although `max_in_flight` were under way, since they blocked an event loop."""


class _Host:
    """The limits of one table, on their loop."""

    def __init__(self, limits: ToolLimits) -> None:
        most, rate = limits.max_in_flight, limits.requests_per_minute
        self.gate = Gate(lambda: most) if most is not None else None
        self.rate = even_rate(rate) if rate is not None else None
        self.num_calls = self.num_held_back = self.num_over = 0
        self.waited_s = 0.0

    async def enter(self, *, may_wait: bool) -> None:
        if self.gate is None:
            return
        if may_wait:
            await self.gate.enter()
        else:
            self.num_over += self.gate.enter_over()

    def note(self, waited_s: float) -> None:
        self.num_calls += 1
        self.num_held_back += waited_s > _UNNOTICED_S
        self.waited_s += waited_s


@dataclass
class _Pass:
    """One call: the gates that it is inside of."""

    hosts: list[_Host]
    is_given: bool = False
    has_ended: bool = False


class ToolRule:
    """Holds calls back as `limits` say, by ``host`` or ``host:port``; `loop` must run meanwhile."""

    def __init__(
        self, limits: Mapping[str, ToolLimits], *, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._hosts = {name: _Host(each) for name, each in limits.items()}
        self._loop = loop
        self._passes: dict[int, _Pass] = {}
        """By the id of the request, from `before` to `after`."""
        self._lock = threading.Lock()

    def before(self, request: HttpRequest) -> Future[None] | None:
        """Wait for the limits of the request's host, when it has any."""
        hosts = self._hosts_of(request)
        if not hosts:
            return None
        passing = _Pass(hosts)
        with self._lock:
            self._passes[id(request)] = passing
        return asyncio.run_coroutine_threadsafe(
            self._enter(passing, may_wait=not request.blocks_a_loop), self._loop
        )

    def answer(self, _request: HttpRequest) -> Outcome | None:
        """Leave the answer to the service."""
        return None

    def changed(self, _request: HttpRequest, response: HttpResponse) -> HttpResponse:
        """Leave the response as it is."""
        return response

    def after(self, request: HttpRequest, _outcome: Outcome, *, duration_s: float) -> None:
        """Give the places back, also those of a call that ended while it waited."""
        del duration_s
        with self._lock:
            passing = self._passes.pop(id(request), None)
            if passing is None:
                return
            passing.has_ended = True
            was_given = passing.is_given
        if was_given:
            self._loop.call_soon_threadsafe(_leave, passing.hosts)

    def use(self) -> tuple[ToolUse, ...]:
        """Return how the limits were used so far; of the hosts that were called."""
        return tuple(
            ToolUse(name, host.num_calls, host.num_held_back, host.waited_s, host.num_over)
            for name, host in self._hosts.items()
            if host.num_calls
        )

    def _hosts_of(self, request: HttpRequest) -> list[_Host]:
        parts = urlsplit(request.url)
        host = parts.hostname or ""
        shown = f"[{host}]" if ":" in host else host
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme)
        names = (shown, f"{shown}:{port}")
        return [self._hosts[name] for name in names if name in self._hosts]

    async def _enter(self, passing: _Pass, *, may_wait: bool) -> None:
        """Take all places first, in one order for all calls, then wait for the rates."""
        held = current_held_calls.get()
        with held.timed() if held else nullcontext():
            await self._take(passing, may_wait=may_wait)
        with self._lock:
            is_given = passing.is_given = not passing.has_ended
        if not is_given:
            _leave(passing.hosts)

    async def _take(self, passing: _Pass, *, may_wait: bool) -> None:
        entered: list[_Host] = []
        waited_s = dict.fromkeys(passing.hosts, 0.0)
        try:
            for host in passing.hosts:
                with _counted(waited_s, host):
                    await host.enter(may_wait=may_wait)
                entered.append(host)
            for host in passing.hosts:
                with _counted(waited_s, host):
                    if host.rate is not None:
                        await host.rate.acquire()
        except asyncio.CancelledError:
            _leave(entered)
            raise
        finally:
            for host in passing.hosts:
                host.note(waited_s[host])


@contextmanager
def _counted(waited_s: dict[_Host, float], host: _Host) -> Iterator[None]:
    started = time.monotonic()
    try:
        yield
    finally:
        waited_s[host] += time.monotonic() - started


def _leave(hosts: list[_Host]) -> None:
    for host in hosts:
        if host.gate is not None:
            host.gate.leave()
