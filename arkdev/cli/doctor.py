"""``arkdev doctor``, and the group of its special checks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from arkdev.cli.later import LaterGroup
from arkdev.cli.options import JsonOption
from arkdev.errors import UsageError

if TYPE_CHECKING:
    from arkdev.flows.doctor import Check

_EXAMPLES = """\b
Examples:
  arkdev doctor
  arkdev doctor --json | jq '.checks[] | select(.status != "ok")'

\b
Exit codes: 0 nothing is wrong (notes and warnings are good), 2 something is."""

_STYLES = {"ok": "green", "note": "cyan", "warning": "yellow", "error": "bold red"}


app = typer.Typer(cls=LaterGroup, invoke_without_command=True, epilog=_EXAMPLES)


@app.callback()
def doctor(
    context: typer.Context,
    as_json: JsonOption = False,
) -> None:
    """Say what is installed, reachable and wrong here, with a fix for each.

    It connects to the endpoints that have a name and sends no request.
    """
    if context.invoked_subcommand is not None:
        if as_json:
            hint = f"arkdev doctor {context.invoked_subcommand} --json"
            raise UsageError("--json stands before the command that it is for", hint=hint)
        return
    import asyncio
    import sys
    from contextlib import redirect_stdout

    from arkdev.cli.output import console, print_json
    from arkdev.cli.streams import keep_results_apart
    from arkdev.flows.doctor import diagnose, exit_code_of

    keep_results_apart()  # a job.py may print
    console(is_stderr=True).print("looking at packages, workspace and endpoints ...", style="dim")
    with redirect_stdout(sys.stderr):
        checks = asyncio.run(diagnose(Path.cwd()))
    code = int(exit_code_of(checks))
    if as_json:
        rows = [
            {"name": c.name, "status": c.status.value, "detail": c.detail, "fix": c.fix}
            for c in checks
        ]
        print_json({"exit_code": code, "checks": rows})
    else:
        _print(checks)
    raise typer.Exit(code)


def _print(checks: list[Check]) -> None:
    from rich.text import Text

    from arkdev.cli.output import console
    from arkdev.cli.terminal import plural, printable

    out = console()
    width = max(len(check.name) for check in checks)
    for check in checks:
        line = Text(f"{check.status.value:<7} ", style=_STYLES[check.status.value])
        line.append(f"{check.name:<{width}}  ", style="bold")
        line.append(printable(check.detail))
        out.print(line, soft_wrap=True)
        if check.fix:
            out.print(
                Text(f"{'':<{width + 10}}{printable(check.fix)}", style="cyan"), soft_wrap=True
            )
    counts = [
        plural(sum(check.status == status for check in checks), status)
        for status in ("error", "warning")
    ]
    out.print(Text(", ".join(counts), style="bold"))
