"""``arkdev plan``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arkdev.cli.options import JsonOption

if TYPE_CHECKING:
    from rich.console import Console

    from arkdev.flows.plan_job import JobPlan

_EXAMPLES = """\b
Examples:
  arkdev plan                            what a debug run would do
  arkdev plan --backend remote           what a job on the platform would do
  arkdev plan jobs/grpo.yaml --backend local --json

\b
Exit codes: 0 every key counts or is said not to, 2 the backend would pass over a key or
cannot run with a value."""

_STYLES = {"used": "green", "partly": "yellow", "recorded": "dim", "refused": "bold red"}


def _backends() -> list[str]:
    """For shell completion."""
    from arkdev.job.capabilities import BackendName

    return [backend.value for backend in BackendName]


def register(app: typer.Typer) -> None:
    """Add the command `plan` to `app`."""
    app.command("plan", epilog=_EXAMPLES)(plan)


def plan(
    job: Annotated[
        Path | None,
        typer.Argument(help="The job file; without it, the workspace's own.", show_default=False),
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(
            "--backend",
            help="debug (the default), local or remote.",
            show_default=False,
            autocompletion=_backends,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say what a job would run on a backend, and what each of its keys does there.

    With each value: where it comes from. Then what local training and the platform do not do alike.
    Nothing is started; a job.py is run to learn the job.
    """
    import sys
    from contextlib import redirect_stdout

    from arkdev.cli.output import print_error, print_json
    from arkdev.cli.streams import keep_results_apart
    from arkdev.errors import ExitCode, JobError, UsageError
    from arkdev.flows.plan_job import load_job, plan_job
    from arkdev.job.capabilities import BackendName
    from arkdev.job.problems import make_error
    from arkdev.job.spelling import unknown_name

    name = backend or BackendName.DEBUG.value
    if name not in _backends():
        raise UsageError(unknown_name("backend", name, known=_backends()))
    keep_results_apart()  # a job.py may print
    with redirect_stdout(sys.stderr):
        read, workspace = load_job(Path.cwd(), job)
        found = plan_job(read, BackendName(name), workspace=workspace)
    code = ExitCode.USAGE if found.problems else ExitCode.OK
    rows = [_backend_row(name, is_given=backend is not None), *_rows(found)]
    if as_json:
        print_json(_document(found, rows=rows, exit_code=int(code)))
    else:
        _print(found, rows=rows)
    if found.problems:
        print_error(make_error(JobError, found.problems))
    raise typer.Exit(int(code))


def _backend_row(name: str, *, is_given: bool) -> dict[str, str]:
    return {
        "key": "backend",
        "value": name,
        "origin": "flag" if is_given else "default",
        "where": "--backend" if is_given else "arkdev",
        "support": "used",
        "effect": "where the job runs",
        "instead": "",
    }


def _rows(found: JobPlan) -> list[dict[str, str]]:
    rows = []
    for effect in found.effects:
        on = found.on_backend(effect)
        rows.append(
            {
                "key": effect.key,
                "value": effect.value,
                "origin": effect.origin.value,
                "where": effect.where,
                "support": on.support.value,
                "effect": on.text,
                "instead": on.instead,
            }
        )
    return rows


def _document(found: JobPlan, *, rows: list[dict[str, str]], exit_code: int) -> dict[str, Any]:
    from arkdev.job.paths import shown_path

    return {
        "exit_code": exit_code,
        "job": shown_path(found.job.source),
        "backend": found.backend.value,
        "customization_type": found.job.customization_type.value,
        "work": list(found.work),
        "keys": rows,
        "differences": [
            {"what": row.what, "local": row.local, "remote": row.remote}
            for row in found.differences
        ],
        "notes": list(found.notes),
        "problems": [{"where": one.where, "message": one.message} for one in found.problems],
    }


def _print(found: JobPlan, *, rows: list[dict[str, str]]) -> None:
    from rich.text import Text

    from arkdev.cli.output import console
    from arkdev.cli.terminal import printable

    out = console()
    for sentence in found.work:
        out.print(Text(printable(sentence), style="bold"), soft_wrap=True)
    for note in found.notes:
        out.print(Text(f"note: {printable(note)}", style="cyan"), soft_wrap=True)
    out.print(Text(f"\nWhat each key does on {found.backend}", style="bold"))
    for row in rows:
        where = row["where"] if row["origin"] == "file" else f"{row['origin']}, {row['where']}"
        line = Text(printable(f"{row['key']}: {row['value']}"))
        line.append(f"  ({printable(where)})", style="dim")
        out.print(line, soft_wrap=True)
        _print_effect(out, row)
    out.print(Text("\nWhat local and remote do not do alike", style="bold"))
    for difference in found.differences:
        out.print(Text(printable(difference.what)), soft_wrap=True)
        out.print(Text(f"    local   {printable(difference.local)}"), soft_wrap=True)
        out.print(Text(f"    remote  {printable(difference.remote)}"), soft_wrap=True)


def _print_effect(out: Console, row: dict[str, str]) -> None:
    from rich.text import Text

    line = Text(f"    {row['support']:<9}", style=_STYLES[row["support"]])
    line.append(row["effect"] + (f"; {row['instead']}" if row["instead"] else ""))
    out.print(line, soft_wrap=True)
