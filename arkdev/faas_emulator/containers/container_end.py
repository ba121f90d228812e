"""Why a container ended, from what its engine says of it."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any

from arkdev.faas_emulator.instances import InstanceEnd
from arkdev.faas_emulator.records import InvocationStatus

_SIGNAL_BASE = 128
"""An exit code above it is the number of a signal more: so says the init process."""
_KILLED = _SIGNAL_BASE + signal.SIGKILL
_NEAR_LIMIT = 0.95
"""Of the memory: SIGKILL from there on is the kernel's for its want."""


def container_end(
    inspected: Mapping[str, Any] | None, *, memory_mb: int | None, memory_peak_mb: float | None
) -> InstanceEnd | None:
    """Return why it ended; None while it runs. `inspected` is None for one that is not there."""
    if inspected is None:
        return InstanceEnd(InvocationStatus.LOST, "its container was removed by somebody else")
    state = inspected.get("State") or {}
    if state.get("Running"):
        return None
    code = int(state.get("ExitCode") or 0)
    if state.get("OOMKilled"):
        return _out_of_memory(memory_mb, code)
    if code == _KILLED and _was_near(memory_peak_mb, memory_mb):
        # an engine may miss it: rootless ones, and where another process than the first was ended
        return _out_of_memory(memory_mb, code)
    return InstanceEnd(InvocationStatus.CRASHED, _exit_text(code))


def _out_of_memory(memory_mb: int | None, code: int) -> InstanceEnd:
    limit = f"over its {memory_mb} MiB" if memory_mb else "out of the machine's memory"
    after = "" if code == _KILLED else f" (one of its processes; then {_exit_text(code)})"
    return InstanceEnd(InvocationStatus.OUT_OF_MEMORY, limit + after)


def _was_near(peak_mb: float | None, memory_mb: int | None) -> bool:
    return peak_mb is not None and memory_mb is not None and peak_mb >= _NEAR_LIMIT * memory_mb


def _exit_text(code: int) -> str:
    if code > _SIGNAL_BASE:
        try:
            return f"killed by {signal.Signals(code - _SIGNAL_BASE).name}"
        except ValueError:
            pass  # no signal: the program chose the number
    return f"exit code {code}"
