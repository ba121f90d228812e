"""``arkdev create mcj``: the documented way to submit a job; debug jobs run here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from arkdev.cli.later import LaterGroup
from arkdev.cli.options import JsonOption
from arkdev.errors import ComesLaterError

app = typer.Typer(name="create", cls=LaterGroup, help="Submit a job.", no_args_is_help=True)

_EXAMPLES = """\b
Examples:
  arkdev create mcj -f job.yaml --debug      what `arkdev debug -f job.yaml` does

\b
Exit codes: those of `arkdev debug`."""


@app.callback()
def _group() -> None:
    """Submit a job."""


@app.command("mcj", epilog=_EXAMPLES)
def mcj(
    file: Annotated[
        Path, typer.Option("--file", "-f", metavar="FILE", help="The job: job.yaml or job.py.")
    ],
    is_debug: Annotated[
        bool, typer.Option("--debug", help="Submit a debug job, which runs on this machine.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Submit a model customization job; only debug jobs so far."""
    if not is_debug:
        raise ComesLaterError(
            "`arkdev create mcj` is not built yet: it comes with remote job management",
            hint="--debug rehearses the job on this machine",
        )
    from arkdev.cli.debug import run_and_show
    from arkdev.flows.debug_request import DebugRequest

    outcome = run_and_show(DebugRequest(start=Path.cwd(), job=file), as_json=as_json)
    raise typer.Exit(int(outcome.exit_code))
