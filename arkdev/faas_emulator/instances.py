"""The seam: where one copy of a function runs. A child process, or a container.

Every implementation passes `tests/*/faas_conformance.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from arkdev.faas_emulator.functions import FunctionSpec
from arkdev.faas_emulator.records import InvocationStatus
from arkdev.faas_emulator.worker.log_wire import OutputLine


@dataclass(frozen=True)
class InstanceLimits:
    """Which limits of `Runtime.instance` a kind of instance enforces, and which it cannot."""

    num_cpus: float | None
    """Cores that an instance may use; None: not enforced."""
    memory_mb: int | None
    """MiB; None: not enforced."""
    notes: tuple[str, ...] = ()
    """A sentence for each limit that is not enforced or was clamped, for the report."""


@dataclass(frozen=True)
class InstanceUsage:
    """What an instance has used so far; None where it cannot be measured."""

    memory_peak_mb: float | None
    cpu_s: float | None


@dataclass(frozen=True)
class InstanceEnd:
    """Why an instance ended by itself."""

    status: InvocationStatus
    """OUT_OF_MEMORY, CRASHED or LOST."""
    detail: str
    """For people: "exit code 3", "killed by SIGKILL", "over its 2048 MiB"."""


class Instance(Protocol):
    """One running copy of a function. It answers as soon as `InstanceLauncher.start` returns.

    The pool sends it requests of `arkdev.faas_emulator.worker.wire` over HTTP at `url`.
    """

    id: str
    url: str
    """Where its HTTP server is reached from this machine: ``http://HOST:PORT``."""
    ready_s: float
    import_s: float

    async def usage(self) -> InstanceUsage:
        """Measure it; also once it has ended, for what was measured last."""
        ...

    async def ended(self) -> InstanceEnd | None:
        """Tell why it ended by itself; None while it runs, and after `stop`."""
        ...

    async def stop(self) -> None:
        """End it and all that it started, at once; nothing of it is left. Idempotent."""
        ...


class InstanceLauncher(Protocol):
    """Starts instances of the functions of one deployment.

    `prepare` does once what all instances share (an image, an environment). `start` raises
    `InstanceError` when the instance ends or is not ready in time; with the plugin's own error and
    its place when its import failed.
    """

    def limits(self, function: FunctionSpec) -> InstanceLimits:
        """Tell which limits of the function hold here."""
        ...

    async def prepare(self) -> None:
        """Make ready what instances start from. Raises `ConfigurationError` or `EngineError`."""
        ...

    async def start(
        self, function: FunctionSpec, *, on_log: Callable[[OutputLine], None]
    ) -> Instance:
        """Start an instance and wait until it is ready.

        `on_log` is told of each line that it writes, with the request that it belongs to.
        """
        ...

    async def close(self) -> None:
        """Stop every instance that still runs, and release the rest. Idempotent."""
        ...
