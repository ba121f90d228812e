"""What a run folder keeps of the FaaS emulator (docs/runs.md). Plain data, no behaviour."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FunctionCallRecord:
    """One call of a function: a line of ``invocations.jsonl``. Times are seconds."""

    at: str
    """UTC, when it arrived at the function's queue."""
    function: str
    request_id: str
    trajectory_ids: tuple[str, ...]
    """Several for a grader that sees a group; none for a call that is of no attempt."""
    attempt: int | None
    """Of the rollout or grader, from 0."""
    grader: str | None
    """None: a rollout's."""
    step: int | None
    """Of the job; None in a test."""
    instance_id: str
    """Empty when no instance took it."""
    status: str
    """``ok``, ``timeout``, ``out_of_memory``, ``crashed``, ``lost``, ``not_started``,
    ``cancelled``"""
    queued_s: float
    """From its arrival until an instance took it, `cold_start_s` included."""
    cold_start_s: float
    """Of `queued_s`: what it waited for an instance that was started."""
    service_s: float
    """From there until the answer."""
    num_concurrent: int
    """Calls in the same instance when it began, itself included; 0 when none took it."""


@dataclass(frozen=True)
class FunctionInstanceRecord:
    """One instance of a function that has ended: a line of ``instances.jsonl``."""

    function: str
    instance_id: str
    started_at: str
    """UTC, when it was ordered."""
    ended_at: str
    ready_s: float
    """From the order until it was ready, the import of the plugin included."""
    import_s: float
    ending: str
    """``idle``, ``closed``, ``timeout``, ``out_of_memory (...)``, ``crashed (exit code 3)``, ..."""
    num_invocations: int
    memory_peak_mb: float | None
    """MiB; None where it cannot be measured."""
    cpu_s: float | None
