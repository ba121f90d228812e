"""Memory and CPU seconds of a container, from the kernel's files, else from the engine.

The peak is the kernel's own count for the control group, with the file cache that it charges to
it: a process's own memory is somewhat less. Where the kernel keeps no peak (control groups v2
before Linux 5.19, or an engine in a virtual machine) it is the largest of what was measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arkdev.faas_emulator.instances import InstanceUsage

_MIB = 2**20
_MOUNT = Path("/sys/fs/cgroup")
_PROC = Path("/proc")


@dataclass(frozen=True)
class CgroupFiles:
    """Where the kernel keeps the counts of one control group."""

    memory: tuple[Path, ...]
    """The first of them that there is counts."""
    cpu: Path
    is_v2: bool

    def read(self) -> InstanceUsage:
        """Read the counts; None for what is not there (any more)."""
        peak = next((value for path in self.memory if (value := _number(path)) is not None), None)
        return InstanceUsage(
            memory_peak_mb=None if peak is None else peak / _MIB, cpu_s=self._cpu_seconds()
        )

    def _cpu_seconds(self) -> float | None:
        if not self.is_v2:
            nanoseconds = _number(self.cpu)
            return None if nanoseconds is None else nanoseconds / 1e9
        try:
            lines = self.cpu.read_text(encoding="ascii").splitlines()
        except OSError:
            return None
        counts = dict(line.split() for line in lines)
        return int(counts["usage_usec"]) / 1e6 if "usage_usec" in counts else None


def cgroup_files(
    pid: int, container: str, *, mount: Path = _MOUNT, proc: Path = _PROC
) -> CgroupFiles | None:
    """Find the control group of a container by its first process's id as the engine tells it.

    None when the id means nothing on this machine: the engine runs in a virtual one.
    """
    try:
        lines = (proc / str(pid) / "cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    paths: dict[str, str] = {}
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if container in path:
            paths |= {controller: path.lstrip("/") for controller in controllers.split(",")}
    if {"memory", "cpuacct"} <= paths.keys():
        memory, cpu = mount / "memory" / paths["memory"], mount / "cpuacct" / paths["cpuacct"]
        files = CgroupFiles((memory / "memory.max_usage_in_bytes",), cpu / "cpuacct.usage", False)
    elif "" in paths:
        group = mount / paths[""]
        memory_files = (group / "memory.peak", group / "memory.current")
        files = CgroupFiles(memory_files, group / "cpu.stat", is_v2=True)
    else:
        return None
    return files if files.cpu.exists() else None


def usage_of_stats(stats: Mapping[str, Any]) -> InstanceUsage:
    """Read the engine's own measurement (control groups v1 and v2)."""
    memory = stats.get("memory_stats") or {}
    peak = memory.get("max_usage") or memory.get("usage")
    nanoseconds = ((stats.get("cpu_stats") or {}).get("cpu_usage") or {}).get("total_usage")
    return InstanceUsage(
        memory_peak_mb=peak / _MIB if peak else None,
        cpu_s=nanoseconds / 1e9 if nanoseconds else None,
    )


def larger(first: InstanceUsage, second: InstanceUsage) -> InstanceUsage:
    """Return the larger of each, since neither becomes less."""
    return InstanceUsage(
        memory_peak_mb=_larger(first.memory_peak_mb, second.memory_peak_mb),
        cpu_s=_larger(first.cpu_s, second.cpu_s),
    )


def _larger(first: float | None, second: float | None) -> float | None:
    if first is None or second is None:
        return second if first is None else first
    return max(first, second)


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
