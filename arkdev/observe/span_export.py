"""Spans on their way out of the process: in batches, from a thread of their own.

Whatever a receiver does (refuse, hang, be gone), the run goes on as if nothing were sent; what did
not arrive is counted.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from arkdev.observe.spans import Span

BATCH_SIZE = 512
"""Spans in one request."""
MAX_WAITING = 32_768
"""Spans that wait to be sent, at most; a run of 128 rollouts at once makes some 2,000 a second."""
EVERY_S = 1.0
CLOSE_S = 4.0
"""How long the end of a run waits for the last spans."""
INTERRUPTED_CLOSE_S = 1.0
"""The same after Ctrl-C."""
TROUBLE_S = 1.5
"""How long of it for a receiver that has already failed to take them: one more try."""
_LOOK_EVERY_S = 0.05


class SpanReceiver(Protocol):
    """Where spans go. Called from one thread, never two calls at once."""

    name: str
    """For people: a URL, a service."""

    def send(self, spans: Sequence[Span]) -> str:
        """Send a batch; returns why it did not arrive, or an empty text. May raise."""
        ...

    def close(self, timeout_s: float) -> str:
        """Send what it still holds, for at most so long; returns as `send` does. May raise."""
        ...

    @property
    def num_unconfirmed(self) -> int:
        """Spans that it took, and of which it does not know that they arrived."""
        ...

    @property
    def trouble(self) -> str:
        """Why what it is sending has not arrived so far; empty where nothing went wrong."""
        ...


@dataclass(frozen=True)
class ExportCounts:
    """What became of the spans meant for one receiver."""

    receiver: str
    num_sent: int
    num_lost: int
    reason: str = ""
    """Of the first loss."""


class SpanExport:
    """Sends spans to one receiver. `add` costs an append; `mask` takes the secrets out of text."""

    def __init__(self, receiver: SpanReceiver, *, mask: Callable[[Any], Any]) -> None:
        self._receiver = receiver
        self._mask = mask
        self._waiting: deque[Span] = deque()
        self._num_added = 0
        self._num_sent = 0
        self._num_full = 0
        self._reason = ""
        self._wake = threading.Event()
        self._closes_at: float | None = None
        self._closes_after_s = CLOSE_S
        self._thread = threading.Thread(target=self._work, name="arkdev-spans", daemon=True)
        self._thread.start()

    def add(self, span: Span) -> None:
        """Take a span that ended; from any thread."""
        self._num_added += 1
        if len(self._waiting) >= MAX_WAITING:
            self._num_full += 1
            return
        self._waiting.append(span)
        if len(self._waiting) >= BATCH_SIZE:
            self._wake.set()

    def begin_closing(self, timeout_s: float = CLOSE_S) -> None:
        """Send what waits, for at most so long; returns at once."""
        self._closes_after_s = timeout_s
        self._closes_at = time.monotonic() + timeout_s
        self._wake.set()

    def closed(self) -> ExportCounts:
        """Wait for that, and say what became of all spans.

        A receiver that hangs is left behind with its thread.
        """
        self._wait()
        num_lost = self._num_added - self._num_sent + self._receiver.num_unconfirmed
        reason = self._reason
        if num_lost and not reason:
            reason = self._mask(self._receiver.trouble) or (
                "too many at once"
                if self._num_full
                else f"no answer within {self._closes_after_s:g} s"
            )
        return ExportCounts(self._receiver.name, self._num_added - num_lost, num_lost, reason)

    def _wait(self) -> None:
        ends_at = self._closes_at or 0.0
        has_trouble = False
        while self._thread.is_alive() and (left_s := ends_at - time.monotonic()) > 0:
            self._thread.join(min(left_s, _LOOK_EVERY_S))
            if self._receiver.trouble and not has_trouble:
                has_trouble = True
                ends_at = min(ends_at, time.monotonic() + TROUBLE_S)

    def _work(self) -> None:
        while True:
            self._wake.wait(EVERY_S)
            self._wake.clear()
            while self._waiting and not self._is_late():
                self._send([self._waiting.popleft() for _ in range(self._batch_size())])
            if self._closes_at is not None:
                self._finish(self._closes_at)
                return

    def _batch_size(self) -> int:
        return min(BATCH_SIZE, len(self._waiting))

    def _is_late(self) -> bool:
        return self._closes_at is not None and time.monotonic() >= self._closes_at

    def _send(self, batch: Sequence[Span]) -> None:
        try:
            problem = self._receiver.send([span.masked(self._mask) for span in batch])
        except Exception as error:  # noqa: BLE001 (a receiver's fault must stay its own)
            problem = f"{type(error).__name__}: {error}"
        if problem:
            self._reason = self._reason or self._mask(problem)
        else:
            self._num_sent += len(batch)

    def _finish(self, closes_at: float) -> None:
        try:
            problem = self._receiver.close(max(0.0, closes_at - time.monotonic()))
        except Exception as error:  # noqa: BLE001 (as above)
            problem = f"{type(error).__name__}: {error}"
        if problem:
            self._reason = self._reason or self._mask(problem)
