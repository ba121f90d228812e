"""Where a replay left its tape: the differences, for people."""

from __future__ import annotations

from pathlib import Path

from rich.text import Text

from arkdev.cli.output import console
from arkdev.cli.streams import results
from arkdev.cli.terminal import plural, printable
from arkdev.flows.replaying import mismatches

_MAX_SHOWN = 3
_STYLES = {"+": "green", "-": "red", "@": "dim"}


def show_mismatches(folder: Path) -> None:
    """Print the first differences of a replay whose run is in `folder`, each with its diff."""
    found = list(mismatches(folder))
    if not found:
        return
    out = console()
    out.file = results()
    for mismatch in found[:_MAX_SHOWN]:
        out.print()
        out.print(Text(f"{mismatch.name} left the tape", style="bold red"))
        if mismatch.where:
            out.print(Text(printable(mismatch.where), style="dim"), soft_wrap=True)
        for line in mismatch.text.splitlines():
            out.print(Text(printable(line), style=_STYLES.get(line[:1], "")), soft_wrap=True)
    num_more = len(found) - _MAX_SHOWN
    if num_more > 0:
        out.print(f"\nand {plural(num_more, 'other difference')}")
