"""What a person sees of a debug run's steps: the table, the metrics, the outcome."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.text import Text

from arkdev.cli.terminal import (
    Section,
    Symbols,
    duration,
    facts,
    number,
    number_table,
    plural,
    printable,
    titled,
)
from arkdev.harness.steps import StepRecord
from arkdev.runs.records import TEST

HEADERS = ("step", "groups", "dropped", "no signal", "reward", "min", "max", "time")
WIDTHS = (10, 8, 8, 10, 8, 8, 8, 9)
_MAX_STEPS = 40
_MAX_SAID = 8
_NOTHING = 1e-12
"""Below it a metric is what rounding left."""


def cells(step: StepRecord, signs: Symbols) -> tuple[str, ...]:
    """Return the row of a step; of a round of validation its name has ``test``."""
    name = f"{step.step} test" if step.phase == TEST else str(step.step)
    rewards = [
        step.metrics.get(f"{step.phase}/reward->final_reward.{of}") for of in ("mean", "min", "max")
    ]
    no_signal = step.num_without_signal
    return (
        name,
        str(step.num_groups),
        str(step.num_groups - step.num_kept),
        signs.dash if no_signal is None else str(no_signal),
        *(number(reward, unknown=signs.dash) for reward in rewards),
        duration(step.duration_s),
    )


def aligned(row: Sequence[str]) -> str:
    """Return a row as a line of the table that grows while the run goes on."""
    first, *rest = (cell.rjust(width) for cell, width in zip(row, WIDTHS, strict=True))
    return f"{first.strip():<{WIDTHS[0]}}{' '.join(rest)}"


def steps_section(steps: Sequence[StepRecord], signs: Symbols) -> Section:
    """Build the table of steps; of many the first and the last, and what is to be said of them."""
    shown = list(steps)
    note = ""
    if len(shown) > _MAX_STEPS:
        half = _MAX_STEPS // 2
        note = f" {len(shown) - 2 * half} rows are left out; metrics.jsonl has them"
        shown = [*shown[:half], *shown[-half:]]
    without = ("min", "max", "dropped") if signs.is_narrow else ()
    parts: list[RenderableType] = [
        number_table(HEADERS, [cells(step, signs) for step in shown], without=without)
    ]
    if note:
        parts.append(Text(note, style="dim"))
    said = [(step, text) for step in steps if (text := step.failure or step.message)]
    if said:
        parts.append(Text())
    for step, text in said[:_MAX_SAID]:
        parts.append(Text(f" {printable(text)}", style="red" if step.failure else "yellow"))
    if len(said) > _MAX_SAID:
        parts.append(Text(f" and {len(said) - _MAX_SAID} more steps", style="dim"))
    return Section("Steps", Group(*parts))


def metrics_section(steps: Sequence[StepRecord]) -> Section | None:
    """Build the metrics of the last step and of the last round of validation."""
    last = {step.phase: step for step in steps}
    rows = [row for step in last.values() for row in _metric_rows(step)]
    if not rows:
        return None
    numbers = " and ".join(map(name_of, last.values()))
    return Section(f"Metrics of {numbers}", number_table(("metric", ".mean", ".min", ".max"), rows))


def _metric_rows(step: StepRecord) -> Iterator[tuple[str, ...]]:
    """Put what belongs together into one row; a metric of one value stands in the first column."""
    for name, value in step.metrics.items():
        stem, dot, of = name.rpartition(".")
        if dot and of in ("min", "max") and f"{stem}.mean" in step.metrics:
            continue
        mark = " (estimated)" if name in step.estimated else ""
        if of != "mean":
            yield printable(f"{name}{mark}"), metric_value(value), "", ""
            continue
        spread = [step.metrics.get(f"{stem}.{each}") for each in ("min", "max")]
        shown = ["" if one is None else metric_value(one) for one in spread]
        yield (printable(stem), metric_value(value), *shown)


def metric_value(value: float) -> str:
    """Format a metric: counts without decimals."""
    if abs(value) < _NOTHING:
        return number(0.0)
    return f"{value:,.0f}" if value >= 10 and value.is_integer() else number(value)


def name_of(record: StepRecord) -> str:
    """``step 3``, ``validation after step 3``."""
    return f"{'validation after ' if record.phase == TEST else ''}step {record.step}"


def what_is_learned(steps: Sequence[StepRecord]) -> tuple[str, bool]:
    """Say how much of the steps there is to learn from, and whether it is anything; "": unknown."""
    training = [step for step in steps if step.phase != TEST and not step.failure]
    if not training:
        return "", True
    told = [(step.num_kept, step.num_without_signal) for step in training]
    if not any(kept for kept, _ in told):
        return f"nothing: no group is left {in_steps(len(told), 'any')}", False
    known = [kept - without for kept, without in told if without is not None]
    if len(known) < len(told):  # a critic or a teacher teaches
        return "", True
    if not any(known):
        return f"nothing: every advantage is 0 {in_steps(len(told), 'each')}", False
    num_groups = sum(step.num_groups for step in training)
    return (
        f"in {sum(map(bool, known))} of {plural(len(told), 'step')}, from {sum(known):,} of "
        f"{plural(num_groups, 'group')}",
        True,
    )


def in_steps(number: int, which: str) -> str:
    """``in any of 3 steps``; ``in the step``."""
    return f"in {which} of {number:,} steps" if number > 1 else "in the step"


def outcome_section(
    *,
    job_id: str,
    failure: str | None,
    warnings: Sequence[str],
    steps: Sequence[StepRecord],
    failed_at: Sequence[str] = (),
    validation: Text | None = None,
) -> Section:
    """Build what came of the job; `failed_at` goes below why it would fail."""
    rows: list[tuple[str, Text | str]] = [("job", job_id)]
    if failure:
        rows.append(("would fail", Text(printable(failure), style="bold red")))
        rows += [("", printable(text)) for text in failed_at if text and text not in failure]
    else:
        learned, is_any = what_is_learned(steps)
        rows.append(("would", Text("run to its end", style="green" if is_any else "")))
        if learned:
            rows.append(("learns", Text(learned, style="" if is_any else "bold red")))
    if validation is not None:
        rows.append(("validation", validation))
    rows += [("warning", Text(printable(text), style="yellow")) for text in warnings]
    return Section("Job", facts(rows))


def print_sections(console: Console, sections: Sequence[Section | None], signs: Symbols) -> None:
    """Print those that are there."""
    for section in sections:
        if section is not None:
            console.print(titled(section, signs=signs))
