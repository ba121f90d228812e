"""``arkdev run FILE``: a user's own script, with `ark_sdk` resolved to arkdev."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command `run` to `app`."""
    app.command(
        name="run",
        epilog="Example: arkdev run plugins/weather_rollout.py --endpoint scripted",
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )(run)


def run(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="A Python file of the workspace, run as __main__.")],
    endpoint: Annotated[
        str | None,
        typer.Option(
            "--endpoint",
            help="scripted: serve the scripted model and set ARK_BASE_URL and ARK_API_KEY to it.",
        ),
    ] = None,
) -> None:
    """Run a Python file as a script; further arguments are the script's own."""
    from arkdev.flows.run_file import run_file

    run_file(file, arguments=context.args, endpoint=endpoint)
