"""Spans: what happened inside a rollout or a grading, when, and within what.

Nothing is recorded until `recording` is entered; until then `active` returns None and whoever
could make a span makes none. A span that is open is the parent of those that its code opens: a
context variable says which one that is, so tasks know it, and threads as `observe.plugin_threads`
says.

::

    invoke_agent demo_rollout        the root: one attempt of a rollout
      chat doubao-seed               a model call
      get_weather                    an observed function
        GET weather.example          an HTTP call that it made
    grade weather                    a root of its own in the same trace
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal

from arkdev.observe.values import cut, error_text

Kind = Literal["internal", "client"]

_NO_BAGGAGE: Mapping[str, str] = {}


class Span:
    """One span. Ids are random numbers of 128 and 64 bits, times nanoseconds since 1970.

    `error` is the text of what went wrong, empty for a span that ended well.
    """

    __slots__ = (
        "attempt",
        "attributes",
        "baggage",
        "ended_ns",
        "error",
        "function",
        "held",
        "is_open",
        "kind",
        "links",
        "name",
        "parent_id",
        "root",
        "span_id",
        "started_ns",
        "threads",
        "trace_id",
        "trajectory_ids",
    )

    def __init__(self, name: str, *, kind: Kind, ids: tuple[int, int], started_ns: int) -> None:
        self.name = name
        self.kind = kind
        self.trace_id, self.span_id = ids
        self.parent_id: int | None = None
        self.started_ns = started_ns
        self.ended_ns = started_ns
        self.attributes: dict[str, Any] = {}
        self.baggage: Mapping[str, str] = _NO_BAGGAGE
        """Attributes that the spans inside this one get as well."""
        self.links: tuple[tuple[int, int], ...] = ()
        """(trace id, span id) of spans of other traces."""
        self.error = ""
        self.root = self
        self.is_open = True
        self.trajectory_ids: tuple[str, ...] = ()
        self.attempt = 0
        self.threads: tuple[threading.Thread, ...] = ()
        """The plugin's own threads that it was made in, the innermost last."""
        self.function: Any = None
        """Of a root: the plugin's own function, without what decorates it."""
        self.held: list[Span] = []
        """Of a root: spans of threads that may turn out not to be the attempt's own."""

    def fail(self, error: BaseException | str) -> None:
        """Say what went wrong; the first word counts."""
        if self.error:
            return
        if isinstance(error, BaseException):
            self.attributes["error.type"] = type(error).__qualname__
            self.error = f"{type(error).__name__}: {error_text(error)}"
        else:
            self.attributes.setdefault("error.type", "_OTHER")
            self.error = cut(error) or "no error text"

    def masked(self, mask: Callable[[Any], Any]) -> Span:
        """Return a copy of which all text went through `mask`."""
        copy = Span(
            mask(self.name),
            kind=self.kind,
            ids=(self.trace_id, self.span_id),
            started_ns=self.started_ns,
        )
        copy.parent_id, copy.ended_ns, copy.links = self.parent_id, self.ended_ns, self.links
        copy.trajectory_ids, copy.attempt = self.trajectory_ids, self.attempt
        copy.attributes, copy.error = mask(self.attributes), mask(self.error)
        return copy


current_span: ContextVar[Span | None] = ContextVar("current_span", default=None)
own_threads: ContextVar[tuple[threading.Thread, ...]] = ContextVar("own_threads", default=())
"""The threads that a plugin started, of which the running code is in the last."""


class Recording:
    """Makes spans and hands those that ended to `on_end`, from whatever thread ended them."""

    def __init__(self, on_end: Callable[[Span], None]) -> None:
        self._on_end = on_end
        # plugins seed the module's own generator, and must find it as they left it
        self._ids = random.Random(os.urandom(16))
        self._epoch_ns = time.time_ns() - time.perf_counter_ns()
        self._lock = threading.Lock()
        self.is_on = True
        self.own_url = ""
        """Of the gateway: its sessions record the model calls that go there."""
        self.num_recorded = 0
        self.num_foreign = 0
        """Spans left out: of threads that lived on after the attempt that started them."""
        self.num_late = 0
        """Spans left out: begun after their attempt had ended."""
        self.num_open = 0
        """Spans that have begun and not ended."""

    def root(
        self,
        name: str,
        *,
        trajectory_ids: tuple[str, ...],
        attempt: int,
        parent: Span | None = None,
        links: tuple[Span, ...] = (),
    ) -> Span:
        """Open the span of an attempt: of a rollout, or of a grader in the trace of `parent`."""
        span = self._opened(name, "internal", parent)
        span.trajectory_ids, span.attempt = trajectory_ids, attempt
        span.links = tuple((link.trace_id, link.span_id) for link in links)
        return span

    def child(
        self,
        name: str,
        *,
        kind: Kind = "internal",
        within: Span | None = None,
        lasted_s: float = 0.0,
    ) -> Span | None:
        """Open a span inside the current one, or `within` another; it began `lasted_s` ago.

        Returns None where no attempt is under way: nobody could say whose it is.
        """
        parent = within or current_span.get()
        if parent is None:
            return None
        if not parent.root.is_open:
            self._leave_out(is_foreign=within is None and bool(own_threads.get()))
            return None
        span = self._opened(name, kind, parent)
        span.started_ns -= int(lasted_s * 1e9)
        span.root, span.attempt = parent.root, parent.attempt
        span.trajectory_ids = parent.trajectory_ids
        span.threads = () if within is not None else own_threads.get()
        if parent.baggage:
            span.baggage = parent.baggage
            span.attributes.update(parent.baggage)
        return span

    def end(self, span: Span) -> None:
        """Close a span, once."""
        with self._lock:
            if not span.is_open:
                return
            span.is_open = False
            self.num_open -= 1
        span.ended_ns = self._epoch_ns + time.perf_counter_ns()
        root = span.root
        if span is root:
            self._release(span)
        elif span.threads:
            with self._lock:
                is_held = root.is_open
                if is_held:
                    root.held.append(span)
            if not is_held:
                self._leave_out(is_foreign=True)
            return
        self._hand_on(span)

    def _release(self, root: Span) -> None:
        """Hand on what was held back, of threads that ended with the attempt.

        A thread that lives on may serve other attempts as well, like a worker with a queue.
        """
        with self._lock:
            held, root.held = root.held, []
        for span in held:
            if any(thread.is_alive() for thread in span.threads):
                self._leave_out(is_foreign=True)
            else:
                self._hand_on(span)

    def _leave_out(self, *, is_foreign: bool) -> None:
        with self._lock:
            if is_foreign:
                self.num_foreign += 1
            else:
                self.num_late += 1

    def _hand_on(self, span: Span) -> None:
        if self.is_on:
            with self._lock:
                self.num_recorded += 1
            self._on_end(span)

    def _opened(self, name: str, kind: Kind, parent: Span | None) -> Span:
        random_bits = self._ids.getrandbits
        trace_id = parent.trace_id if parent is not None else random_bits(128) or 1
        now_ns = self._epoch_ns + time.perf_counter_ns()
        span = Span(name, kind=kind, ids=(trace_id, random_bits(64) or 1), started_ns=now_ns)
        with self._lock:
            self.num_open += 1
        if parent is not None:
            span.parent_id = parent.span_id
        return span


class _Active:
    """The one recording of this process."""

    recording: Recording | None = None


def active() -> Recording | None:
    """Return what records spans, or None."""
    return _Active.recording


def current() -> Span | None:
    """Return the open span that the running code is in."""
    return current_span.get()


@contextmanager
def recording(on_end: Callable[[Span], None]) -> Iterator[Recording]:
    """Record spans inside the block."""
    before, made = _Active.recording, Recording(on_end)
    _Active.recording = made
    try:
        yield made
    finally:
        _Active.recording = before
        made.is_on = False


class current_is:
    """Makes `span` the current one inside the block."""

    __slots__ = ("_span", "_token")

    def __init__(self, span: Span | None) -> None:
        self._span = span

    def __enter__(self) -> Span | None:
        self._token = current_span.set(self._span)
        return self._span

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        current_span.reset(self._token)


class opened:
    """Makes `span` the current one inside the block, then ends it, with the error that left it.

    With None nothing happens.
    """

    __slots__ = ("_span", "_token")

    def __init__(self, span: Span | None) -> None:
        self._span = span

    def __enter__(self) -> Span | None:
        if self._span is not None:
            self._token = current_span.set(self._span)
        return self._span

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if self._span is None:
            return
        current_span.reset(self._token)
        if error is not None:
            self._span.fail(error)
        recording = _Active.recording
        if recording is not None:
            recording.end(self._span)
