"""One instance of a function in a container of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any

from arkdev.errors import EngineError, InstanceError
from arkdev.faas_emulator.containers.container_end import container_end
from arkdev.faas_emulator.containers.container_usage import (
    CgroupFiles,
    cgroup_files,
    larger,
    usage_of_stats,
)
from arkdev.faas_emulator.engines.engine import Attachment, ContainerSpec, Engine, Stream
from arkdev.faas_emulator.functions import FunctionSpec
from arkdev.faas_emulator.instance_output import InstanceStreams
from arkdev.faas_emulator.instances import InstanceEnd, InstanceUsage
from arkdev.faas_emulator.readiness import answers_ready
from arkdev.faas_emulator.records import InvocationStatus
from arkdev.faas_emulator.releasing import carried_out
from arkdev.faas_emulator.worker.log_wire import OutputLine
from arkdev.faas_emulator.worker.wire import DEFAULT_PORT

_SAMPLE_S = {True: 1.0, False: 5.0}
"""Between two measurements: from the kernel's files, and from the engine."""
_LAST_OUTPUT_S = 2.0
"""For what a removed container wrote just before."""
_END_KNOWN_S = 2.0
"""An engine knows of an end a bit after the output has ended."""
_POLL_S = 0.02


@dataclass(frozen=True)
class Launch:
    """What an instance is started from."""

    engine: Engine
    function: FunctionSpec
    spec: ContainerSpec
    is_local: bool
    """Its address is reached from here; else through a published port."""
    limit_s: float
    """In which it must be ready."""


class ContainerInstance:
    """`arkdev.faas_emulator.instances.Instance` in a container. `begin` starts it."""

    def __init__(self, launch: Launch, *, on_log: Callable[[OutputLine], None]) -> None:
        self.id = launch.spec.name
        self.url = ""
        self.ready_s = 0.0
        self.import_s = 0.0
        self.engine_s = 0.0
        """Of `ready_s`: what the engine took to make and start the container."""
        self._launch = launch
        self._engine = launch.engine
        self._loop = asyncio.get_running_loop()
        self._streams = InstanceStreams(launch.function, on_line=on_log)
        self._output_ended = asyncio.Event()
        self._creating: asyncio.Future[str] | None = None
        self._attachment: Attachment | None = None
        self._sampling: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._end: InstanceEnd | None = None
        self._usage = InstanceUsage(memory_peak_mb=None, cpu_s=None)
        self._files: CgroupFiles | None = None

    @property
    def is_stopped(self) -> bool:
        """Whether nothing of it is left."""
        return self._stopping is not None and self._stopping.done()

    async def begin(self) -> None:
        """Make the container, start it, and wait until it is ready.

        Raises `InstanceError` and `EngineError`; then nothing of it is left.
        """
        try:
            await self._begin()
        except BaseException:
            await self.stop()
            raise

    async def _begin(self) -> None:
        engine, began = self._engine, monotonic()
        # a thread of the engine's client cannot be stopped: whoever is cancelled here has the
        # container removed once it is made
        self._creating = asyncio.ensure_future(engine.create(self._launch.spec))
        container = await asyncio.shield(self._creating)
        self._attachment = await engine.attach(container, take=self._take, at_end=self._at_end)
        await engine.start(container)
        self.engine_s = monotonic() - began
        await self._locate(container)
        self._sampling = asyncio.create_task(self._sample())
        try:
            async with asyncio.timeout(self._launch.limit_s):
                self.import_s = await self._heard_ready()
                while not await answers_ready(self.url):
                    await self._check_running()
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise InstanceError(
                f"an instance of {self._launch.function.name} is not ready after "
                f"{self._launch.limit_s:g} s",
                where=self._launch.function.place,
                hint="let the plugin's module import less, or load it in the first call",
            ) from None
        self.ready_s = monotonic() - began

    async def _locate(self, container: str) -> None:
        """Find its address, and the kernel's files about it."""
        inspected = await self._engine.inspect(container)
        if inspected is None:
            raise self._ended_early(await self._why_ended())
        self.url = f"http://{self._address(inspected)}"
        pid = int(inspected["State"].get("Pid") or 0)
        self._files = cgroup_files(pid, container) if pid else None

    def _address(self, inspected: Any) -> str:
        settings = inspected["NetworkSettings"]
        if self._launch.is_local:
            networks = (settings.get("Networks") or {}).values()
            host = next((each["IPAddress"] for each in networks if each.get("IPAddress")), "")
            return f"{host}:{DEFAULT_PORT}"
        bound = (settings.get("Ports") or {}).get(f"{DEFAULT_PORT}/tcp") or [{}]
        return f"127.0.0.1:{bound[0].get('HostPort', '')}"

    async def _heard_ready(self) -> float:
        """Wait for what the worker says of itself; return how long the plugin's import took."""
        ended = asyncio.ensure_future(self._output_ended.wait())
        either: list[asyncio.Future[Any]] = [self._streams.ready, ended]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended.cancel()
        if not self._streams.ready.done():
            raise self._ended_early(await self._why_ended())
        return self._streams.ready.result().import_s

    async def _check_running(self) -> None:
        end = await self.ended()
        if end is not None:
            raise self._ended_early(end)

    def _ended_early(self, end: InstanceEnd) -> InstanceError:
        function = self._launch.function
        if end.status is InvocationStatus.OUT_OF_MEMORY:
            hint = "a larger Runtime(instance=...)"
        elif self._streams.last_lines:
            hint = f"it said last: {self._streams.last_lines}"
        else:
            hint = "it said nothing: import the plugin's module by hand"
        return InstanceError(
            f"an instance of {function.name} ended before it was ready: {end.detail}",
            where=function.place,
            hint=hint,
        )

    # What it writes

    def _take(self, stream: Stream, data: bytes) -> None:
        """In the attachment's thread: hand on what was written, and wait until it is read."""
        is_taken = threading.Event()

        def feed() -> None:
            try:
                self._streams.feed(stream, data)
            finally:
                is_taken.set()

        try:
            self._loop.call_soon_threadsafe(feed)
        except RuntimeError:
            return  # the loop is closed: nobody wants to know any more
        is_taken.wait()

    def _at_end(self) -> None:
        def end() -> None:
            self._streams.finish("stdout")
            self._streams.finish("stderr")
            self._output_ended.set()

        with suppress(RuntimeError):  # the loop is closed: nobody wants to know any more
            self._loop.call_soon_threadsafe(end)

    # What it uses, and its end

    async def usage(self) -> InstanceUsage:
        """Measure it; also once it has ended, for what was measured last."""
        if self._stopping is None and not self._output_ended.is_set():
            await self._measure()
        return self._usage

    async def _sample(self) -> None:
        while not self._output_ended.is_set():
            await self._measure()
            await asyncio.sleep(_SAMPLE_S[self._files is not None])

    async def _measure(self) -> None:
        if self._files is not None:
            measured = self._files.read()
        else:
            try:
                measured = usage_of_stats(await self._engine.stats(self.id))
            except EngineError:
                return  # `ended` says so
        self._usage = larger(self._usage, measured)

    async def ended(self) -> InstanceEnd | None:
        """Tell why it ended by itself; None while it runs, and after `stop`."""
        if self._stopping is not None:
            return None
        if self._end is None:
            self._end = await self._look()
        return self._end

    async def _look(self) -> InstanceEnd | None:
        try:
            inspected = await self._engine.inspect(self.id)
        except EngineError as error:
            return InstanceEnd(InvocationStatus.LOST, error.message)
        memory_mb = self._launch.spec.memory_mb
        end = container_end(
            inspected, memory_mb=memory_mb, memory_peak_mb=self._usage.memory_peak_mb
        )
        if end and end.status is InvocationStatus.OUT_OF_MEMORY and memory_mb:
            # it grew faster than it was measured, and the limit is where it was ended
            peak = InstanceUsage(memory_peak_mb=float(memory_mb), cpu_s=None)
            self._usage = larger(self._usage, peak)
        return end

    async def _why_ended(self) -> InstanceEnd:
        """Its output has ended: wait until the engine, too, knows the end."""
        until = monotonic() + _END_KNOWN_S
        while (end := await self.ended()) is None:
            if monotonic() > until:
                return InstanceEnd(InvocationStatus.LOST, "the engine does not say why")
            await asyncio.sleep(_POLL_S)
        return end

    async def stop(self) -> None:
        """End it and all that it started, at once; nothing of it is left. Idempotent."""
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._release())
        await carried_out(self._stopping)

    async def _release(self) -> None:
        if self._sampling is not None:
            self._sampling.cancel()
        if self._creating is None:
            return
        await asyncio.wait([self._creating])
        if self._creating.exception() is not None:
            return
        if self._files is not None:
            self._usage = larger(self._usage, self._files.read())
        try:
            await self._engine.remove(self.id)
            if self.engine_s:  # of one that was never started nothing ends
                async with asyncio.timeout(_LAST_OUTPUT_S):
                    await self._output_ended.wait()
        except TimeoutError:
            pass  # a reader that is behind: its lines are lost
        finally:
            if self._attachment is not None:
                self._attachment.close()
