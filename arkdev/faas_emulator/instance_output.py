"""Reads the two output streams of an instance and passes on what they say."""

from __future__ import annotations

import asyncio
import subprocess
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from arkdev.errors import ArkdevError, InstanceError
from arkdev.faas_emulator.worker.log_wire import (
    Failed,
    Output,
    OutputLine,
    OutputReader,
    Ready,
    Stream,
)
from arkdev.plugin.error_documents import error_of
from arkdev.plugin.source import place_of_exception, text_of_exception

_READ_BYTES = 65_536
_NUM_LAST_LINES = 3


class InstanceStreams:
    """Both streams of one instance, put together; used on one event loop.

    `root` is where the plugin's package is on this side, for the places of errors.
    """

    def __init__(
        self, name: str, *, on_line: Callable[[OutputLine], None], root: Path | None = None
    ) -> None:
        self._name = name
        self._on_line = on_line
        self._root = root
        self._readers: dict[Stream, OutputReader] = {
            "stdout": OutputReader("stdout"),
            "stderr": OutputReader("stderr"),
        }
        self.ready: asyncio.Future[Ready] = asyncio.get_running_loop().create_future()
        """What the instance says of itself: that it serves, or an `InstanceError`: it cannot."""
        self._last: deque[str] = deque(maxlen=_NUM_LAST_LINES)
        self._pumps: list[asyncio.Task[None]] = []

    @property
    def last_lines(self) -> str:
        """What the instance said last, in one line."""
        return " | ".join(self._last)

    def feed(self, stream: Stream, data: bytes) -> None:
        """Take the next bytes of a stream."""
        for output in self._readers[stream].feed(data):
            self._pass(output)

    def finish(self, stream: Stream) -> None:
        """Take the end of a stream."""
        for output in self._readers[stream].close():
            self._pass(output)

    def read_from(self, process: subprocess.Popen[bytes]) -> None:
        """Read the pipes of a child process until both are at their end."""
        assert process.stdout is not None and process.stderr is not None
        loop = asyncio.get_running_loop()
        self._pumps = [
            loop.create_task(self._pump("stdout", process.stdout)),
            loop.create_task(self._pump("stderr", process.stderr)),
        ]

    async def closed(self, timeout_s: float) -> None:
        """Wait until both pipes are at their end, or leave them: a lost child may hold one."""
        if not self._pumps:
            return
        pumps, self._pumps = self._pumps, []
        _, late = await asyncio.wait(pumps, timeout=timeout_s)
        for pump in late:
            pump.cancel()
        await asyncio.wait(pumps)

    async def _pump(self, stream: Stream, pipe: IO[bytes]) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        transport: Any
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        try:
            while data := await reader.read(_READ_BYTES):
                self.feed(stream, data)
        finally:
            self.finish(stream)
            transport.close()

    def _pass(self, output: Output) -> None:
        if isinstance(output, OutputLine):
            self._last.append(output.text)
            self._on_line(output)
        elif not self.ready.done():
            if isinstance(output, Ready):
                self.ready.set_result(output)
            else:
                self.ready.set_exception(self._failed(output))
                self.ready.exception()  # looked at: nobody may be waiting any more

    def _failed(self, failed: Failed) -> InstanceError:
        error = error_of(failed.error, root=self._root)
        text = error.message if isinstance(error, ArkdevError) else text_of_exception(error)
        return InstanceError(
            f"{self._name} cannot be served: {text}",
            where=getattr(error, "where", "") or place_of_exception(error),
            hint=getattr(error, "hint", ""),
        )
