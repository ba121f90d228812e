"""Instances that are child processes: where there is no container engine.

They speak the same contract. A child process is no sandbox: `ProcessLauncher.limits` says which
limits are watched rather than enforced, and which are not there at all.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from arkdev.faas_emulator.functions import FunctionSpec
from arkdev.faas_emulator.instance_output import InstanceStreams
from arkdev.faas_emulator.instances import InstanceLimits
from arkdev.faas_emulator.processes.child_process import ProcessInstance
from arkdev.faas_emulator.processes.function_folder import FunctionFolder, PackageFiles
from arkdev.faas_emulator.processes.process_usage import CAN_MEASURE
from arkdev.faas_emulator.releasing import carried_out
from arkdev.faas_emulator.worker.log_wire import OutputLine
from arkdev.faas_emulator.worker.wire import WORKER_ARGUMENTS

READY_TIMEOUT_S = 120.0
"""For the import of a plugin."""
_WATCH_EVERY_S = 0.1
_OUR_FOLDER = Path(__file__).resolve().parents[3]
_FROM_HERE = (
    "import sys, runpy; sys.path.insert(0, sys.argv.pop(1)); "
    f"runpy.run_module({WORKER_ARGUMENTS[-1]!r}, run_name='__main__', alter_sys=True)"
)
"""Runs the worker of the arkdev that is running now, installed or not."""


class ProcessLauncher:
    """Starts instances as child processes.

    `python` is the interpreter of an environment in which arkdev's function side is installed;
    None: the one that runs now, with all that is installed there. `package` is unpacked once, and
    read by all instances.
    """

    def __init__(
        self,
        package: PackageFiles,
        *,
        python: Path | None = None,
        ready_timeout_s: float = READY_TIMEOUT_S,
    ) -> None:
        self._package = package
        self._python = python
        self._ready_timeout_s = ready_timeout_s
        self._folder: FunctionFolder | None = None
        self._instances: list[ProcessInstance] = []
        self._numbers = itertools.count()
        self._watch: asyncio.Task[None] | None = None

    def limits(self, function: FunctionSpec) -> InstanceLimits:
        """Tell which limits of the function hold here."""
        notes = [
            "instances are child processes: they see this machine's files and its network, and "
            "share them"
        ]
        cores = _cores()
        num_cpus = float(min(function.num_cpus, len(cores))) if cores else None
        if num_cpus is None:
            notes.append("this system does not bind processes to cores: CPUs are not limited")
        elif num_cpus < function.num_cpus:
            notes.append(
                f"{function.name} asks for {function.num_cpus} CPUs and this machine has "
                f"{len(cores)}: its instances get {num_cpus:g}"
            )
        else:
            notes.append(
                "each instance is bound to as many cores as it has CPUs; instances may share cores"
            )
        if CAN_MEASURE:
            notes.append(
                f"memory is looked at every {_WATCH_EVERY_S:g} s: an instance may have more than "
                "its limit for so long"
            )
        else:
            notes.append("this system does not tell what processes use: memory is not limited")
        return InstanceLimits(num_cpus, function.memory_mb if CAN_MEASURE else None, tuple(notes))

    async def prepare(self) -> None:
        """Unpack the package."""
        if self._folder is None:
            making = asyncio.ensure_future(asyncio.to_thread(FunctionFolder, self._package))
            try:
                self._folder = await asyncio.shield(making)
            except asyncio.CancelledError:  # a thread cannot be stopped: remove what it makes
                await carried_out(_removed(making))
                raise

    async def start(
        self, function: FunctionSpec, *, on_log: Callable[[OutputLine], None]
    ) -> ProcessInstance:
        """Start an instance and wait until it is ready."""
        await self.prepare()
        assert self._folder is not None
        if self._watch is None or self._watch.done():
            self._watch = asyncio.get_running_loop().create_task(self._watch_memory())
        instance = ProcessInstance(
            function,
            package=self._folder.package,
            home=self._folder.path / f"home-{next(self._numbers)}",
            streams=InstanceStreams(function, on_line=on_log),
        )
        self._instances.append(instance)
        try:
            instance.launch(self._command(), cpus=self._cpus(function))
            await instance.wait_until_ready(self._ready_timeout_s)
        except BaseException:
            await asyncio.shield(instance.stop())
            raise
        return instance

    def _command(self) -> list[str]:
        if self._python is not None:
            return [str(self._python), *WORKER_ARGUMENTS]
        return [sys.executable, "-I", "-c", _FROM_HERE, str(_OUR_FOLDER)]

    def _cpus(self, function: FunctionSpec) -> list[int]:
        """Return the cores of the next instance: in turn, so that instances share few."""
        cores = _cores()
        first = (len(self._instances) - 1) * function.num_cpus
        count = min(function.num_cpus, len(cores))
        return [cores[(first + offset) % len(cores)] for offset in range(count)]

    async def _watch_memory(self) -> None:
        while True:
            await asyncio.sleep(_WATCH_EVERY_S)
            self._instances = [one for one in self._instances if not one.is_over]
            await asyncio.to_thread(_measure, self._instances.copy())

    async def close(self) -> None:
        """Stop every instance that still runs, and remove what they started from."""
        for instance in self._instances.copy():
            await instance.stop()
        self._instances.clear()
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.cancel()
            with suppress(asyncio.CancelledError):
                await watch
        folder, self._folder = self._folder, None
        if folder is not None:
            await asyncio.to_thread(folder.remove)


async def _removed(making: asyncio.Future[FunctionFolder]) -> None:
    await asyncio.wait({making})
    if making.exception() is None:
        await asyncio.to_thread(making.result().remove)


def _measure(instances: list[ProcessInstance]) -> None:
    for instance in instances:
        instance.measure()


def _cores() -> list[int]:
    """Return the cores that this process may use; none where the system does not tell."""
    return sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else []
