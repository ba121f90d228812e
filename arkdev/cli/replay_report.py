"""The report of a replay: what changed in the rewards, and two graders in training terms."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.text import Text

from arkdev.cli import report_sections
from arkdev.cli.report import MAX_WIDTH
from arkdev.cli.terminal import (
    Section,
    Symbols,
    facts,
    number,
    number_table,
    plural,
    printable,
    share,
    symbols,
    titled,
)
from arkdev.flows.regrading import ReplayOutcome
from arkdev.harness.grader_diff import GraderDiff
from arkdev.harness.reward_changes import RewardChanges, RunChanges


def render_replay(outcome: ReplayOutcome, console: Console, *, name: str) -> None:
    """Print the report; `name` is what to type after ``arkdev show``."""
    signs = symbols(console)
    width = min(console.width, MAX_WIDTH)
    if outcome.diff is None:
        console.print(_headline(outcome, signs), width=width)
        sections = [_rewards(outcome.changes, signs), _verdicts(outcome.changes, signs)]
        sections.append(_largest(outcome.changes, signs))
    else:
        console.print(_diff_headline(outcome.diff, signs), width=width)
        sections = [_diff(outcome.diff, signs), _moved(outcome.diff, signs)]
    failures = report_sections.failed_attempts(outcome.summary, signs)
    for section in (*sections, failures):
        if section is not None:
            console.print(titled(section, signs=signs), width=width)
    console.print()
    rows: list[tuple[str, Text | str]] = [("replay", Text(printable(str(outcome.folder))))]
    next_id = _worth_a_look(outcome)
    if next_id:
        rows.append(("next", f"arkdev show {name} {next_id}"))
    console.print(facts(rows), soft_wrap=True)


def _worth_a_look(outcome: ReplayOutcome) -> str | None:
    if outcome.diff is not None:
        return outcome.diff.moved[0].trajectory_id if outcome.diff.moved else None
    weighted = outcome.changes.weighted
    if weighted.newly_ungraded:
        return weighted.newly_ungraded[0]
    return weighted.largest[0].trajectory_id if weighted.largest else None


def _headline(outcome: ReplayOutcome, signs: Symbols) -> Text:
    changes = outcome.changes
    weighted = changes.weighted
    graded = f"{changes.num_trajectories} of the run's trajectories graded again"
    if outcome.num_left_out:
        graded += f", {plural(outcome.num_left_out, 'group')} lost"
    if not weighted.num_changed and not changes.verdicts:
        if not weighted.num_compared:
            return Text(f"{graded}: no reward, neither before nor now", style="bold yellow")
        style = "bold yellow" if outcome.num_left_out else "bold green"
        return Text(f"{graded}: nothing changed", style=style)
    line = Text(f"{graded}: {weighted.num_changed} rewards changed", style="bold yellow")
    if weighted.num_compared:
        before, after = number(weighted.mean_before), number(weighted.mean_after)
        line.append(f", mean {before} {signs.arrow} {after}")
    if weighted.num_newly_ungraded:
        line.append(f"; {weighted.num_newly_ungraded} newly ungraded", style="bold red")
    return line


def _rewards(changes: RunChanges, signs: Symbols) -> Section:
    rows = [_reward_row(changes.weighted), *map(_reward_row, changes.graders)]
    headers = ("reward", "n", "before", "after", "same", "raised", "lowered", "graded", "ungraded")
    table = number_table(headers, rows, without=("n", "same") if signs.is_narrow else ())
    rows_below = [
        (label, ", ".join(map(printable, names)))
        for label, names in (("new", changes.new_graders), ("gone", changes.gone_graders))
        if names
    ]
    note = Text(" means over the n that had a reward before and have one now", style="dim")
    parts: list[RenderableType] = [table, facts(rows_below)] if rows_below else [table]
    return Section("Rewards before and after", Group(*parts, note))


def _reward_row(changes: RewardChanges) -> list[str | Text]:
    def counted(count: int, style: str) -> Text:
        return Text(str(count), style=style if count else "dim")

    return [
        printable(changes.name),
        str(changes.num_compared),
        number(changes.mean_before),
        Text(number(changes.mean_after), style="bold"),
        str(changes.num_unchanged),
        counted(changes.num_raised, "yellow"),
        counted(changes.num_lowered, "yellow"),
        counted(changes.num_newly_graded, "yellow"),
        counted(changes.num_newly_ungraded, "red"),
    ]


def _verdicts(changes: RunChanges, signs: Symbols) -> Section | None:
    if not changes.verdicts:
        return None
    words = report_sections.VERDICT_WORDS
    lines = [
        (
            plural(change.num_groups, "group"),
            f"{words[change.before]} {signs.arrow} {words[change.after]}"
            f"   e.g. {', '.join(change.examples)}",
        )
        for change in changes.verdicts
    ]
    return Section("Verdicts", facts(lines))


def _largest(changes: RunChanges, signs: Symbols) -> Section | None:
    lines: list[tuple[str, Text | str]] = [
        (one.trajectory_id, f"{number(one.before)} {signs.arrow} {number(one.after)}")
        for one in changes.weighted.largest
    ]
    lines += [
        (name, Text("no reward any more", style="red")) for name in changes.weighted.newly_ungraded
    ]
    return Section("Largest changes", facts(lines)) if lines else None


def _diff_headline(diff: GraderDiff, signs: Symbols) -> Text:
    if not diff.num_groups:
        return Text("no group was graded whole by both: nothing to compare", style="bold red")
    flipped = diff.gradient.flipped
    what = "trains the same way" if not flipped else f"{flipped:.1%} of the gradient turns round"
    if flipped is None:
        what = f"{printable(diff.a)} gives no signal"
    style = "green" if flipped == 0 and not diff.gradient.lost else "yellow"
    return Text(f"{plural(diff.num_groups, 'group')} compared: {what}", style=f"bold {style}")


def _diff(diff: GraderDiff, signs: Symbols) -> Section:
    names = Text(f"A = {printable(diff.a)}   B = {printable(diff.b)}", style="dim")
    return Section("A against B", Group(names, facts(_diff_rows(diff, signs))))


def _diff_rows(diff: GraderDiff, signs: Symbols) -> Iterator[tuple[str, Text | str]]:
    pairs, signal = diff.pairs, diff.signal
    means = f"{number(diff.mean_a)} {signs.arrow} {number(diff.mean_b)}"
    correlations = (("Pearson", diff.pearson), ("Spearman", diff.spearman))
    known = [f"{name} {value:.3f}" for name, value in correlations if value is not None]
    yield "mean reward", f"  {signs.dot}  ".join([means, *known])
    yield (
        "pairs in groups",
        _counts(
            signs,
            pairs.num_pairs,
            (pairs.num_flipped, "ordered the other way round", "red"),
            (pairs.num_ties_broken, "ties broken", "yellow"),
            (pairs.num_ties_made, "ties made", "yellow"),
        ),
    )
    yield (
        "advantages",
        _counts(
            signs,
            diff.num_trajectories,
            (diff.signs.num_flipped, "with another sign", "red"),
            (diff.signs.num_gained, "no longer 0", "yellow"),
            (diff.signs.num_lost, "now 0", "yellow"),
        ),
    )
    yield (
        "groups",
        _counts(
            signs,
            diff.num_groups,
            (signal.num_gained, "gain a signal", "yellow"),
            (signal.num_lost, "lose it", "yellow"),
            (signal.num_neither, "without one in both", "dim"),
        ),
    )
    yield from _gradient_rows(diff, signs)
    apart = [
        (diff.num_only_a, "graded whole by A alone", "yellow"),
        (diff.num_only_b, "by B alone", "yellow"),
        (diff.num_neither, "by neither", "dim"),
    ]
    if any(count for count, _, _ in apart):
        total = diff.num_groups + sum(count for count, _, _ in apart)
        yield "left out", _counts(signs, total, *apart)


def _gradient_rows(diff: GraderDiff, signs: Symbols) -> Iterator[tuple[str, Text | str]]:
    gradient = diff.gradient
    if gradient.flipped is None or gradient.lost is None:
        yield "gradient", "A gives no signal at all"
        return
    text = Text(f"{gradient.flipped:.1%}", style="red" if gradient.flipped else "default")
    text.append(" of A's weight changes its sign", style="default")
    text.append(f"  {signs.dot}  {gradient.lost:.1%} is lost", style="default")
    yield "gradient", text
    yield "", Text(f"weight: |advantage| {signs.times} {gradient.counted_by}", style="dim")
    if diff.flipped_groups:
        yield (
            "",
            Text(f"groups with a turned pair, e.g. {', '.join(diff.flipped_groups)}", style="dim"),
        )


def _counts(signs: Symbols, total: int, *counts: tuple[int, str, str]) -> Text:
    """``3 of 24 ... 12%  ·  ...``: those above 0, each with its share of `total`."""
    text = Text()
    for count, words, style in counts:
        if count:
            text.append(f"  {signs.dot}  " if text else "", style="dim")
            text.append(f"{count} {words}", style=style)
            text.append(f" {share(count, total)}", style="dim")
    text.append(f" of {total}" if text else f"none of {total} changed", style="dim")
    return text


def _moved(diff: GraderDiff, signs: Symbols) -> Section | None:
    if not diff.moved:
        return None
    rows = [
        (
            one.trajectory_id,
            number(one.reward_a),
            number(one.reward_b),
            number(one.advantage_a),
            Text(number(one.advantage_b), style="bold"),
        )
        for one in diff.moved
    ]
    headers = ("trajectory", "reward A", "reward B", "advantage A", "advantage B")
    return Section("Advantages that move most", number_table(headers, rows))
