"""What the loss of a step is made of, as a person sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rich.console import Group
from rich.text import Text

from arkdev.cli.terminal import Section, Symbols, number_table
from arkdev.harness.loss_shares import LengthShare, LossShares
from arkdev.harness.steps import StepRecord
from arkdev.harness.token_counts import CountedBy

_HOW = {
    CountedBy.TOKEN_IDS: "counted exactly, by token ids",
    CountedBy.USAGE: "the endpoint gives no token ids: these are the counts of its usage, and "
    "which tokens of an answer would be masked is not known",
    CountedBy.TOKENIZER: "the endpoint gives no token ids and no usage: a local tokenizer counted "
    "the texts, without the chat template",
}


def percent(share: float | None, signs: Symbols) -> str:
    """Format a share of 1."""
    return signs.dash if share is None else f"{100 * share:.1f} %"


def loss_section(
    steps: Sequence[StepRecord], signs: Symbols, *, mode: str | None
) -> Section | None:
    """Build that of the last step that has one; `mode` is what the job says, None: nothing."""
    of_loss = [(step.step, step.loss) for step in steps if step.loss is not None]
    if not of_loss:
        return None
    number, loss = of_loss[-1]
    said = f"loss_agg_mode {loss.mode}" if mode else f"loss_agg_mode {loss.mode}, arkdev's default"
    title = f"Loss of step {number}"
    if loss.counted_by is None:
        return Section(title, Text(f" {said}; {uncounted(loss)}", style="dim"))
    lines = [Text(f" {said}; {_counts(loss)}"), Text(f" {_HOW[CountedBy(loss.counted_by)]}")]
    for line in lines:
        line.stylize("dim")
    headers = ("answers of", "trajectories", "of the loss", "of the signal")
    rows = [
        (
            _lengths(each.shortest, each.longest),
            str(each.num_trajectories),
            percent(each.loss, signs),
            percent(each.signal, signs),
        )
        for each in _merged(loss.lengths)
    ]
    rows += [
        (
            f"the group of sample {group.sample_index}",
            "",
            percent(group.loss, signs),
            percent(group.signal, signs),
        )
        for group in loss.groups
        if len(loss.groups) > 1
    ]
    return Section(title, Group(*lines, number_table(headers, rows)))


def _merged(lengths: Sequence[LengthShare]) -> list[LengthShare]:
    """Put neighbours of one and the same length into one row."""
    found: list[LengthShare] = []
    for each in lengths:
        before = found[-1] if found else None
        if before is None or len({before.shortest, each.shortest, each.longest}) > 1:
            found.append(each)
            continue
        has_signal = before.signal is not None and each.signal is not None
        found[-1] = replace(
            before,
            num_trajectories=before.num_trajectories + each.num_trajectories,
            loss=before.loss + each.loss,
            signal=(before.signal or 0) + (each.signal or 0) if has_signal else None,
        )
    return found


def uncounted(loss: LossShares) -> str:
    """Say why there are no shares."""
    number = loss.num_uncounted
    return (
        f"{number} {'trajectory' if number == 1 else 'trajectories'} without token counts: the "
        "endpoint gives neither token ids nor usage, so nobody knows what the loss is made of "
        "(--tokenizer counts)"
    )


def _counts(loss: LossShares) -> str:
    text = f"{loss.num_kept:,} trained tokens"
    if loss.num_masked is not None:
        text += f", {loss.num_masked:,} masked (prompts, tools)"
    if loss.tokens is not None:
        mean, shortest, longest = loss.tokens
        text += f"; whole trajectories have {shortest:,} to {longest:,}, {mean:,.0f} on average"
    return text


def _lengths(shortest: int, longest: int) -> str:
    return f"{shortest:,} tokens" if shortest == longest else f"{shortest:,} to {longest:,} tokens"
