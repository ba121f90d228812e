"""``arkdev forecast RUN``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from arkdev.cli.options import JsonOption

_EPILOG = """\b
Examples:
  arkdev forecast                              of the latest run
  arkdev forecast latest --num-steps 200       for a longer job
  arkdev forecast RUN --num-generations 16     with larger groups
  arkdev forecast RUN --json

\b
Exit codes: 0 all good, 2 usage or configuration, 70 a fault of arkdev."""


def register(app: typer.Typer) -> None:
    """Add the command `forecast` to `app`."""

    @app.command("forecast", epilog=_EPILOG)
    def forecast_command(
        run: Annotated[
            str,
            typer.Argument(
                help="A debug run or a test: id, its unique beginning or end, path, or latest."
            ),
        ] = "latest",
        num_steps: Annotated[
            int | None,
            typer.Option("--num-steps", metavar="N", min=1, help="Over the job's."),
        ] = None,
        batch_size: Annotated[
            int | None,
            typer.Option("--batch-size", metavar="N", min=1, help="Over the job's."),
        ] = None,
        num_generations: Annotated[
            int | None,
            typer.Option("--num-generations", metavar="N", min=1, help="Over the job's."),
        ] = None,
        as_json: JsonOption = False,
    ) -> None:
        """Say what a run tells of the job: signal, pass@k, time, tokens, cost, with intervals."""
        from arkdev.cli.forecast_report import print_forecast
        from arkdev.cli.output import console, print_json
        from arkdev.flows.forecast import KINDS, AskedSize, forecast_run
        from arkdev.job.workspace import find_workspace
        from arkdev.runs.reader import RunReader, find_run

        workspace = find_workspace(Path.cwd())
        runs = workspace.root / "runs"
        reader = RunReader(find_run(runs, run, is_wanted=lambda each: each.kind in KINDS))
        asked = AskedSize(num_steps, batch_size, num_generations)
        forecast = forecast_run(reader, prices=workspace.prices, asked=asked)
        if as_json:
            document = {"run": reader.manifest.run_id, "folder": str(reader.folder)}
            print_json({**document, "forecast": forecast.to_json()})
            return
        print_forecast(forecast, console())
