"""What the report says of services and tools: calls, times, errors, and what got worse."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from arkdev.cli.terminal import Section, Symbols, duration, facts, number_table, plural, printable
from arkdev.harness.services import ServiceSummary
from arkdev.harness.stability import Instability
from arkdev.harness.summary import Summary

_MAX_ROWS = 8
_QUARTERS = {2: "second quarter", 3: "third quarter", 4: "last quarter"}
_ADVICE = (
    "a service that slows down or fails under this load does so in training as well: raise its "
    "capacity, or find the concurrency that it bears with --concurrency"
)


def services(summary: Summary, signs: Symbols) -> Section | None:
    """Build the table of the services that plugins called, and what is unstable."""
    unstable = [*_unstable_services(summary), *_unstable_tools(summary)]
    if not summary.services and not unstable:
        return None
    parts: list[RenderableType] = []
    if summary.services:
        headers = ("", "calls", "p50", "p95", "max", "in flight", "errors")
        rows = [_row(service) for service in summary.services[:_MAX_ROWS]]
        without = ("p50", "in flight") if signs.is_narrow else ()
        parts.append(number_table(headers, rows, without=without))
        num_more = len(summary.services) - _MAX_ROWS
        if num_more > 0:
            parts.append(Text(f" and {plural(num_more, 'other service')}", style="dim"))
        parts += _what_failed(summary, signs)
    if unstable:
        rows_ = [
            ("unstable" if not index else "", Text(printable(line), style="yellow"))
            for index, line in enumerate(unstable)
        ]
        parts += [facts([*rows_, ("", Text(f"{signs.arrow} {_ADVICE}"))])]
    return Section("Services", Group(*parts))


def _row(service: ServiceSummary) -> tuple[str | Text, ...]:
    errors = f"{service.num_errors}"
    if service.num_errors:
        errors += f"  {_percent(service.num_errors / service.num_calls)}"
    return (
        printable(service.host),
        f"{service.num_calls:,}",
        duration(service.p50_s),
        duration(service.p95_s),
        duration(service.max_s),
        str(service.max_in_flight),
        Text(errors, style="red" if service.num_errors else "dim"),
    )


_GOOD = ("2xx", "3xx")
_WORDS = {"raise": "broke off", "cancelled": "given up by the plugin"}


def _what_failed(summary: Summary, signs: Symbols) -> Iterator[RenderableType]:
    """Say by host what came of the calls that did not end well."""
    rows = []
    for service in summary.services[:_MAX_ROWS]:
        ended = [
            f"{count} {_WORDS.get(name, name)}"
            for name, count in service.outcomes.items()
            if name not in _GOOD
        ]
        if ended:
            rows.append((printable(service.host), f"  {signs.dot}  ".join(ended)))
    if rows:
        yield facts(rows)


def _unstable_services(summary: Summary) -> Iterator[str]:
    for service in summary.services:
        if service.unstable:
            parts = [_worded(one) for one in service.unstable]
            if all(one.kind != "in_flight" for one in service.unstable):
                parts.insert(1, f"{service.max_in_flight} in flight at the peak")
            yield f"{service.host}: {'; '.join(parts)}"


def _unstable_tools(summary: Summary) -> Iterator[str]:
    for tool in summary.tools:
        if tool.unstable:
            yield f"tool {tool.name}: {'; '.join(_worded(one) for one in tool.unstable)}"


def _worded(one: Instability) -> str:
    """Say one thing that got worse.

    >>> _worded(Instability("latency", 4, 0.2, 2.1, "p95"))
    'p95 200 ms in the first quarter, 2.10 s in the last quarter'
    >>> _worded(Instability("errors", 0, 0.031, 0.031))
    '3.1% errors'
    """
    if one.kind == "errors":
        return f"{_percent(one.after)} errors"
    quarter = _QUARTERS[one.quarter]
    if one.kind == "latency":
        return (
            f"{one.measure} {duration(one.before)} in the first quarter, "
            f"{duration(one.after)} in the {quarter}"
        )
    if one.kind == "error_rate":
        return (
            f"{_percent(one.before)} errors in the first quarter, "
            f"{_percent(one.after)} in the {quarter}"
        )
    return (
        f"up to {one.before:.0f} in flight in the first quarter, {one.after:.0f} in the {quarter}"
    )


def _percent(rate: float) -> str:
    """Return a share of failed calls.

    >>> [_percent(rate) for rate in (0, 0.0004, 0.031, 1)]
    ['0%', '<0.1%', '3.1%', '100%']
    """
    if 0 < rate < 0.001:
        return "<0.1%"
    return f"{100 * rate:.1f}".removesuffix(".0") + "%"
