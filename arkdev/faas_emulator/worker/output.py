"""What Python code prints and logs in an instance, as frames that name the request (`log_wire`).

What is printed is written at once, so that nothing of it is lost when a plugin ends the process.
"""

from __future__ import annotations

import io
import os
import select
import sys
import threading
import time
import warnings
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from arkdev.faas_emulator.worker.log_wire import frame, text_frames
from arkdev.observe.attempt import place_here
from arkdev.observe.log_lines import PRINT, LogLine
from arkdev.observe.log_records import log_records_to

_MAX_LOGGER_CHARS = 200


class FrameWriter:
    """Writes frames to a copy of a descriptor: a plugin may close the descriptor itself."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = os.dup(descriptor)
        # a finaliser or a signal handler may print while this thread is writing
        self._lock = threading.RLock()
        os.register_at_fork(after_in_child=self._renew_lock)

    def write(self, frames: Iterable[bytes]) -> None:
        """Write frames one after another; nothing is done where nobody reads them any more."""
        with self._lock, suppress(BrokenPipeError):
            for data in frames:
                self._write(data)

    def _write(self, data: bytes) -> None:
        while data:
            try:
                data = data[os.write(self._descriptor, data) :]
            except BlockingIOError:  # a child process has changed the pipe that it shares
                select.select((), (self._descriptor,), ())

    def _renew_lock(self) -> None:
        self._lock = threading.RLock()  # another thread of the parent may hold it for ever


def _request_here() -> str:
    place = place_here()
    return place.trajectory_ids[0] if place is not None else ""


class _FramedStream(io.TextIOBase):
    """Stands for sys.stdout or sys.stderr. It cannot be closed: all requests share it."""

    encoding = "utf-8"
    errors = "surrogateescape"

    def __init__(self, writer: FrameWriter, *, descriptor: int) -> None:
        self._writer = writer
        self._number = descriptor
        self.buffer = _Bytes(self)
        """For ``sys.stdout.buffer.write(b"...")``."""

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if text:
            self._writer.write(
                text_frames(text, request_id=_request_here(), level=PRINT, at=time.time())
            )
        return len(text)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._number

    def isatty(self) -> bool:
        return False

    def close(self) -> None:
        """Stay open."""

    def reconfigure(self, **_settings: Any) -> None:
        """It is always UTF-8, and never buffered."""


class _Bytes(io.RawIOBase):
    def __init__(self, stream: _FramedStream) -> None:
        self._stream = stream

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        raw = bytes(data)
        self._stream.write(raw.decode("utf-8", "surrogateescape"))
        return len(raw)

    def fileno(self) -> int:
        return self._stream.fileno()

    def close(self) -> None:
        """Stay open."""


class InstanceOutput:
    """The two streams of an instance. From `take` on all that Python writes goes through them."""

    def __init__(self) -> None:
        self._out, self._err = FrameWriter(1), FrameWriter(2)

    def take(self) -> None:
        """Replace the process's streams, the handling of warnings, and listen to its loggers."""
        replaced = [sys.stdout, sys.stderr]
        sys.stdout = sys.__stdout__ = _FramedStream(self._out, descriptor=1)  # type: ignore[assignment, misc]
        sys.stderr = sys.__stderr__ = _FramedStream(self._err, descriptor=2)  # type: ignore[assignment, misc]
        self._replaced = replaced  # a stream that is collected closes its descriptor
        warnings.showwarning = self._show_warning  # type: ignore[assignment]
        self._logging = log_records_to(
            self._log, streams=[*replaced, sys.stdout, sys.stderr], has_own_thread=False
        )
        self._logging.__enter__()

    def tell(self, **event: Any) -> None:
        """Say on standard output that the instance is ready, or why it cannot be."""
        self._out.write([frame(event)])

    def begin(self, request_id: str) -> None:
        """What is written past Python from now on may be of this request."""
        self._mark("begin", request_id)

    def end(self, request_id: str) -> None:
        """The request is answered."""
        self._mark("end", request_id)

    def _mark(self, what: str, request_id: str) -> None:
        data = [frame({what: request_id})]
        self._out.write(data)
        self._err.write(data)

    def _log(self, line: LogLine) -> None:
        self._err.write(
            text_frames(
                line.text,
                request_id=line.place.trajectory_ids[0] if line.place is not None else "",
                level=line.level,
                at=line.at,
                logger=line.logger[:_MAX_LOGGER_CHARS],
            )
        )

    def _show_warning(
        self, message: Warning | str, category: type[Warning], filename: str, *place: Any
    ) -> None:
        text = f"{message} ({filename}:{place[0] if place else 0})"
        self._log(LogLine(time.time(), "WARNING", category.__name__, text, place_here()))
