"""``arkdev get mcj RUN``: one training run of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from arkdev.cli.options import JsonOption

_EXAMPLES = """\b
Examples:
  arkdev get mcj latest
  arkdev get mcj 20260301T101530Z-train-1a2b --json

\b
Exit codes: 0, 2 there is no such training run."""


def register(app: typer.Typer) -> None:
    """Add `mcj` to `app`, the group `get`."""
    app.command("mcj", epilog=_EXAMPLES)(mcj)


def mcj(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="The run: its id, its unique beginning or end, its job's id, or latest.",
            show_default=False,
        ),
    ],
    as_json: JsonOption = False,
) -> None:
    """Show a training run: status, models used and made, hyperparameters, data."""
    import dataclasses

    from arkdev.cli.output import print_json
    from arkdev.cli.runs import runs_here
    from arkdev.flows.training_runs import find_training_run, row_of, saved_models_of

    reader = find_training_run(runs_here(), run, command="get mcj")
    settings = reader.manifest.settings
    document: dict[str, Any] = {
        **dataclasses.asdict(row_of(reader)),
        "folder": str(reader.folder),
        "models": [dataclasses.asdict(model) for model in saved_models_of(reader)],
        "hyperparameters": settings.get("hyperparameters") or {},
        "data": settings.get("data") or [],
    }
    if as_json:
        print_json(document)
    else:
        _print(document)


def _print(document: dict[str, Any]) -> None:
    from rich.text import Text

    from arkdev.cli.output import console
    from arkdev.cli.terminal import facts, number, plural, printable, symbols

    out = console()
    dash = symbols(out).dash
    steps = f"{document['num_steps_done']} of {document['num_steps'] or dash} steps"
    rows = [
        ("run", document["run"]),
        ("job", document["job_id"]),
        ("name", document["name"] or dash),
        ("status", f"{document['phase']}, {steps}"),
        ("method", document["customization_type"] or dash),
        ("model", document["foundation_model"] or dash),
        ("began", _when(document["started_at"])),
        ("ended", _when(document["finished_at"]) or dash),
        *(("" if n else "data", _from_here(path)) for n, path in enumerate(document["data"])),
        ("folder", _from_here(document["folder"])),
    ]
    settings = [f"{name} = {value}" for name, value in document["hyperparameters"].items()]
    rows += [("" if n else "settings", text) for n, text in enumerate(settings)]
    for model in document["models"]:
        reward = model["score"]
        score = "not validated" if reward is None else f"reward {number(reward)} in validation"
        best = ", the best" if model["is_best"] else ""
        done = f"after {plural(model['step'], 'step')}"
        rows += [("saved", f"{done}: {score}{best}"), ("", _from_here(model["folder"]))]
    out.print(facts((name, Text(printable(text))) for name, text in rows))


def _when(at: str | None) -> str:
    return f"{at[:19].replace('T', ' ')} UTC" if at else ""


def _from_here(path: str) -> str:
    """Return a path as it is written in the current directory, when it is below that."""
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path
