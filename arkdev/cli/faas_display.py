"""What a person sees of deployments that are up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from arkdev.cli.output import console
from arkdev.cli.terminal import printable
from arkdev.job.paths import filesystem_path, shown_path

if TYPE_CHECKING:
    from arkdev.faas_emulator.kept_deployments import KeptDeployment
    from arkdev.flows.faas_deployments import FunctionStatus

_HEADINGS = ("function", "instances", "calls", "running", "queued", "URL")
_STYLES = {"WARNING": "yellow", "ERROR": "red", "CRITICAL": "bold red"}


def print_status(found: Sequence[tuple[KeptDeployment, Sequence[FunctionStatus]]]) -> None:
    """Print a paragraph for each deployment."""
    out = console()
    if not found:
        out.print("no deployment is up; `arkdev faas up --detach` makes one", soft_wrap=True)
    for kept, functions in found:
        where = shown_path(filesystem_path(kept.workspace))
        since = kept.started_at[:19].replace("T", " ")
        kind = {"container": "containers", "process": "child processes"}[kept.engine]
        to = f", calls to Ark go to {kept.endpoint}" if kept.endpoint else ""
        line = f"{kept.id}  {where}  since {since} UTC, {kind}, network {kept.network}{to}"
        out.print(Text(printable(line), style="bold"), soft_wrap=True)
        rows = [_HEADINGS, *map(_cells, functions)]
        widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
        for row, style in zip(rows, ("dim", *["default"] * len(functions)), strict=True):
            cells = [cell + " " * (n - cell_len(cell)) for cell, n in zip(row, widths, strict=True)]
            out.print(Text(f"  {'  '.join(cells)}".rstrip(), style=style), soft_wrap=True)
        if any(function.num_calls is None for function in functions):
            text = "of another machine, or of a container on this one: it is seen there"
            if kept.is_here:
                text = f"it does not answer; `arkdev faas down {kept.id}` ends it"
            out.print(Text(text, style="yellow"), soft_wrap=True)


def _cells(function: FunctionStatus) -> tuple[str, ...]:
    if function.num_calls is None:
        return (printable(function.name), *["?"] * 4, function.url)
    return (
        printable(function.name),
        f"{function.num_instances} of {function.max_replicas}",
        str(function.num_calls),
        str(function.num_running),
        str(function.num_queued),
        function.url,
    )


def print_log_line(out: Console, line: Mapping[str, Any]) -> None:
    """Print ``10:15:31.204 INFO  weather 9b1fbc0d  plugins.weather: asked``."""
    text = Text(f"{line['at'][11:23]} ", style="dim", overflow="fold")
    text.append(f"{printable(line['level'])[:8]:<8}", style=_STYLES.get(line["level"], "cyan"))
    text.append(f" {printable(line['function'])} {line['request_id'] or '-'} ", style="bold")
    logger = f"{line['logger']}: " if line["logger"] else ""
    text.append(printable(logger + line["text"]))
    out.print(text, soft_wrap=True)
