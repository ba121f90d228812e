"""The section of a report about functions: calls, queue, instances (``--faas``)."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from arkdev.cli.terminal import Section, Symbols, duration, facts, plural, printable
from arkdev.harness.distributions import LatencySummary
from arkdev.harness.functions_report import FunctionSummary
from arkdev.harness.summary import Summary

_STATUS_WORDS = {
    "timeout": "ran out of time",
    "out_of_memory": "lost to an instance out of memory",
    "crashed": "lost to an instance that crashed",
    "lost": "lost with their instance",
    "not_started": "without an instance that starts",
    "cancelled": "interrupted",
}


def functions(summary: Summary, signs: Symbols) -> Section | None:
    """Build what each function's calls waited for, and what its instances took."""
    rows: list[tuple[str, Text | str]] = []
    for function in summary.functions:
        rows += _rows(function, signs)
    notes = dict.fromkeys(note for function in summary.functions for note in function.notes)
    rows += [("note", Text(printable(note), style="dim")) for note in notes]
    return Section("FaaS", facts(rows)) if rows else None


def _rows(function: FunctionSummary, signs: Symbols) -> Iterator[tuple[str, Text | str]]:
    dot = f"  {signs.dot}  "
    calls = [plural(function.num_calls, "call")]
    if function.service is not None:
        calls.append(f"took {_quantiles(function.service)}")
    yield printable(function.name), dot.join(calls)
    yield "  queued", dot.join(_queue(function))
    yield "  instances", dot.join(_instances(function))
    if used := list(_used(function)):
        yield "  used", dot.join(used)
    for status, count in function.statuses.items():
        text = f"{plural(count, 'call')} {_STATUS_WORDS.get(status, status)}"
        yield "", Text(text, style="red")
    for ending, count in function.endings.items():
        yield "", Text(f"{plural(count, 'instance')} ended: {printable(ending)}", style="yellow")


def _queue(function: FunctionSummary) -> Iterator[str]:
    if function.queue is not None:
        yield f"{_quantiles(function.queue)}, longest {duration(function.queue.max_s)}"
    if function.num_queued_longer:
        text = f"{function.num_queued_longer} longer than the timeout of {function.timeout_s:g} s"
        yield text
    yield f"{plural(function.num_cold_calls, 'call')} waited for a cold start"


def _instances(function: FunctionSummary) -> Iterator[str]:
    yield (
        f"{function.max_instances} at most at once of {function.max_replicas}, "
        f"{function.num_instances} in all, {function.max_concurrency} calls in each"
    )
    if function.start is not None and function.import_mean_s is not None:
        yield (
            f"ready in {duration(function.start.p50_s)} "
            f"({duration(function.import_mean_s)} of it the import)"
        )


def _used(function: FunctionSummary) -> Iterator[str]:
    if function.memory_peak_mb is not None:
        enforced = "" if function.enforced_memory_mb else " (not enforced)"
        yield f"memory peak {function.memory_peak_mb:.0f} of {function.memory_mb} MiB{enforced}"
    if function.cpu_s is not None:
        used = f", {function.cpu_used:.2f} cores" if function.cpu_used is not None else ""
        enforced = "" if function.enforced_cpus else " (not enforced)"
        yield f"CPU {duration(function.cpu_s)}{used} of {function.num_cpus:g}{enforced}"


def _quantiles(latency: LatencySummary) -> str:
    return f"p50 {duration(latency.p50_s)}, p99 {duration(latency.p99_s)}"
