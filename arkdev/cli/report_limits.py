"""The section of a report about limits, and who repeated what."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from arkdev.cli.terminal import Section, Symbols, duration, facts, plural, printable
from arkdev.endpoints.limits import EndpointUse
from arkdev.harness.attempts import MAX_ATTEMPTS
from arkdev.harness.limits_report import LimitsReport
from arkdev.harness.summary import Summary
from arkdev.sessions.retries import MAX_RETRIES

_NAMES = {
    "max_in_flight": "for a place",
    "requests_per_minute": "by requests per minute",
    "tokens_per_minute": "by tokens per minute",
}
_SHOWN_FROM_S = 0.05


def limits(summary: Summary, signs: Symbols) -> Section | None:
    """Build what limits held back, what the endpoint sustained, and what ran out of time."""
    report = summary.limits or LimitsReport()
    rows: list[tuple[str, Text | str]] = []
    if report.endpoint is not None:
        rows += _endpoint_rows(report.endpoint, signs)
    if report.endpoint is not None or summary.limit_wait_s >= _SHOWN_FROM_S:
        waited = f"model calls waited {duration(summary.limit_wait_s)} for the limits"
        rows.append(("waited", f"{waited} (no part of their latency)"))
    for tool in report.tools:
        held = f"{tool.num_held_back} of {plural(tool.num_calls, 'call')} held back"
        text = f"waited {duration(tool.waited_s)} for the limits, {held}"
        if tool.num_over:
            text += (
                f"; {plural(tool.num_over, 'call')} over max_in_flight, since waiting would have "
                "blocked the event loop (await an async client)"
            )
        rows.append((f"tool {printable(tool.host)}", text))
    if report.num_timed_out:
        text = f"{plural(report.num_timed_out, 'plugin call')} ran out of time"
        if report.num_left_running:
            text += f"; {report.num_left_running} of them still run, left behind and not waited for"
        rows.append(("time limits", Text(text, style="yellow")))
    return Section("Limits", facts(rows)) if rows else None


def _endpoint_rows(use: EndpointUse, signs: Symbols) -> Iterator[tuple[str, str]]:
    limits = use.limits
    parts = [
        f"{value:,} {unit}"
        for value, unit in (
            (limits.requests_per_minute, "requests/min"),
            (limits.tokens_per_minute, "tokens/min"),
            (limits.max_in_flight, "in flight"),
        )
        if value is not None
    ]
    held = f"{plural(use.num_held_back, 'model call')} held back"
    named = [
        f"{duration(seconds)} {_NAMES[name]}"
        for name, seconds in use.waited_s.items()
        if seconds >= _SHOWN_FROM_S
    ]
    parts.append(f"{held} ({', '.join(named)})" if named else held)
    parts.append(f"{use.peak_in_flight} in flight at most")
    yield "endpoint", f"  {signs.dot}  ".join(parts)
    seen = use.sustained
    if seen is None:
        return
    parts = [f"settled at {seen.settled_at} in flight", plural(seen.num_decreases, "decrease")]
    if seen.in_flight is None or seen.requests_per_s is None:
        parts.append("it never held a call back: there was less to do than the endpoint takes")
    else:
        sustained = f"{seen.in_flight:.1f} in flight and {seen.requests_per_s:.1f} requests/s"
        parts.append(f"sustained {sustained}")
    yield "adaptive", f"  {signs.dot}  ".join(parts)


def retries(summary: Summary) -> str:
    """Say who repeats what, when something was repeated; else ""."""
    graded_again = any(needed != "1" for grader in summary.graders for needed in grader.attempts)
    if not (summary.num_model_call_retries or summary.num_reruns or graded_again):
        return ""
    by_clients = any(warning.code == "client_retried" for warning in summary.warnings)
    return (
        f"model calls up to {MAX_RETRIES} by arkdev; "
        f"plugin attempts up to {MAX_ATTEMPTS - 1} more; clients inside plugins "
        + ("their own through the gateway" if by_clients else "0")
    )
