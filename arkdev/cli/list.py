"""``arkdev list mcj``: the training runs of this machine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arkdev.cli.later import LaterGroup
from arkdev.cli.options import JsonOption
from arkdev.errors import UsageError

if TYPE_CHECKING:
    from arkdev.runs.reader import RunSummary

app = typer.Typer(name="list", cls=LaterGroup, help="List jobs.", no_args_is_help=True)

PHASES = ("running", "finished", "failed", "stopped", "interrupted", "killed", "unreadable")
"""What becomes of a run (docs/runs.md)."""
_RL = "RL"

_EXAMPLES = """\b
Examples:
  arkdev list mcj
  arkdev list mcj -ps 20 -pn 2 -t RL
  arkdev list mcj -p running,killed --json

\b
Exit codes: 0, also when there are none; 2 usage."""


@app.callback()
def _group() -> None:
    """List jobs."""


@app.command("mcj", epilog=_EXAMPLES)
def mcj(
    page_size: Annotated[
        int, typer.Option("--page-size", "-ps", metavar="N", min=1, help="Jobs of a page.")
    ] = 10,
    page_number: Annotated[
        int, typer.Option("--page-number", "-pn", metavar="N", min=1, help="Which page, from 1.")
    ] = 1,
    customization_type: Annotated[
        str | None,
        typer.Option(
            "--customization_type",
            "--customization-type",
            "-t",
            metavar="METHOD,...",
            help="Jobs of these training methods; RL stands for all of reinforcement learning.",
        ),
    ] = None,
    phase: Annotated[
        str | None,
        typer.Option(
            "--phase", "-p", metavar="PHASE,...", help=f"Jobs in these: {', '.join(PHASES)}."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the training runs of this machine, the newest first."""
    import dataclasses

    from arkdev.cli.output import print_json
    from arkdev.cli.runs import runs_here
    from arkdev.flows.training_runs import list_training_runs, row_of
    from arkdev.runs.reader import RunReader

    methods = _methods(customization_type)
    phases = _phases(phase)
    root = runs_here()
    wanted = [
        run for run in list_training_runs(root) if _is_wanted(run, methods=methods, phases=phases)
    ]
    begin = (page_number - 1) * page_size
    page = wanted[begin : begin + page_size]
    rows = [dataclasses.asdict(row_of(RunReader(run.folder))) for run in page]
    if as_json:
        numbers = {"page_number": page_number, "page_size": page_size, "num_jobs": len(wanted)}
        print_json({"jobs": rows, **numbers})
    else:
        _print(rows, num_jobs=len(wanted), where=str(root))
    _say_local()


def _methods(given: str | None) -> frozenset[str] | None:
    from arkdev.job.methods import RL_METHODS, CustomizationType
    from arkdev.job.spelling import unknown_name

    if given is None:
        return None
    known = [*(method.value for method in CustomizationType), _RL]
    wanted: set[str] = set()
    for name in _words(given):
        if name not in known:
            raise UsageError(unknown_name("training method", name, known=known))
        wanted |= {method.value for method in RL_METHODS} if name == _RL else {name}
    return frozenset(wanted)


def _phases(given: str | None) -> frozenset[str] | None:
    from arkdev.job.spelling import unknown_name

    if given is None:
        return None
    words = _words(given)
    for name in words:
        if name not in PHASES:
            raise UsageError(unknown_name("phase", name, known=PHASES))
    return frozenset(words)


def _words(given: str) -> list[str]:
    return [word for word in (part.strip() for part in given.split(",")) if word]


def _is_wanted(
    run: RunSummary, *, methods: frozenset[str] | None, phases: frozenset[str] | None
) -> bool:
    is_of_method = methods is None or run.settings.get("customization_type") in methods
    return is_of_method and (phases is None or run.status in phases)


def _print(rows: Iterable[dict[str, Any]], *, num_jobs: int, where: str) -> None:
    from arkdev.cli.output import console
    from arkdev.cli.terminal import number_table, plural, symbols

    out = console()
    dash = symbols(out).dash
    cells = [
        (
            row["run"],
            row["name"] or dash,
            row["customization_type"] or dash,
            row["foundation_model"] or dash,
            row["phase"],
            f"{row['num_steps_done']}/{row['num_steps'] or dash}",
        )
        for row in rows
    ]
    if not cells:
        out.print(
            f"no such training runs on this page; {plural(num_jobs, 'run')} in all in {where}",
            soft_wrap=True,
        )
        return
    headers = ("run", "name", "method", "model", "phase", "steps")
    table = number_table(headers, cells)
    table.columns[0].no_wrap = True
    for column in table.columns[:5]:
        column.justify = "left"
    out.print(table)
    if num_jobs > len(cells):
        out.print(f"{len(cells)} of {num_jobs}; --page-number shows others", style="dim")


def _say_local() -> None:
    from arkdev.cli.output import console

    console(is_stderr=True).print(
        "these ran on this machine; listing jobs of the platform comes with remote job management",
        style="dim",
        soft_wrap=True,
    )
