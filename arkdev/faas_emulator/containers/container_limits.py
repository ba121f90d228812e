"""Which limits of a function hold in its containers, and which an engine cannot hold."""

from __future__ import annotations

from collections.abc import Iterator

from arkdev.faas_emulator.engines.engine import EngineFacts
from arkdev.faas_emulator.functions import FunctionSpec
from arkdev.faas_emulator.instances import InstanceLimits

_MIN_TMP_MB = 16


def container_limits(function: FunctionSpec, facts: EngineFacts) -> InstanceLimits:
    """Return the limits that the engine enforces for an instance of the function (DEC-12).

    An engine refuses more CPUs than its machine has, and takes more memory than it has without a
    word: both are clamped, and said.
    """
    num_cpus, memory_mb = _clamped(function, facts)
    return InstanceLimits(
        num_cpus=num_cpus, memory_mb=memory_mb, notes=tuple(_notes(function, facts))
    )


def tmp_mb(memory_mb: int) -> int:
    """Return the size of /tmp, whose files count as memory: half of the instance's."""
    return max(memory_mb // 2, _MIN_TMP_MB)


def _clamped(function: FunctionSpec, facts: EngineFacts) -> tuple[float | None, int | None]:
    num_cpus = float(min(function.num_cpus, facts.num_cpus)) if facts.limits_cpu else None
    memory_mb = function.memory_mb
    if facts.memory_mb:
        memory_mb = min(memory_mb, facts.memory_mb)
    return num_cpus, memory_mb if facts.limits_memory else None


def _notes(function: FunctionSpec, facts: EngineFacts) -> Iterator[str]:
    size = f"{function.name} ({function.runtime.instance.name})"
    if not facts.limits_cpu:
        yield f"{size}: {facts} cannot limit CPUs, so instances use all of them"
    elif function.num_cpus > facts.num_cpus:
        yield (
            f"{size}: {_machine(facts)} has {facts.num_cpus} of the {function.num_cpus} CPUs, so "
            f"instances get {facts.num_cpus}, and what computes takes longer than in the cloud"
        )
    if not facts.limits_memory:
        yield f"{size}: {facts} cannot limit memory, so nothing ends for want of it"
    elif facts.memory_mb and function.memory_mb > facts.memory_mb:
        yield (
            f"{size}: {_machine(facts)} has {facts.memory_mb:,} of the {function.memory_mb:,} MiB "
            f"of memory, so instances get {facts.memory_mb:,}"
        )
    elif not facts.limits_swap:
        yield f"{size}: {facts} cannot limit swap, so memory may be used beyond its limit"


def _machine(facts: EngineFacts) -> str:
    return "the engine's virtual machine" if facts.is_virtual else "this machine"
