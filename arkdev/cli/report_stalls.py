"""What held a run up: the report's section on stalls and slow calls, and the line while it runs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rich.table import Table
from rich.text import Text

from arkdev.cli.terminal import Section, Symbols, duration, plural, printable
from arkdev.harness.distributions import LatencySummary
from arkdev.harness.slowest import SlowCall
from arkdev.harness.stalls import AWAIT, StallKind, StallRecord
from arkdev.harness.summary import Summary

_MAX_ROWS = 6
_SLOW_FROM_S = 0.1
_MODEL_CALLS = (".create", ".parse")
_CLIENT_CLASS = re.compile(r"(^|\.)[A-Z]\w*(Client|OpenAI|Ark)$")
_HTTP_LIBRARIES = ("requests.", "httpx.", "urllib", "http.client", "session.", "client.")
_FUNCTION = re.compile(r"[^\W\d_]\w*(\.[^\W\d_]\w*)*")
"""A dotted name that one could write oneself: nothing private, no expression."""

_VERBS = {
    StallKind.BLOCKS_LOOP: "blocked the event loop",
    StallKind.HOLDS_INTERPRETER: "held the interpreter",
    StallKind.EXECUTOR_STARVED: "kept a full thread pool busy",
    StallKind.HARNESS: "arkdev itself, the garbage collector or a busy machine held the run up",
}


def stalls(summary: Summary, signs: Symbols) -> Section | None:
    """Build what held others up, with advice, and the slowest tool and grader."""
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold", ratio=1)
    for record in summary.stalls[:_MAX_ROWS]:
        table.add_row(Text(f" {record.count} {signs.times}", style="yellow"), _row(record, signs))
    num_more = len(summary.stalls) - _MAX_ROWS
    if num_more > 0:
        table.add_row("", Text(f"and {plural(num_more, 'other place')}", style="dim"))
    for label, text in _slow(summary):
        table.add_row(Text(f" {label}", style="dim"), text)
    return Section("What held the run up", table) if table.row_count else None


def sentence(record: StallRecord) -> str:
    """Say what a piece of code did: ``plugins/a.py:7 answer blocked the event loop ...``."""
    verb = _VERBS[record.kind]
    times = f"for {duration(record.total_s)}"
    if record.count > 1:
        times += f", {duration(record.max_s)} at most"
        if record.longest_stall_s > 1.5 * record.max_s:
            times += f" and {duration(record.longest_stall_s)} in a row"
    if record.kind is StallKind.HARNESS:
        return f"{verb} {times}"
    what = " ".join(part for part in (record.where, _function(record)) if part) or record.called
    called = f": {record.called}" if record.called and record.called != what else ""
    return f"{what} {verb} {times}{called}"


_ADVICE = {
    StallKind.HARNESS: "a lower --concurrency helps when it matters",
    StallKind.EXECUTOR_STARVED: "await an async client, write the plugin as def (a thread of its "
    "own), or use a larger pool: loop.run_in_executor(ThreadPoolExecutor(64), ...)",
    StallKind.HOLDS_INTERPRETER: "compute less, in another process (ProcessPoolExecutor), or in a "
    "library in C",
}


def advice(record: StallRecord) -> str:
    """Say how to mend it."""
    return _ADVICE.get(record.kind) or _advice_for_a_call(record)


def _advice_for_a_call(record: StallRecord) -> str:
    name = record.called.rpartition(".")[2]
    if name == "sleep":
        return "await asyncio.sleep(...)"
    if _CLIENT_CLASS.search(record.called):
        return (
            "make the client once, outside the plugin: each one loads the certificates anew; model "
            "clients can share one (http_client=...)"
        )
    if record.called.endswith(_MODEL_CALLS):
        return "take proxy.async_rollout_client() and await its calls, or write the plugin as def"
    if record.called.startswith(_HTTP_LIBRARIES):
        return "await an async client (httpx.AsyncClient, aiohttp), or asyncio.to_thread(...)"
    if not record.called:
        return (
            "write the plugin as def or await asyncio.to_thread(...); what computes for long in "
            "Python belongs into another process"
        )
    if record.called.startswith(AWAIT):
        return (
            "it is awaited, but computes or blocks before it waits: write the plugin as def (a "
            "thread of its own), or call what blocks with asyncio.to_thread(...)"
        )
    if not _FUNCTION.fullmatch(record.called):
        return "await an async client, or write the plugin as def (a thread of its own)"
    return f"await asyncio.to_thread({record.called}, ...), an async client, or a def plugin"


def _function(record: StallRecord) -> str:
    function = record.function.rpartition("<locals>.")[2]
    plugin = record.plugin.rpartition("<locals>.")[2]
    return f"{function} (in {plugin})" if plugin and plugin != function else function


def _row(record: StallRecord, signs: Symbols) -> Text:
    row = Text(printable(sentence(record)), style="yellow")
    row.append(f"\n{signs.arrow} {printable(advice(record))}", style="default")
    if record.num_waiting:
        noun = "call" if record.kind is StallKind.EXECUTOR_STARVED else "attempt"
        waited = f"up to {plural(record.num_waiting, noun)} waited"
        names = ", ".join(record.waited)
        row.append(f"\n{printable(waited + (f', e.g. {names}' if names else ''))}", style="dim")
    return row


def _slow(summary: Summary) -> Iterator[tuple[str, Text]]:
    tools = [(tool.name, "", tool.latency, tool.slowest) for tool in summary.tools]
    graders = [(g.name, g.place, g.latency, g.slowest) for g in summary.graders]
    for word, rows in (("slowest tool", tools), ("slowest grader", graders)):
        known = [row for row in rows if row[2] is not None and row[2].p95_s >= _SLOW_FROM_S]
        if known:
            slowest = max(known, key=lambda row: row[2].p95_s if row[2] else 0.0)
            yield word, _slow_row(*slowest)


def _slow_row(
    name: str, place: str, latency: LatencySummary | None, slowest: tuple[SlowCall, ...]
) -> Text:
    assert latency is not None
    row = Text(printable(name))
    if place:
        row.append(f" {printable(place)}")
    row.append(f": p95 {duration(latency.p95_s)} of {plural(latency.count, 'call')}")
    calls = ", ".join(f"{call.trajectory_id} ({duration(call.duration_s)})" for call in slowest)
    row.append(f"\nlongest for {printable(calls)}", style="dim")
    return row
