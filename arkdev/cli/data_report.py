"""How `arkdev data check` shows what it found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.console import Console
from rich.text import Text

from arkdev.cli.terminal import (
    Section,
    Symbols,
    facts,
    number_table,
    plural,
    printable,
    share,
    symbols,
    titled,
)
from arkdev.flows.data_report import (
    DataCheck,
    DuplicateReport,
    JobNumbers,
    KeyReport,
    LineReports,
    SetReport,
)
from arkdev.job.dataset_statistics import SetStatistics
from arkdev.job.length_distribution import LengthSummary

_MAX_NAMES = 12


def print_data_check(found: DataCheck, target: Console) -> None:
    """Print the whole report: each set, then what concerns them all."""
    signs = symbols(target)
    for checked in found.sets:
        _print_set(checked, target, signs=signs)
    _print_duplicates(found.duplicates, found, target, signs=signs)
    if found.job is not None:
        target.print(titled(Section("the job", facts(_job_rows(found.job))), signs=signs))
    for note in found.notes:
        target.print(Text(f"note: {printable(note)}", style="cyan"), soft_wrap=True)
    if all(checked.is_accepted for checked in found.sets):
        accepted = ": as many as the job accepts" if any(s.errors.count for s in found.sets) else ""
        target.print()
        target.print(Text(f"good: {_totals(found)}{accepted}", style="green"), soft_wrap=True)


def refusal(found: DataCheck) -> str:
    """Say in one line why the data is refused."""
    names = [checked.name for checked in found.sets if not checked.is_accepted]
    return f"{' and '.join(names)} refused: {_totals(found)}"


def _totals(found: DataCheck) -> str:
    num_samples = sum(checked.statistics.num_samples for checked in found.sets)
    num_errors = sum(checked.errors.count for checked in found.sets)
    num_warnings = sum(s.warnings.count + len(s.missing_keys) for s in found.sets)
    counts = (num_samples, "sample"), (num_errors, "error"), (num_warnings, "warning")
    return ", ".join(plural(count, noun) for count, noun in counts)


def _print_set(checked: SetReport, target: Console, *, signs: Symbols) -> None:
    rows = _set_rows(checked, signs=signs)
    target.print(titled(Section(checked.name, facts(rows)), signs=signs))
    lengths = _length_rows(checked.statistics)
    if lengths:
        headers = ("each prompt", "mean", "min", "p50", "p90", "p99", "max")
        target.print()
        target.print(number_table(headers, lengths))
    _print_lines("error", checked.errors, target, style="bold red")
    _print_lines("warning", checked.warnings, target, style="yellow")
    for missing in checked.missing_keys:
        _print_missing(missing, checked, target)


def _set_rows(checked: SetReport, *, signs: Symbols) -> Iterator[tuple[str, str]]:
    statistics = checked.statistics
    files = ", ".join(f"{name} ({count:,})" for name, count in checked.files.items())
    yield "files", printable(files)
    yield "samples", f"{statistics.num_samples:,} in {_size(checked.num_bytes)}"
    if checked.errors.count:
        accepted = f"; {checked.tolerance} accepts " if checked.tolerance else ""
        accepted += ("them" if checked.is_accepted else "fewer") if checked.tolerance else ""
        yield "no samples", f"{plural(checked.errors.count, 'error')}{accepted}"
    yield "messages by role", _counts(statistics.roles)
    yield "last message", _counts(statistics.last_roles)
    if statistics.parts:
        media = f"; {plural(statistics.num_multimodal, 'sample')} with media"
        yield "content parts", _counts(statistics.parts) + media
    if statistics.num_with_tools:
        yield "with tools", f"{statistics.num_with_tools:,}"
    if statistics.sampling:
        yield "own sampling", _counts(statistics.sampling)
    if statistics.extra_keys:
        yield "keys of extra", printable(_counts(statistics.extra_keys))


def _size(num_bytes: int) -> str:
    if num_bytes < 1e6:
        return f"{num_bytes / 1e3:.1f} kB"
    return f"{num_bytes / 1e6:,.1f} MB" if num_bytes < 1e9 else f"{num_bytes / 1e9:,.2f} GB"


def _counts(counts: Mapping[str, int]) -> str:
    shown = [f"{name} {count:,}" for name, count in list(counts.items())[:_MAX_NAMES]]
    more = [f"{len(counts) - _MAX_NAMES} more"] if len(counts) > _MAX_NAMES else []
    return ", ".join([*shown, *more])


def _length_rows(statistics: SetStatistics) -> list[tuple[str, ...]]:
    named = {
        "messages": statistics.messages,
        "characters": statistics.characters,
        "tokens (estimate)": statistics.tokens,
    }
    return [(name, *_numbers(summary)) for name, summary in named.items() if summary]


def _numbers(summary: LengthSummary) -> tuple[str, ...]:
    whole = (summary.min, summary.p50, summary.p90, summary.p99, summary.max)
    return (f"{summary.mean:,.1f}", *(f"{value:,}" for value in whole))


def _print_lines(what: str, lines: LineReports, target: Console, *, style: str) -> None:
    if not lines.count:
        return
    target.print()
    for line in lines.shown:
        text = Text(f"{what}: ", style=style)
        text.append(printable(f"{line.where}: {line.message}"), style="none")
        if line.fix:
            text.append(printable(f"; {line.fix}"), style="cyan")
        target.print(text, soft_wrap=True)
    hidden = lines.count - len(lines.shown)
    if hidden:
        target.print(f"{plural(hidden, f'more {what}')} (--show N shows more); by kind:")
        for kind, count in list(lines.kinds.items())[:_MAX_NAMES]:
            target.print(Text(printable(f"  {count:>9,}  {kind}")), soft_wrap=True)


def _print_missing(missing: KeyReport, checked: SetReport, target: Console) -> None:
    num_samples = checked.statistics.num_samples
    part = share(missing.num_samples, num_samples)
    text = Text("warning: ", style="yellow")
    text.append(
        printable(
            f"{plural(missing.num_samples, 'sample')} ({part}) without extra.{missing.key}, which "
            f"the grader {missing.grader} reads at {missing.where}"
        ),
        style="none",
    )
    if missing.is_required:
        text.append(" and fails without", style="none")
    text.append(printable(f"; see {', '.join(missing.samples)}"), style="cyan")
    target.print(text, soft_wrap=True)


def _print_duplicates(
    duplicates: DuplicateReport, found: DataCheck, target: Console, *, signs: Symbols
) -> None:
    num_samples = sum(checked.statistics.num_samples for checked in found.sets)
    rows = [("repeated", f"{duplicates.num_repeated:,} of {num_samples:,} samples")]
    if duplicates.num_conflicting:
        count = plural(duplicates.num_conflicting, "prompt")
        rows.append(("one question,", f"{count} with different extra"))
    if duplicates.num_leaked:
        count = plural(duplicates.num_leaked, "validation sample")
        rows.append(("leaked", f"{count} whose prompt is in the training set"))
    for late, early in duplicates.leaked:
        rows.append(("", printable(f"{late} is {early}")))
    for same in duplicates.shown:
        different = ", different extra" if same.differs_in_extra else ""
        hidden = f" {signs.ellipsis}" if same.count > len(same.places) else ""
        places = f"{', '.join(same.places)}{hidden}"
        rows.append((f"{same.count} {signs.times}", printable(f"{places}{different}")))
    target.print(titled(Section("prompts that are there again", facts(rows)), signs=signs))


def _job_rows(numbers: JobNumbers) -> Iterator[tuple[str, str]]:
    yield "training", f"{numbers.num_training:,} samples an epoch"
    if numbers.num_validation is not None:
        yield "validation", plural(numbers.num_validation, "sample")
    if numbers.steps_per_epoch is not None:
        steps = (
            f"{plural(numbers.steps_per_epoch, 'step')} an epoch of {numbers.batch_size} samples"
        )
        is_whole = numbers.last_batch == numbers.batch_size
        yield "batches", steps if is_whole else f"{steps}, the last of {numbers.last_batch}"
