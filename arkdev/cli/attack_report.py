"""The report of ``arkdev test grader --attack``: attacks and graders, and one trajectory whole."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, Group
from rich.text import Text

from arkdev.cli.conversation import ConversationPrinter
from arkdev.cli.report import MAX_WIDTH
from arkdev.cli.terminal import (
    Section,
    Symbols,
    facts,
    number,
    number_table,
    plural,
    printable,
    symbols,
    titled,
)
from arkdev.errors import UsageError
from arkdev.flows.attack_graders import AttackOutcome
from arkdev.harness.attack_verdicts import (
    RIGHT,
    WRONG,
    AttackedGraderReport,
    AttackRow,
    AttackVerdict,
)
from arkdev.harness.grader_attacks import Attack, text_of
from arkdev.job.spelling import unknown_name

_STYLES = {
    AttackVerdict.CAUGHT: "green",
    AttackVerdict.SELDOM: "yellow",
    AttackVerdict.HACKABLE: "bold red",
    AttackVerdict.NOT_AT_TOP: "bold red",
    AttackVerdict.FAILED: "red",
    AttackVerdict.SKIPPED: "dim",
}
_MAX_TEXT = 160


def check_row_name(name: str) -> None:
    """Raise `UsageError` when no row of the table is called `name`."""
    known = (RIGHT, WRONG, *map(str, Attack))
    if name not in known:
        raise UsageError(f"--show: {unknown_name('attack', name, known=known)}")


def render_attack(outcome: AttackOutcome, console: Console) -> None:
    """Print the tables."""
    signs = symbols(console)
    width = min(console.width, MAX_WIDTH)
    for grader in outcome.graders:
        console.print(titled(_table(grader, signs), signs=signs), width=width)
        through = [row for row in grader.rows if row.verdict not in _QUIET]
        if through:
            console.print()
            console.print(facts(_examples(through)), width=width)
    console.print()
    if outcome.num_without_reference:
        console.print(
            Text(
                f" {outcome.num_without_reference} of {plural(outcome.num_samples, 'sample')} have "
                "no right answer in extra (--reference-key)",
                style="yellow",
            ),
            width=width,
        )
    for grader in outcome.graders:
        console.print(_headline(grader), width=width)
    if outcome.num_samples < _FEW_SAMPLES:
        tried = f" only {plural(outcome.num_samples, 'sample')} tried, which tells little"
        console.print(Text(f"{tried}: name more with --data or --run", style="yellow"), width=width)


_FEW_SAMPLES = 4
"""A hole may need a certain sample; another sample's answer needs a second one."""
_QUIET = (AttackVerdict.CAUGHT, AttackVerdict.SKIPPED)


def _headline(grader: AttackedGraderReport) -> Text:
    def named(verdict: AttackVerdict) -> str:
        return ", ".join(row.name for row in grader.rows if row.verdict is verdict)

    name = printable(grader.name)
    if hacked := named(AttackVerdict.HACKABLE):
        return Text(f"{name} is hackable: {hacked}", style="bold red")
    if named(AttackVerdict.NOT_AT_TOP):
        return Text(f"{name}: no right answer was told from a wrong one", style="bold red")
    if failed := named(AttackVerdict.FAILED):
        return Text(f"{name} failed on: {failed}", style="bold red")
    if seldom := named(AttackVerdict.SELDOM):
        return Text(f"{name}: caught, but for one sample of {seldom}", style="bold yellow")
    return Text(f"{name}: every attack was caught", style="bold green")


def _table(grader: AttackedGraderReport, signs: Symbols) -> Section:
    rows = [
        (
            row.name,
            number(row.highest),
            number(row.example.floor if row.example else None),
            f"{row.num_through} of {row.num_samples}" if row.num_samples else signs.dash,
            Text(row.verdict, style=_STYLES[row.verdict]),
        )
        for row in grader.rows
    ]
    headers = ("trajectory", "reward", "floor", "samples above", "verdict")
    table = number_table(headers, rows, without=("floor",) if signs.is_narrow else ())
    note = Text(f" reward: the highest ({RIGHT}: the lowest; above: not at the top)", style="dim")
    return Section(printable(f"{grader.name} under attack"), Group(table, note))


def _examples(rows: list[AttackRow]) -> Iterator[tuple[str, Text]]:
    for row in rows:
        example = row.example
        if example is None:
            continue
        text = text_of(example.messages[-1]) if example.messages else ""
        shown = printable(repr(text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}..."))
        line = Text(f"sample {example.sample_index}, {example.variant}: {shown}")
        if example.error:
            line.append(f"\n{printable(example.error)}", style="red")
        if row.verdict is AttackVerdict.NOT_AT_TOP:
            line.append(
                "\na wrong answer or an attack scores as much. If the grader wants it in another "
                "form, or after a tool call, record a run that has it: `arkdev test plugin`",
                style="yellow",
            )
        yield row.name, line


def render_example(outcome: AttackOutcome, console: Console, *, name: str) -> None:
    """Print the trajectory of the row `name`, of each grader."""
    for grader in outcome.graders:
        row = next(row for row in grader.rows if row.name == name)
        example = row.example
        title = f"{grader.name}, {name}"
        if example is None:
            console.print(Text(f"\n{printable(title)}: no sample has what it needs", style="dim"))
            continue
        printer = ConversationPrinter(console)
        printer.begin_attempt(
            printable(f"{title}: sample {example.sample_index}, {example.variant}")
        )
        for message in example.messages:
            printer.message(message)
        reward = f"reward {number(example.reward)}, floor {number(example.floor)}"
        console.print(Text(f"\n{reward}, finish_reason {example.finish_reason}", style="bold"))
