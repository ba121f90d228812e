"""Replay: what a tape holds is given again, to one rollout in a process of its own.

Requests are found by their content among those of their attempt that were not made yet, so that
concurrent calls may come in another order. The first one that is not there ends the rollout.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from arkdev.errors import PluginTimeoutError, TapeMismatchError
from arkdev.tape.callers import Workspace
from arkdev.tape.difference import difference, summary_of
from arkdev.tape.format import (
    ATTEMPT,
    CANCELLED,
    CLOCK,
    EXCHANGES,
    HTTP,
    MCP,
    MODEL,
    SHARED,
    TIMEOUT,
    Line,
    StreamKey,
    Tape,
)
from arkdev.tape.randomness import Generators
from arkdev.tape.recording import current_stream
from arkdev.tape.redaction import Redaction, has_mask, same

_OF_CONNECTIONS = ("initialize", "ping", "tools/list", "resources/list", "prompts/list")
"""MCP requests that are made once for a connection, which a run's rollouts may share."""
_HINT = "if the change is meant, record the tape anew"
_WORDS = {MODEL: "model call", HTTP: "HTTP call", MCP: "MCP call"}


@dataclass(frozen=True)
class _Lent:
    """A request that got another attempt's answer."""

    kind: str
    stream: StreamKey
    request: Line
    place: str


class _Exchanges:
    """The recorded requests of one kind of one attempt, and which of them were made."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self._left = {line["n"]: line for line in sorted(lines, key=lambda line: line["n"])}
        self._by_content: defaultdict[str, deque[int]] = defaultdict(deque)
        self._masked: list[int] = []
        self._asked = {number: _compared(line["request"]) for number, line in self._left.items()}
        for number, asked in self._asked.items():
            self._by_content[_content(asked)].append(number)
            if has_mask(asked):
                self._masked.append(number)

    def take(self, request: Any, *, keeps: bool = False) -> Line | None:
        """Return the first recorded exchange of this request; it counts as made unless `keeps`."""
        numbers = self._by_content.get(_content(request), ())
        found = next((n for n in numbers if n in self._left), None)
        if found is None:
            found = next(
                (n for n in self._masked if n in self._left and same(self._asked[n], request)), None
            )
        if found is None:
            return None
        return self._left[found] if keeps else self._left.pop(found)

    @property
    def left(self) -> list[Line]:
        """Those that were not made, in the order in which they were recorded."""
        return list(self._left.values())


def _content(request: Any) -> str:
    return json.dumps(request, sort_keys=True)


def _compared(request: Any) -> Any:
    """Leave out what nobody compares; parse a JSON body: the order of its keys says nothing."""
    compared = {name: value for name, value in request.items() if name != "headers"}
    body = compared.get("body")
    if isinstance(body, dict) and body.keys() == {"text"}:
        with suppress(ValueError, RecursionError):
            compared["body"] = {"json": json.loads(body["text"])}
    return compared


class Replay:
    """What one process takes from a tape. Safe to use from any thread."""

    def __init__(self, tape: Tape, *, redaction: Redaction, workspace: Workspace) -> None:
        self._tape = tape
        self.redaction = redaction
        self._workspace = workspace
        self._exchanges: dict[tuple[str, StreamKey], _Exchanges] = {}
        self._numbers: defaultdict[tuple[str, StreamKey], int] = defaultdict(int)
        self._clocks: dict[StreamKey, _Readings] = {}
        self._generators: dict[StreamKey, Generators] = {}
        self._lock = threading.RLock()
        self.loops: tuple[asyncio.AbstractEventLoop, ...] = ()
        """Where tasks of the plugin may wait."""
        self.on_mismatch: Callable[[], None] = _ignored
        self.on_out_of_time: dict[StreamKey, Callable[[], object]] = {}
        """By attempt, what ends it: its next step is the one that it had no time for."""
        self.mismatch: TapeMismatchError | None = None
        """The first request that was not on the tape."""
        self._lent: list[_Lent] = []
        self.borrowed: list[str] = []
        """Requests that another rollout of the run had made, for all of them."""

    def has(self, stream: StreamKey) -> bool:
        """Tell whether an attempt is on the tape."""
        return stream in self._tape.streams

    def started_at(self, stream: StreamKey) -> float:
        """Return when an attempt of a rollout began, in seconds since 1970."""
        lines = self._tape.streams.get(stream, ())
        return next((float(line["at"]) for line in lines if line["kind"] == ATTEMPT), 0.0)

    def ran_out_of_time(self, stream: StreamKey) -> bool:
        """Tell whether an attempt took too long when it was recorded."""
        return any(line["kind"] == TIMEOUT for line in self._tape.streams.get(stream, ()))

    def answer(self, kind: str, stream: StreamKey, request: Line) -> Line:
        """Return the recorded exchange of `request`, which is redacted.

        Raises `TapeMismatchError`, from then on always, for one that the attempt did not make, and
        `PluginTimeoutError` where its time was over.
        """
        with self._lock:
            if self.mismatch is not None:
                raise self.mismatch
            self._numbers[kind, stream] += 1
            found = self._found(kind, stream, _compared(request))
            is_last = found is None or found.get("outcome") == CANCELLED
            if is_last and self.ran_out_of_time(stream):
                self.on_out_of_time.get(stream, _ignored)()
                raise PluginTimeoutError("here the recorded attempt ran out of time")
            if found is not None:
                return found
            error = self._missing(kind, stream, _compared(request))
            self.mismatch = error
        self.on_mismatch()
        raise error

    def _found(self, kind: str, stream: StreamKey, request: Line) -> Line | None:
        found = self._of(kind, stream).take(request)
        if found is not None or kind == MODEL:
            return found
        # connections and caches that the run's rollouts shared, when each has its own process
        others = (key for key in self._tape.streams if key != stream)
        for other in (SHARED, *others):
            found = self._of(kind, other).take(request, keeps=True)
            if found is not None:
                if other != SHARED and request.get("method") not in _OF_CONNECTIONS:
                    self.borrowed.append(f"{summary_of(kind, request)} of {other[0]}")
                    place = self._workspace.place(self.loops)
                    self._lent.append(_Lent(kind, stream, request, place))
                return found
        return None

    def check_borrowed(self) -> None:
        """Call `mismatched` when an attempt that is done borrowed the answer to a changed request.

        Such a request took the place of one to the same target, which was not made any more.
        """
        for lent in self._lent:
            target = _target(lent.kind, lent.request)
            instead = next(
                (
                    line["request"]
                    for line in self._of(lent.kind, lent.stream).left
                    if _target(lent.kind, line["request"]) == target
                ),
                None,
            )
            if instead is not None:
                text = difference(lent.kind, recorded=_compared(instead), now=lent.request)
                self.mismatched(
                    TapeMismatchError(
                        f"a {_WORDS[lent.kind]} of {lent.stream[0]} differs from the recorded one\n"
                        f"{summary_of(lent.kind, lent.request)}\n{text}",
                        where=lent.place,
                        hint=_HINT,
                    )
                )
                return

    def mismatched(self, error: TapeMismatchError) -> TapeMismatchError:
        """Keep another reason why the rollout cannot go on; returns the first one."""
        error.where = error.where or self._workspace.place(self.loops)
        with self._lock:
            self.mismatch = self.mismatch or error
        self.on_mismatch()
        return self.mismatch

    def _missing(self, kind: str, stream: StreamKey, request: Line) -> TapeMismatchError:
        number = self._numbers[kind, stream]
        which = f"{_WORDS[kind]} {number} of {stream[0] or 'no attempt'}"
        if stream[1]:
            which += f", attempt {stream[1] + 1}"
        recorded = self._nearest(kind, stream, request)
        if recorded is None:
            text = (
                f"{which} is not on the tape: the attempt had made all recorded ones\n"
                f"{summary_of(kind, request)}"
            )
        else:
            text = (
                f"{which} differs from the recorded one\n{summary_of(kind, request)}\n"
                + difference(kind, recorded=_compared(recorded["request"]), now=request)
            )
        return TapeMismatchError(
            text,
            where=self._workspace.place(self.loops),
            hint=_HINT,
        )

    def _nearest(self, kind: str, stream: StreamKey, request: Line) -> Line | None:
        """Return the recorded request that this one was to be: the next one to its target."""
        left = self._of(kind, stream).left
        target = _target(kind, request)
        return next((line for line in left if _target(kind, line["request"]) == target), None) or (
            left[0] if left else None
        )

    def _of(self, kind: str, stream: StreamKey) -> _Exchanges:
        key = (kind, stream)
        if key not in self._exchanges:
            lines = self._tape.streams.get(stream, ())
            self._exchanges[key] = _Exchanges(line for line in lines if line["kind"] == kind)
        return self._exchanges[key]

    def left_over(self, is_meant: Callable[[str], bool]) -> list[str]:
        """Name the recorded requests that were never made, of attempts whose name `is_meant`."""
        streams = [
            key for key in self._tape.streams if is_meant(key[0]) and not self.ran_out_of_time(key)
        ]
        return [
            summary_of(kind, line["request"])
            for stream in sorted(streams)
            for kind in EXCHANGES
            for line in self._of(kind, stream).left
            if line["request"].get("method") not in _OF_CONNECTIONS
        ]

    def reading(self, name: str, _read: Callable[[], Any]) -> Any:
        """See `arkdev.tape.clock.Clock`."""
        stream = current_stream()
        with self._lock:
            if stream not in self._clocks:
                self._clocks[stream] = _Readings(self._tape.streams.get(stream, ()))
            return self._clocks[stream].next(name, _read)

    def generators(self) -> Generators:
        """Return the random generators of the running attempt."""
        stream = current_stream()
        with self._lock:
            if stream not in self._generators:
                self._generators[stream] = Generators(self._tape.header.seed, *stream)
            return self._generators[stream]


def _ignored() -> None:
    """Nobody waits for a mismatch yet."""


def _target(kind: str, request: Line) -> Any:
    if kind == HTTP:
        return request["method"], request["url"].partition("?")[0]
    if kind == MCP:
        params = request.get("params") or {}
        return request.get("method"), params.get("name")
    return None


class _Readings:
    """The recorded readings of one attempt's clocks, each in its order.

    Code that reads a clock more often than it was recorded goes on from the last reading, at the
    real clock's pace; a wall clock that was never read, from the attempt's start.
    """

    def __init__(self, lines: Iterable[Line]) -> None:
        self._left: defaultdict[str, deque[Any]] = defaultdict(deque)
        self._last: dict[str, tuple[Any, float]] = {}
        for line in lines:
            if line["kind"] == CLOCK:
                self._left[line["name"]].append(line["value"])
            elif line["kind"] == ATTEMPT:
                self._last["time.time"] = (line["at"], time.monotonic())

    def next(self, name: str, read: Callable[[], Any]) -> Any:
        """Return the next reading of the clock called `name`."""
        left = self._left[name]
        if left:
            self._last[name] = (left.popleft(), time.monotonic())
            return self._last[name][0]
        if name not in self._last:
            return read()
        value, taken = self._last[name]
        return _later(name, value, time.monotonic() - taken)


def _later(name: str, value: Any, seconds: float) -> Any:
    if "_ns" in name:
        return value + int(seconds * 1e9)
    return value + seconds if name.startswith("time.") else value
