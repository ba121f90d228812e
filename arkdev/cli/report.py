"""The report of a test run, for a terminal of any width, with or without colour."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from arkdev.cli import (
    report_faas,
    report_failures,
    report_limits,
    report_sections,
    report_services,
    report_stalls,
)
from arkdev.cli.terminal import Section, Symbols, facts, plural, printable, symbols, titled
from arkdev.harness.distributions import RewardSummary
from arkdev.harness.summary import Summary
from arkdev.runs.writer import PLUGIN_LOG

TWO_COLUMNS_FROM = 130
MAX_WIDTH = 180
_LEFT_OUT = re.compile(rb'"num_left_out":([1-9]\d*)')

_FIRST_SECTIONS = (
    report_sections.rewards,
    report_sections.rollouts,
    report_sections.groups,
    report_sections.graders,
    report_sections.latency,
    report_services.services,
    report_limits.limits,
    report_faas.functions,
    report_sections.turns_and_tokens,
)
_LAST_SECTIONS = (
    report_failures.failures,
    report_sections.failed_attempts,
    report_stalls.stalls,
    report_sections.warnings,
)


def render_summary(
    summary: Summary,
    console: Console,
    *,
    folder: Path | None = None,
    name: str | None = None,
    of: str = "",
) -> None:
    """Print the report of a run.

    `folder` is the run's folder and `name` what to type after ``arkdev show`` to see it again (by
    default the folder's name). `of` says what is summed up, where that is not the whole run.
    """
    signs = symbols(console)
    width = min(console.width, MAX_WIDTH)
    head = headline(summary, signs=signs)
    console.print(Text(f"{of}: ").append_text(head) if of else head, width=width)
    numbers = [titled(s, signs=signs) for s in _built(_FIRST_SECTIONS, summary, signs)]
    if width >= TWO_COLUMNS_FROM:
        console.print(_side_by_side(numbers, console, width), width=width)
    else:
        console.print(Group(*numbers), width=width)
    for section in _built(_LAST_SECTIONS, summary, signs):
        console.print(titled(section, signs=signs), width=width)
    if folder is not None:
        console.print()
        # once more: a screen of 24 lines has scrolled the first line away
        console.print(Text(" ").append_text(headline(summary, signs=signs)), width=width)
        print_next(summary, console, folder, name or folder.name)


def headline(summary: Summary, *, signs: Symbols) -> Text:
    """Say the outcome in one sentence."""
    if not summary.num_rollouts:
        return Text("no rollout finished", style="bold red")
    graded = f"{summary.num_graded:,} of {plural(summary.num_rollouts, 'rollout')} graded"
    reward = summary.reward
    if reward is not None:
        graded += f", mean reward {_with_error(reward, signs)}"
    style = "red" if summary.would_fail_job else "green" if summary.num_graded else "yellow"
    troubles = [
        f"{count} {word}"
        for count, word in (
            (summary.verdicts.get("failure", 0), "failed"),
            (summary.verdicts.get("retry", 0), "used up their retries"),
            (summary.verdicts.get("discard", 0), "discarded"),
            (summary.num_ungraded, "ungraded"),
        )
        if count
    ]
    line = Text(graded, style=f"bold {style}")
    if troubles:
        line.append(f"; {', '.join(troubles)}")
    if summary.would_fail_job:
        line.append(": a job would fail", style="bold red")
    elif summary.num_dropped + summary.verdicts.get("discard", 0) == summary.num_rollouts:
        line.append(": all were given up, so that there is nothing to learn from")
    return line


def _with_error(reward: RewardSummary, signs: Symbols) -> str:
    """Return mean and standard error: at least 2 decimals, more when the error is smaller."""
    error = reward.standard_error
    digits = min(6, max(2, -math.floor(math.log10(error)))) if error else 2
    mean = f"{reward.mean:.{digits}f}"
    return mean if error is None else f"{mean} {signs.plus_minus} {error:.{digits}f}"


def _built(
    builders: tuple[report_sections.Builder, ...], summary: Summary, signs: Symbols
) -> list[Section]:
    sections = (build(summary, signs) for build in builders)
    return [section for section in sections if section is not None]


def _side_by_side(parts: list[Group], console: Console, width: int) -> RenderableType:
    """Put the parts into two columns of about the same height, in reading order."""
    column = (width - 4) // 2
    options = console.options.update(width=column)
    heights = [len(console.render_lines(part, options)) for part in parts]
    split = (
        min(range(1, len(parts) + 1), key=lambda i: max(sum(heights[:i]), sum(heights[i:])))
        if parts
        else 0
    )
    grid = Table.grid(padding=(0, 4, 0, 0))
    grid.add_column(width=column)
    grid.add_column(width=column)
    grid.add_row(Group(*parts[:split]), Group(*parts[split:]))
    return grid


def print_next(
    summary: Summary, console: Console, folder: Path, name: str, *, first: Sequence[str] = ()
) -> None:
    """Print where the run is and what to look at next: the commands `first`, then a trajectory."""
    rows: list[tuple[str, Text | str]] = [("run", Text(printable(str(folder))))]
    num_lines, num_left_out = _num_log_lines(folder)
    if num_lines:
        text = f"{PLUGIN_LOG} in it: {plural(num_lines, 'line')} that plugins logged or printed"
        if num_left_out:
            text += f", {num_left_out:,} more are left out"
        rows.append(("log", text))
    rows += [("next", command) for command in first]
    if summary.first_failure is not None:
        rows.append(("next", f"arkdev show {name} {summary.first_failure}"))
        rows.append(("", f"arkdev show {name} --failed"))
    elif summary.errors and summary.errors[0].num_final:  # a grader's: no rollout failed
        rows.append(("next", f"arkdev show {name} {summary.errors[0].examples[0]}"))
    elif summary.lowest is not None:
        command = f"arkdev show {name} {summary.lowest.trajectory_id}"
        rows.append(("next", f"{command}   (the lowest reward)"))
    console.print(facts(rows), soft_wrap=True)


def _num_log_lines(folder: Path) -> tuple[int, int]:
    """Return how many lines plugins logged, and how many more are left out."""
    num_lines = num_left_out = 0
    try:
        with (folder / PLUGIN_LOG).open("rb") as file:
            for line in file:
                found = _LEFT_OUT.search(line)
                num_lines += found is None
                num_left_out += int(found[1]) if found else 0
    except OSError:  # nothing was logged
        pass
    return num_lines, num_left_out
