"""Which process of which machine something belongs to, and whether that process is still there.

An owner is written as ``MACHINE/BOOT/PID_NAMESPACE/PID/START``. Of each part it is only said
whether two are equal. A process id alone would be taken again by another process, and a shared
engine has containers of other machines, and of other containers on this machine.
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_MACHINE_ID = Path("/etc/machine-id")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_START_FIELD = 19
"""Of /proc/PID/stat, counted from the process's state, which follows its name."""
_ENDED = "ended"
"""The start of a process that has ended and that its parent has not waited for."""


@dataclass(frozen=True)
class Owner:
    """A process, told from all others for good."""

    machine: str
    boot: str
    pid_namespace: str
    pid: int
    start: str

    def __str__(self) -> str:
        return f"{self.machine}/{self.boot}/{self.pid_namespace}/{self.pid}/{self.start}"


def this_process() -> Owner:
    """Return the owner of what this process makes."""
    pid = os.getpid()
    return Owner(_machine(), _boot(), _pid_namespace(), pid, _start_of(pid))


def read_owner(text: str) -> Owner | None:
    """Read what `str` wrote; None for anything else."""
    parts = text.split("/")
    if len(parts) != 5 or not parts[3].isdecimal():
        return None
    return Owner(parts[0], parts[1], parts[2], int(parts[3]), parts[4])


def is_here(owner: Owner) -> bool:
    """Whether its process id means a process that this one sees."""
    here = (_machine(), _boot(), _pid_namespace())
    return (owner.machine, owner.boot, owner.pid_namespace) == here


def is_gone(owner: Owner) -> bool:
    """Whether the process has surely ended. False for what cannot be known from here."""
    if owner.machine != _machine():
        return False
    if owner.boot != _boot():
        return True  # this machine has been started again since
    if owner.pid_namespace != _pid_namespace():
        return False  # its process ids mean nothing here
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # somebody else's process, which is there
    start = _start_of(owner.pid)
    return bool(start) and start != owner.start


@cache
def _machine() -> str:
    try:
        identity = _MACHINE_ID.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        identity = ""
    return hashlib.sha256(f"{identity} {platform.node()}".encode()).hexdigest()[:16]


@cache
def _boot() -> str:
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return _output("sysctl", "-n", "kern.bootsessionuuid")


def _pid_namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid").strip("pid:[]")
    except OSError:
        return ""


def _start_of(pid: int) -> str:
    """When a process began, as the system counts it; empty when that is not told."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return _output("ps", "-o", "lstart=", "-p", str(pid)).replace(" ", "_")
    fields = stat.rpartition(")")[2].split()
    return _ENDED if fields[0] in ("Z", "X") else fields[_START_FIELD]


def _output(*command: str) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}, timeout=5
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()
