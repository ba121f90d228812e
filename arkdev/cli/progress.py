"""The progress bar of long commands, alike in all of them."""

from __future__ import annotations

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)


def counting_bar(target: Console, *more: ProgressColumn) -> Progress:
    """Make a bar of what is done of how many, with the time so far, and `more` columns."""
    return bar(target, MofNCompleteColumn(), TimeElapsedColumn(), *more)


def bar(target: Console, *columns: ProgressColumn) -> Progress:
    """Make a bar on `target` that vanishes at its end and leaves what plugins print alone."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        *columns,
        console=target,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
