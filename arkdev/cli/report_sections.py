"""The sections of a test report; each function returns None when it has nothing to say."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from arkdev.cli.report_limits import retries
from arkdev.cli.terminal import (
    Section,
    Symbols,
    duration,
    facts,
    number,
    number_table,
    plural,
    printable,
    share,
)
from arkdev.harness.distributions import Bin, CountSummary, LatencySummary, RewardSummary
from arkdev.harness.summary import GraderSummary, GroupSummary, Summary
from arkdev.harness.warnings import describe_warning

VERDICT_STYLES = {"success": "green", "failure": "red", "discard": "yellow", "retry": "yellow"}
VERDICT_WORDS = {
    "success": "succeeded",
    "failure": "failed",
    "discard": "discarded",
    "retry": "retries used up",
}
Builder = Callable[[Summary, Symbols], Section | None]
_MAX_ROWS = 8
_HISTOGRAM_WIDTH = 40


def rewards(summary: Summary, signs: Symbols) -> Section | None:
    """Build the table of rewards and the histogram of the weighted one."""
    weighted = summary.reward
    named = [(f"{g.name} {signs.times}{g.weight:g}", g.reward) for g in summary.graders]
    if weighted is None:
        return None
    is_same = [grader.weight for grader in summary.graders] == [1.0]
    rows = [] if is_same else [_reward_row("weighted", weighted, signs)]
    rows += [_reward_row(printable(name), reward, signs) for name, reward in named]
    error = f"{signs.plus_minus} se"
    headers = ("reward", "n", "mean", error, "std", "min", "p50", "max", "ungraded")
    without = (error, "std", "p50", "ungraded") if signs.is_narrow else ()
    table = number_table(headers, rows, without=without)
    quantiles = Text(" quantiles ", style="dim")
    for name, value in weighted.quantiles.items():
        quantiles.append(f" {name} ", style="dim").append(number(value), style="default")
    return Section(
        "Rewards", Group(table, Text(), _histogram(weighted.histogram, signs), Text(), quantiles)
    )


def _reward_row(name: str, reward: RewardSummary | None, signs: Symbols) -> list[str | Text]:
    if reward is None:
        return [name, "0", *[Text(signs.dash, style="dim")] * 6, ""]
    error = reward.standard_error
    return [
        name,
        str(reward.num_graded),
        Text(number(reward.mean), style="bold"),
        number(error, unknown=signs.dash),
        number(reward.std, unknown=signs.dash),
        number(reward.min),
        number(reward.quantiles["p50"]),
        number(reward.max),
        Text(str(reward.num_ungraded), style="red" if reward.num_ungraded else "dim"),
    ]


def _histogram(bins: tuple[Bin, ...], signs: Symbols) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True, style="dim")
    table.add_column(justify="right", no_wrap=True, style="dim")
    width = _HISTOGRAM_WIDTH // 2 if signs.is_narrow else _HISTOGRAM_WIDTH
    highest = max(bar.count for bar in bins)
    total = sum(bar.count for bar in bins)
    for bar in bins:
        is_value = bar.low == bar.high
        label = f"{bar.low:g}" if is_value else f"{bar.low:g} {signs.dash} {bar.high:g}"
        cells = signs.bar(bar.count / highest, width=width).ljust(width)
        table.add_row(
            f" {label}", Text(cells, style="cyan"), str(bar.count), share(bar.count, total)
        )
    return table


def rollouts(summary: Summary, signs: Symbols) -> Section | None:
    """Build what became of the rollouts, and in how many attempts."""
    if not summary.num_rollouts:
        return None
    verdicts = Text()
    for name, count in summary.verdicts.items():
        verdicts.append(f"  {signs.dot}  " if verdicts else "", style="dim")
        verdicts.append(f"{count} {VERDICT_WORDS[name]}", style=VERDICT_STYLES[name])
        verdicts.append(f" {share(count, summary.num_rollouts)}", style="dim")
    rows: list[tuple[str, Text | str]] = [("outcome", verdicts)]
    attempts = f"  {signs.dot}  ".join(
        f"{count} in {needed}" for needed, count in summary.attempts.items()
    )
    rows.append(("attempts", attempts))
    if summary.num_recovered:
        rows.append(("", f"{summary.num_recovered} succeeded after a retry"))
    if summary.num_model_call_retries or summary.num_reruns:
        rows.append(("repeated", f"  {signs.dot}  ".join(_repeated(summary))))
    if who := retries(summary):
        rows.append(("retries", who))
    without = [
        (summary.num_ungraded, "ungraded: a grader failed"),
        (summary.num_dropped, "dropped with their group"),
        (summary.num_pending, "not graded"),
    ]
    reasons = [f"{count} {reason}" for count, reason in without if count]
    if reasons:
        rows.append(("no reward", f"  {signs.dot}  ".join(reasons)))
    return Section("Rollouts", facts(rows))


def _repeated(summary: Summary) -> Iterator[str]:
    if summary.num_model_call_retries:
        yield plural(summary.num_model_call_retries, "model call")
    if summary.num_reruns:
        yield plural(summary.num_reruns, "attempt")


def groups(summary: Summary, signs: Symbols) -> Section | None:
    """Build zero variance and pass@k; nothing to say when each sample has one rollout."""
    group = summary.groups
    if group is None or summary.num_generations < 2:
        return None
    return Section("Groups", facts(_group_rows(group, summary, signs)))


def _group_rows(
    group: GroupSummary, summary: Summary, signs: Symbols
) -> Iterator[tuple[str, Text | str]]:
    counts = [
        Text(f"{count} {VERDICT_WORDS[name]}", style=VERDICT_STYLES[name])
        for name, count in group.verdicts.items()
    ]
    size = f"{group.count} of {summary.num_generations} rollouts each: "
    yield "groups", Text(size) + Text(f"  {signs.dot}  ", style="dim").join(counts)
    zero = group.zero_variance
    if zero is not None:
        style = "yellow" if zero.share > 0.5 else "default"
        text = Text(f"{zero.num_groups} of {zero.num_eligible}", style=style)
        text.append(f" ({share(zero.num_groups, zero.num_eligible)})", style="dim")
        if zero.num_groups:
            listed = ", ".join(
                f"{value.num_groups} all {value.reward:g}" for value in zero.values[:3]
            )
            text.append(f": no signal ({listed})", style="dim")
        yield "equal rewards", text
    if group.pass_at_k:
        text = Text()
        for item in group.pass_at_k:
            text.append(f"k={item.k} ", style="dim").append(f"{item.value:.3f}   ")
        yield "pass@k", text
        note = f"success: weighted reward {signs.at_least} {summary.success_threshold:g}"
        note += f"; {plural(group.pass_at_k[0].num_groups, 'whole group')}"
        if group.num_incomplete:
            note += f"; {group.num_incomplete} with ungraded members left out"
        yield "", Text(note, style="dim")


def graders(summary: Summary, signs: Symbols) -> Section | None:
    """Build the graders' failures and metrics."""
    if not summary.graders:
        return None
    lines = [(printable(grader.name), _grader_line(grader, signs)) for grader in summary.graders]
    parts: list[RenderableType] = [facts(lines)]
    metrics = [
        (
            f"{printable(grader.name)}: {_in_a_row(key)}",
            str(metric.count),
            number(metric.mean),
            number(metric.min),
            number(metric.max),
        )
        for grader in summary.graders
        for key, metric in grader.metrics.items()
    ]
    if metrics:
        parts += [Text(), number_table(("metric", "n", "mean", "min", "max"), metrics)]
    return Section("Graders", Group(*parts))


def _in_a_row(name: str) -> str:
    """Return a name that a plugin gave as one row of a table can show it."""
    return printable(name.replace("\n", "\\n")) if name.strip() else repr(name)


def _grader_line(grader: GraderSummary, signs: Symbols) -> Text:
    line = Text()
    for name, count in grader.verdicts.items():
        line.append(f"  {signs.dot}  " if line else "", style="dim")
        line.append(f"{count} {VERDICT_WORDS[name]}", style=VERDICT_STYLES[name])
    if any(attempts != "1" for attempts in grader.attempts):
        counts = (f"{count} in {needed}" for needed, count in grader.attempts.items())
        line.append(f"  {signs.dot}  attempts: {', '.join(counts)}", style="yellow")
    return line


def latency(summary: Summary, signs: Symbols) -> Section | None:
    """Build the table of durations."""
    named: list[tuple[str, LatencySummary | None]] = [
        ("rollout", summary.rollout_latency),
        ("model call", summary.model_call_latency),
        *((f"tool {tool.name}", tool.latency) for tool in summary.tools),
        *((f"grader {grader.name}", grader.latency) for grader in summary.graders),
    ]
    rows = [
        (
            printable(name),
            str(times.count),
            duration(times.p50_s),
            duration(times.p90_s),
            duration(times.p99_s),
            duration(times.max_s),
        )
        for name, times in named
        if times is not None
    ]
    if not rows:
        return None
    headers = ("", "n", "p50", "p90", "p99", "max")
    table = number_table(headers, rows, without=("p90", "p99") if signs.is_narrow else ())
    note = Text(" waiting included: for a slot of the endpoint, a thread, a grader", style="dim")
    return Section("Latency", Group(table, note))


def turns_and_tokens(summary: Summary, signs: Symbols) -> Section | None:
    """Build turns, tokens, finish reasons and model calls."""
    named = [
        ("turns", summary.turns),
        ("prompt tokens", summary.prompt_tokens),
        ("completion tokens", summary.completion_tokens),
        ("longest context", summary.longest_context),
    ]
    rows = [_count_row(name, counts, signs) for name, counts in named if counts is not None]
    if not rows:
        return None
    if summary.longest_context is not None:
        rows[-1][-2] = ""  # a sum of maxima says nothing
    headers = ["per rollout", "mean", "p50", "p95", "max", "total"]
    has_unknown = any(counts.num_unknown for _, counts in named if counts is not None)
    if has_unknown:
        headers.append("unknown")
    else:
        rows = [row[:-1] for row in rows]
    reasons = Text()
    for reason, count in summary.finish_reasons.items():
        reasons.append(f"  {signs.dot}  " if reasons else "", style="dim")
        style = "yellow" if reason == "length" else "default"
        reasons.append(f"{count} {printable(reason)}", style=style)
    lines: list[tuple[str, Text | str]] = [("ended with", reasons)]
    calls = plural(summary.num_model_calls, "model call")
    if summary.num_shared_turns:
        calls += f"; {plural(summary.num_shared_turns, 'turn')} shared with another trajectory"
    if summary.num_model_calls:
        lines.append(("calls", calls))
    if summary.tools:
        used = (
            f"{tool.num_calls} {printable(tool.name)}" for tool in summary.tools if tool.num_calls
        )
        lines.append(("tool calls", f"  {signs.dot}  ".join(used)))
    table = number_table(headers, rows, without=("p50", "p95") if signs.is_narrow else ())
    return Section("Turns and tokens", Group(table, facts(lines)))


def _count_row(name: str, counts: CountSummary, signs: Symbols) -> list[str | Text]:
    def shown(value: float | None, digits: int) -> str:
        return signs.dash if value is None else f"{value:,.{digits}f}"

    return [
        name,
        shown(counts.mean, 1),
        shown(counts.p50, 0),
        shown(counts.p95, 0),
        shown(counts.max, 0),
        shown(counts.total, 0) if counts.num_known else signs.dash,
        Text(str(counts.num_unknown), style="yellow" if counts.num_unknown else "dim"),
    ]


def failed_attempts(summary: Summary, signs: Symbols) -> Section | None:
    """Build the most frequent errors: how often, what, where, for example which."""
    if not summary.errors:
        return None
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold", ratio=1)
    for error in summary.errors[:_MAX_ROWS]:
        style = "red" if error.num_final else "yellow"
        message = Text(f"{printable(error.message)}", style=style)
        place = f"{error.source}"
        if error.where:
            place += f"  {error.where}"
        if not error.num_final:
            place += "  made good by another attempt"
        elif error.num_final < error.count:
            noun = "rollout" if error.source == "rollout" else "grading"
            place += f"  {plural(error.num_final, noun)} ended on it"
        place += f"  e.g. {', '.join(error.examples)}"
        parts = [message, Text(printable(place), style="dim")]
        if error.hint:
            parts.insert(1, Text(f"{signs.arrow} {printable(error.hint)}"))
        body = Text("\n").join(parts)
        table.add_row(Text(f" {error.count} {signs.times}", style=style), body)
    num_more = len(summary.errors) - _MAX_ROWS
    if num_more > 0:
        table.add_row("", Text(f"and {plural(num_more, 'other error')}", style="dim"))
    return Section("Failed attempts", table)


def warnings(summary: Summary, signs: Symbols) -> Section | None:
    """Build the warnings, each with what it means and what to do."""
    if not summary.warnings:
        return None
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold", ratio=1)
    for warning in summary.warnings:
        text = describe_warning(warning.code)
        body = Text(printable(text.meaning), style="yellow")
        if warning.detail:
            body.append(f": {printable(warning.detail)}", style="default")
        body.append(f"\n{signs.arrow} {text.advice}", style="default")
        note = warning.code
        if warning.examples:
            note += f"  e.g. {', '.join(warning.examples)}"
        body.append(f"\n{printable(note)}", style="dim")
        table.add_row(Text(f" {warning.count} {signs.times}", style="yellow"), body)
    return Section("Warnings", table)
