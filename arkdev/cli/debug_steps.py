"""``arkdev show RUN --step N``: each trajectory of a step, and what it would teach."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from arkdev.cli.debug_loss import percent
from arkdev.cli.debug_report import metrics_section, name_of
from arkdev.cli.html_report import steps_of
from arkdev.cli.output import console, print_json
from arkdev.cli.terminal import (
    Symbols,
    duration,
    number,
    number_table,
    plural,
    printable,
    symbols,
    titled,
)
from arkdev.errors import RunError

if TYPE_CHECKING:
    from arkdev.flows.debug_step import StepView
    from arkdev.harness.advantages import Advantage
    from arkdev.runs.reader import RunReader


def show_step(reader: RunReader, step: int, *, as_json: bool) -> None:
    """Print a step, and the round of validation after it. Raises `RunError` when there is none."""
    from arkdev.flows.debug_step import step_view

    found = [record for record in steps_of(reader) if record.step == step]
    if not found:
        there = sorted({record.step for record in steps_of(reader)})
        known = f"it has {there[0]} to {there[-1]}" if there else "it has no finished step"
        raise RunError(f"run {reader.manifest.run_id} has no step {step}", hint=known)
    views = [step_view(reader, record) for record in found]
    if as_json:
        print_json(_document(views))
        return
    out = console()
    for view in views:
        _print(out, view, signs=symbols(out))


def _document(views: Sequence[StepView]) -> dict[str, Any]:
    return {
        "steps": [view.record.to_json() for view in views],
        "groups": [
            {
                "phase": group.phase,
                "sample_index": group.sample_index,
                "verdict": group.verdict,
                "error": group.error,
                "trajectory_ids": group.trajectory_ids,
                "rewards": group.rewards,
                "advantages": [view.advantages.get(name) for name in group.trajectory_ids],
                "loss_shares": [
                    share.loss if (share := view.shares.get(name)) else None
                    for name in group.trajectory_ids
                ],
            }
            for view in views
            for group in view.groups
        ],
        "distilled": [dict(row) for view in views for row in view.distilled],
        "notes": [note for view in views for note in view.notes],
    }


def _print(out: Console, view: StepView, *, signs: Symbols) -> None:
    record = view.record
    kept = f"{record.num_kept} of {plural(record.num_groups, 'group')} kept"
    title = f"{name_of(record)}: {kept}, {duration(record.duration_s)}"
    out.print(Text(title, style="bold"))
    if text := record.failure or record.message:
        out.print(Text(printable(text), style="red" if record.failure else "yellow"))
    out.print(number_table(tuple(_headers(view)), list(_rows(view, signs))))
    for note in view.notes:
        out.print(Text(f"note: {note}", style="dim"), soft_wrap=True)
    for line in _distilled_lines(view):
        out.print(Text(printable(line)), soft_wrap=True)
    section = metrics_section([record])
    if section is not None:
        out.print(titled(section, signs=signs))


def _headers(view: StepView) -> Iterator[str]:
    yield from ("trajectory", "group", "reward")
    if view.advantage_name:
        yield view.advantage_name
    if view.critic_tokens:
        yield "critic's tokens"
    if view.shares:
        yield from ("trained tokens", "of the loss")
        if any(share.signal is not None for share in view.shares.values()):
            yield "of the signal"


def _rows(view: StepView, signs: Symbols) -> Iterator[tuple[str, ...]]:
    has_signal = any(share.signal is not None for share in view.shares.values())
    for group in view.groups:
        for name, reward in zip(group.trajectory_ids, group.rewards, strict=True):
            row = [name, str(group.verdict), number(reward, unknown=signs.dash)]
            if view.advantage_name:
                row.append(_advantage(view.advantages.get(name), signs))
            if view.critic_tokens:
                tokens = view.critic_tokens.get(name)
                row.append(signs.dash if tokens is None else f"{tokens:,}")
            if view.shares:
                share = view.shares.get(name)
                row.append(f"{share.num_kept:,}" if share else signs.dash)
                row.append(percent(share.loss if share else None, signs))
                row += [percent(share.signal if share else None, signs)] * has_signal
            yield tuple(row)


def _advantage(value: Advantage | None, signs: Symbols) -> str:
    if value is None:
        return signs.dash
    if isinstance(value, tuple):
        return f"{len(value)} tokens" if value else signs.dash
    return number(value)


def _distilled_lines(view: StepView) -> Iterator[str]:
    for row in view.distilled:
        name = row["trajectory_id"]
        if row["problem"]:
            yield f"{name}: not compared with its teacher: {row['problem']}"
            continue
        gap, advantages = row["gap"], row["advantages"]
        line = (
            f"{name}: student - teacher {number(gap['mean'])} a token "
            f"({number(gap['min'])} to {number(gap['max'])}), {row['num_tokens']:,} tokens"
        )
        if advantages is None:
            yield f"{line}; the job leaves a coefficient open, so there is no advantage"
            continue
        yield (
            f"{line}; advantage {number(advantages['mean'])} "
            f"({number(advantages['min'])} to {number(advantages['max'])})"
        )
