"""Reads the two output streams of an instance and passes on what they say."""

from __future__ import annotations

import asyncio
import subprocess
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import IO, Any

from arkdev.errors import ArkdevError, InstanceError
from arkdev.faas_emulator.functions import FunctionSpec
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
from arkdev.runs.masking import masked_bytes, masked_text

_READ_BYTES = 65_536
_NUM_LAST_LINES = 3


class InstanceStreams:
    """Both streams of one instance of a function, put together; used on one event loop.

    Lines are handed on as they are. What it says of itself for errors has no secrets of the
    function: an error may be shown by those who do not know them.
    """

    def __init__(self, function: FunctionSpec, *, on_line: Callable[[OutputLine], None]) -> None:
        self._function = function
        self._on_line = on_line
        mask = partial(masked_bytes, secrets=function.secrets)
        self._readers: dict[Stream, OutputReader] = {
            "stdout": OutputReader("stdout", mask=mask),
            "stderr": OutputReader("stderr", mask=mask),
        }
        self.ready: asyncio.Future[Ready] = asyncio.get_running_loop().create_future()
        """What the instance says of itself: that it serves, or an `InstanceError`: it cannot."""
        self._last: deque[str] = deque(maxlen=_NUM_LAST_LINES)
        self._pumps: list[asyncio.Task[None]] = []

    @property
    def last_lines(self) -> str:
        """What the instance said last, in one line."""
        return self._masked(" | ".join(self._last))

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
        error = error_of(failed.error, root=self._function.root)
        text = error.message if isinstance(error, ArkdevError) else text_of_exception(error)
        return InstanceError(
            f"{self._function.name} cannot be served: {self._masked(text)}",
            where=getattr(error, "where", "") or place_of_exception(error),
            hint=self._masked(getattr(error, "hint", "")),
        )

    def _masked(self, text: str) -> str:
        return masked_text(text, secrets=self._function.secrets)
