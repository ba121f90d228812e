"""One instance that is a child process, with all that it starts (`process_instance` makes them)."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arkdev.errors import InstanceError
from arkdev.faas_emulator.functions import FunctionSpec
from arkdev.faas_emulator.instance_output import InstanceStreams
from arkdev.faas_emulator.instances import InstanceEnd, InstanceUsage
from arkdev.faas_emulator.processes.function_folder import remove_folder
from arkdev.faas_emulator.processes.process_usage import GroupMeter, GroupUsage
from arkdev.faas_emulator.records import InvocationStatus
from arkdev.faas_emulator.worker.confinement import end_processes_of
from arkdev.faas_emulator.worker.wire import (
    FUNCTION_VARIABLE,
    INSTANCE_VARIABLE,
    PORT_VARIABLE,
    TIMEOUT_VARIABLE,
)

_NUM_FILES = 65_536
_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
_ENDS_WITHIN_S = 0.1
_LAST_OUTPUT_S = 1.0
"""For what was written just before the end."""


@dataclass
class _Usage:
    """The most that was seen."""

    memory_mb: float | None = None
    cpu_s: float | None = None

    def add(self, usage: GroupUsage) -> None:
        self.memory_mb = max(self.memory_mb or 0.0, usage.memory_mb, usage.peak_mb)
        self.cpu_s = max(self.cpu_s or 0.0, usage.cpu_s)


@dataclass
class ProcessInstance:
    """Implements `Instance`. The launcher launches it, waits for it, and calls `measure`."""

    function: FunctionSpec
    package: Path
    home: Path
    streams: InstanceStreams
    id: str = field(default_factory=lambda: f"p-{secrets.token_hex(6)}")
    url: str = ""
    ready_s: float = 0.0
    import_s: float = 0.0
    _usage: _Usage = field(default_factory=_Usage)
    _over_memory: bool = False
    _is_stopped: bool = False
    _cleaning: asyncio.Task[None] | None = None
    _process: subprocess.Popen[bytes] | None = None
    _lifeline: int = -1
    """Closed, it ends the process."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    """Between ending the process group and waiting for its leader, whose number it has."""

    def __post_init__(self) -> None:
        """Belong to the event loop that runs."""
        self._loop = asyncio.get_running_loop()
        self._started = self._loop.time()
        self._ended: asyncio.Future[int] = self._loop.create_future()

    def launch(self, command: Sequence[str], *, cpus: list[int]) -> None:
        """Start the process. Raises `InstanceError`."""
        try:
            self._process = self._popen(command, cpus)
        except OSError as error:
            self._ended.set_result(0)
            raise InstanceError(
                f"{self.function.name}: {command[0]} cannot be started: {error}",
                where=self.function.place,
            ) from error
        self._meter = GroupMeter(self._process.pid)
        self.streams.read_from(self._process)
        threading.Thread(
            target=self._wait, args=(self._process,), name="arkdev-instance", daemon=True
        ).start()

    def _popen(self, command: Sequence[str], cpus: list[int]) -> subprocess.Popen[bytes]:
        self.home.mkdir()
        lifeline, self._lifeline = os.pipe()
        settings = {
            "host": "127.0.0.1",
            "lifeline": lifeline,
            "cpus": cpus,
            "nofile": _NUM_FILES,
        }
        try:
            return subprocess.Popen(
                [*command, json.dumps(settings)],
                cwd=self.package,
                env=self._environment(Path(command[0])),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(lifeline,),
                start_new_session=True,
            )
        finally:
            os.close(lifeline)

    def _environment(self, python: Path) -> dict[str, str]:
        return {
            "PATH": f"{python.parent}:{_SYSTEM_PATH}",
            "HOME": str(self.home),
            "TMPDIR": str(self.home),
            "LANG": "C.UTF-8",
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            **self.function.envs,
            PORT_VARIABLE: "0",
            TIMEOUT_VARIABLE: f"{self.function.timeout_s:g}",
            FUNCTION_VARIABLE: self.function.reference,
            INSTANCE_VARIABLE: self.id,
        }

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        """Wait, in a thread of its own, for the process to end, and end what it leaves behind."""
        if hasattr(os, "waitid"):  # until it is waited for below, its number is nobody else's
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            self._kill()
        with self._lock:
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        # its peak of memory counts what arkdev itself had when it started the process
        self._usage.add(GroupUsage(0.0, 0.0, used.ru_utime + used.ru_stime))
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._ended.set_result, process.returncode)

    def _kill(self) -> None:
        with self._lock, suppress(ProcessLookupError, PermissionError):
            if self._process is not None and self._process.returncode is None:
                os.killpg(self._process.pid, signal.SIGKILL)

    async def wait_until_ready(self, timeout_s: float) -> None:
        """Wait for the worker's word. Raises `InstanceError`."""
        ready = self.streams.ready
        words: set[asyncio.Future[Any]] = {ready, self._ended}
        await asyncio.wait(words, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if self._ended.done():
            await self.streams.closed(_LAST_OUTPUT_S)  # it may have said why
        if not ready.done():
            raise self._not_ready(timeout_s)
        word = ready.result()
        self.url = f"http://127.0.0.1:{word.port}"
        self.import_s = word.import_s
        self.ready_s = self._loop.time() - self._started

    def _not_ready(self, timeout_s: float) -> InstanceError:
        end, said = self._end(), self.streams.last_lines
        what = (
            f"ended before it was ready ({end.detail})"
            if end is not None
            else f"was not ready within {timeout_s:g} s"
        )
        return InstanceError(
            f"{self.function.name}: its instance {what}",
            where=self.function.place,
            hint=f"it said last: {said}" if said else "it printed nothing",
        )

    @property
    def is_over(self) -> bool:
        """True once the process has ended."""
        return self._ended.done()

    def measure(self) -> None:
        """Note what the process and its children use; end them when that is too much.

        From any thread.
        """
        usage = None if self.is_over else self._meter.usage()
        if usage is None:
            return
        self._usage.add(usage)
        if usage.memory_mb > self.function.memory_mb and not self._is_stopped:
            self._over_memory = True
            self._kill()

    async def usage(self) -> InstanceUsage:
        """Measure it; also once it has ended, for what was measured last."""
        await asyncio.to_thread(self.measure)
        return InstanceUsage(self._usage.memory_mb, self._usage.cpu_s)

    async def ended(self) -> InstanceEnd | None:
        """Tell why it ended by itself; None while it runs, and after `stop`.

        Waits a moment: a connection of a process that ends is closed before the process is gone.
        """
        await asyncio.wait({self._ended}, timeout=_ENDS_WITHIN_S)
        end = self._end()
        if end is not None:
            await self._clean_up()
        return end

    def _end(self) -> InstanceEnd | None:
        if self._is_stopped or not self._ended.done():
            return None
        if self._over_memory:
            return InstanceEnd(
                InvocationStatus.OUT_OF_MEMORY, f"over its {self.function.memory_mb} MiB"
            )
        code = self._ended.result()
        detail = f"killed by {_signal_name(-code)}" if code < 0 else f"exit code {code}"
        return InstanceEnd(InvocationStatus.CRASHED, detail)

    async def stop(self) -> None:
        """End it and all that it started, at once."""
        if not self.is_over:
            self._is_stopped = True
        await self._clean_up()

    async def _clean_up(self) -> None:
        """Leave nothing of it: processes, wherever they have gone, descriptors, files."""
        if self._cleaning is None:
            self._cleaning = self._loop.create_task(self._removed())
        await asyncio.shield(self._cleaning)

    async def _removed(self) -> None:
        self._kill()
        await asyncio.to_thread(end_processes_of, self.id)
        await self._ended
        await self.streams.closed(_LAST_OUTPUT_S)
        if self._lifeline >= 0:
            os.close(self._lifeline)
        await asyncio.to_thread(remove_folder, self.home)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
