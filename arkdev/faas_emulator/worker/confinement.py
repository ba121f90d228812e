"""What an instance that is a child process does to itself before it loads its plugin.

`ProcessLauncher` asks for it in the worker's argument; a container has its limits from outside. It
is no sandbox: a plugin that wants to can undo it.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from arkdev.faas_emulator.worker.wire import INSTANCE_VARIABLE

_PROC = Path("/proc")
_QUIET_LOOKS, _LOOK_EVERY_S = 2, 0.005
"""A process that is just becoming another program has no environment for a moment."""


def confine(settings: Mapping[str, Any]) -> None:
    """Apply `settings`: ``lifeline`` (a descriptor), ``cpus`` (a list of cores), ``nofile``."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = settings.get("nofile")
    if wanted is not None:
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    if settings.get("cpus") and sys.platform == "linux":
        os.sched_setaffinity(0, settings["cpus"])
    lifeline = settings.get("lifeline")
    if lifeline is not None:
        os.set_inheritable(lifeline, False)
        threading.Thread(
            target=_end_with, args=(lifeline,), name="arkdev-lifeline", daemon=True
        ).start()


def _end_with(lifeline: int) -> None:
    """Wait until the other end of a pipe is closed, as when arkdev is killed; then end all."""
    with suppress(OSError):
        while os.read(lifeline, 1):
            pass
    end_processes_of(os.environ.get(INSTANCE_VARIABLE, ""), spare=os.getpid())
    os.killpg(0, signal.SIGKILL)


def end_processes_of(instance_id: str, *, spare: int | None = None) -> None:
    """Kill every process whose environment names the instance, wherever it has gone.

    Linux alone tells the environment of a process; elsewhere the process group must do.
    """
    if not instance_id or sys.platform != "linux":
        return
    num_quiet = 0
    while num_quiet < _QUIET_LOOKS:
        found = [pid for pid in _processes_of(instance_id) if pid != spare]
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        num_quiet = 0 if found else num_quiet + 1
        time.sleep(_LOOK_EVERY_S)


def _processes_of(instance_id: str) -> Iterator[int]:
    mark = f"{INSTANCE_VARIABLE}={instance_id}".encode()
    for folder in _PROC.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            environment = (folder / "environ").read_bytes()
        except OSError:  # another user's, or gone
            continue
        if mark in environment.split(b"\0"):
            yield int(folder.name)
