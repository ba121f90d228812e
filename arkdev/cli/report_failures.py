"""What became of failures: a section of the report, and a part of ``arkdev show RUN ID``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from arkdev.cli.terminal import (
    Section,
    Symbols,
    duration,
    number,
    plural,
    printable,
    symbols,
)
from arkdev.harness.failures import Failure, failures_of, fate, sibling_shift
from arkdev.harness.summary import (
    FailureRow,
    FailureSummary,
    ShiftSummary,
    Summary,
    SuspectReward,
    Suspicion,
)
from arkdev.harness.swallowed_errors import QUESTIONS
from arkdev.runs.records import FaultRecord, GroupRecord, TrajectoryRecord

_HANDLING = {
    "resent": "arkdev sent the call again",
    "repeated": "made good by another attempt",
    "plugin": "the plugin went on",
    "given_up": "the plugin gave the sample up",
    "nobody": "never made good",
}
_ANSWERED = ("slow", "garbage", "cut_json", "empty")
"""After a fault of these kinds there was an answer: the plugin may not have minded it."""
_FATES = {
    "trained": "trained on",
    "no_signal": "in a group without signal",
    "dropped": "dropped with the group",
    "ungraded": "ungraded: a job would fail",
    "job_fails": "a job would fail",
    "pending": "not graded",
}
_STYLES = {"nobody": "red", "given_up": "yellow", "plugin": "yellow"}
_MAX_ROWS = 12


def failures(summary: Summary, signs: Symbols) -> Section | None:
    """Build what became of faults and failed attempts, and what looks like a swallowed error."""
    found = summary.failures
    if found is None:
        return None
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold", ratio=1)
    for suspicion in found.suspicions:
        count = Text(f" {suspicion.count} {signs.times}", style="bold yellow")
        table.add_row(count, _question(suspicion, signs))
    rows = [(row, row.side) for row in found.faults]
    # a fault that nobody made good ends an attempt too: that is told apart from the fault
    rows += [(row, f"{row.side} attempt,") for row in found.failed_attempts]
    for row, whose in rows[:_MAX_ROWS]:
        style = _STYLES.get(row.handling, "default")
        text = _row_text(row, signs, whose=whose)
        table.add_row(Text(f" {row.count} {signs.times}", style=style), text)
    num_more = len(rows) - _MAX_ROWS
    if num_more > 0:
        table.add_row("", Text(f"and {plural(num_more, 'other kind')}", style="dim"))
    table.add_row("", Text(_totals(found), style="dim"))
    return Section("Failures", table)


def _totals(found: FailureSummary) -> str:
    faults = plural(found.num_faults, "fault")
    if found.num_injected:
        faults += f" ({found.num_injected} injected)"
    attempts = plural(found.num_failed_attempts, "attempt")
    return f"{faults}; {attempts} that did not succeed"


def _question(suspicion: Suspicion, signs: Symbols) -> Text:
    shown = [
        f"{_whose(suspect)} reward {suspect.reward:g} after {suspect.cause}"
        for suspect in suspicion.examples
    ]
    if suspicion.count > len(shown):
        shown.append(f"{suspicion.count - len(shown)} more")
    question = QUESTIONS[suspicion.code]
    text = Text(printable("; ".join(shown)) + ": is that meant?", style="bold yellow")
    text.append(f"\n{question.text}", style="not bold default")
    return text.append(f"\n{signs.arrow} {question.advice}", style="not bold default")


def _whose(suspect: SuspectReward) -> str:
    if not suspect.is_whole_group:
        return f"{suspect.trajectory_id}:"
    return f"the group of {suspect.trajectory_id}: lowest"


def _row_text(row: FailureRow, signs: Symbols, *, whose: str) -> Text:
    """Build two lines: what, who handled it and what became of it; then shifts and examples."""
    notes = ["in a grader"] if row.plugin == "grader" and row.side != "grader" else []
    notes += ["injected"] if row.is_injected else []
    name = printable(f"{whose} {row.kind}") + "".join(f", {note}" for note in notes)
    text = Text(name, style="bold")
    handled = _handled(row.handling, row.kind)
    text.append(f": {handled}", style=f"not bold {_STYLES.get(row.handling, '')}")
    fates = ", ".join(f"{count} {_FATES[name]}" for name, count in row.fates.items())
    text.append(f"  {signs.dot}  {fates}", style="not bold default")
    notes = [_shift_text(row.shift)] if row.shift is not None else []
    needed = sorted(map(int, row.attempts))
    if needed[-1] > 1:
        fewest = f"{needed[0]} to " if len(needed) > 1 else ""
        notes.append(f"in {fewest}{needed[-1]} attempts")
    notes.append(f"e.g. {', '.join(row.examples)}")
    return text.append(f"\n{f'  {signs.dot}  '.join(notes)}", style="not bold dim")


def _handled(handling: str, kind: str) -> str:
    is_answered = handling == "nobody" and kind in _ANSWERED
    return "answered, but no attempt succeeded" if is_answered else _HANDLING[handling]


def _shift_text(shift: ShiftSummary) -> str:
    text = f"moved {plural(shift.num_siblings, 'sibling')} by {number(shift.mean)}"
    if shift.num_siblings > 1:
        text += f", at most {number(shift.largest)} ({shift.largest_of})"
    if shift.num_sign_changes:
        text += f", {plural(shift.num_sign_changes, 'sign')} changed"
    return text


def print_trajectory_failures(
    out: Console, record: TrajectoryRecord, group: GroupRecord | None
) -> None:
    """Print the faults of one trajectory, attempt by attempt, and how it moved its siblings.

    Nothing is printed when nothing failed.
    """
    found = failures_of(record, group)
    if not found:
        return
    signs = symbols(out)
    rows = [_fault_cells(failure, failure.fault) for failure in found if failure.fault is not None]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if rows:
        out.print(Text("faults", style="bold"))
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        out.print(Text("  ".join(("", *cells)).rstrip()), soft_wrap=True)
    became = fate(group, record.trajectory_id, verdict=record.verdict)
    out.print(Text(f"what became of {record.trajectory_id}: {_FATES[became]}", style="bold"))
    siblings = sibling_shift(group, record.trajectory_id) if group is not None else None
    for sibling in siblings or ():
        line = f"  {sibling.trajectory_id}  advantage {sibling.advantage:+.3f}, "
        line += f"without {record.trajectory_id} {sibling.without:+.3f}: "
        line += f"moved by {sibling.shift:+.3f}"
        changed = f"  {signs.arrow} sign changed" if sibling.changes_sign else ""
        out.print(Text(line).append(changed, style="yellow"), soft_wrap=True)


def _fault_cells(failure: Failure, fault: FaultRecord) -> tuple[str, str, str, str]:
    injected = " injected" if fault.is_injected else ""
    text = f"{printable(fault.target)}: {_handled(failure.handling, fault.kind)}"
    if fault.is_answered_later:
        text += ", its next try was answered"
    if fault.detail:
        text += f" ({printable(fault.detail)})"
    kind = printable(f"{fault.side} {fault.kind}{injected}")
    return printable(failure.source), duration(fault.started_s), kind, text


def trajectory_failures_json(record: TrajectoryRecord, group: GroupRecord | None) -> dict[str, Any]:
    """Return the same as plain JSON data."""
    siblings = sibling_shift(group, record.trajectory_id) if group is not None else None
    return {
        "fate": fate(group, record.trajectory_id, verdict=record.verdict),
        "failures": [asdict(failure) for failure in failures_of(record, group)],
        "sibling_shift": None
        if siblings is None
        else [{**asdict(s), "shift": s.shift, "changes_sign": s.changes_sign} for s in siblings],
    }
