"""What is measured of a function: its calls, its instances, and the two summed up."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class InvocationStatus(StrEnum):
    """What became of one call."""

    OK = "ok"
    """The plugin returned or raised: what it said is the answer."""
    TIMEOUT = "timeout"
    """It took longer than `Runtime.timeout`."""
    OUT_OF_MEMORY = "out_of_memory"
    """Its instance was ended for its memory."""
    CRASHED = "crashed"
    """Its instance ended for another reason: an exit code or a signal of its own."""
    LOST = "lost"
    """Its instance ended or stopped answering, and nothing says why."""
    NOT_STARTED = "not_started"
    """No instance could be started for it."""
    CANCELLED = "cancelled"
    """Nobody waits for it any more: the run was interrupted."""


@dataclass(frozen=True)
class InvocationRecord:
    """One call of a function. All times are seconds; offsets count from the pool's start."""

    request_id: str
    function: str
    instance_id: str
    """Empty when no instance took it."""
    status: InvocationStatus
    queued_at_s: float
    queued_s: float
    """From its arrival until an instance took it, `cold_start_s` included."""
    cold_start_s: float
    """Of `queued_s`: what it waited for an instance that was started, 0 on a warm one."""
    service_s: float
    """From there until the answer."""
    num_concurrent: int
    """Calls in the same instance when it began, itself included; 0 when no instance took it."""


@dataclass(frozen=True)
class InstanceRecord:
    """One instance, from its start to its end."""

    instance_id: str
    function: str
    started_at_s: float
    """Offset from the pool's start, in seconds."""
    ready_s: float
    """From the order to start it until it was ready; what of it was the plugin's import is
    `import_s`."""
    import_s: float
    ended_at_s: float | None
    ending: str
    """Why it ended: idle, closed, timeout, out_of_memory, crashed (exit code 1), ...; empty while
    it runs."""
    num_invocations: int
    memory_peak_mb: float | None
    """MiB, so far; None where it cannot be measured."""
    cpu_s: float | None
    """CPU seconds; None where they cannot be measured."""
