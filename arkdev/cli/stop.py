"""``arkdev stop [mcj] RUN``: end a training run of this machine; what it saved is kept."""

from __future__ import annotations

from typing import Annotated

import typer

from arkdev.cli.options import JsonOption
from arkdev.errors import UsageError

_EXAMPLES = """\b
Examples:
  arkdev stop latest                end after the step that is under way
  arkdev stop mcj latest --now      end at once; the last checkpoint is what is kept
  arkdev train --resume latest      go on later

\b
Exit codes: 0, 2 there is no such training run, or it does not run."""


def register(app: typer.Typer) -> None:
    """Add the command `stop` to `app`."""
    app.command("stop", epilog=_EXAMPLES)(stop)


def stop(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[mcj] RUN",
            help="The run: its id, its unique beginning or end, its job's id, or latest.",
            show_default=False,
        ),
    ],
    now: Annotated[
        bool, typer.Option("--now", help="At once, in the midst of a step, which is lost.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """End a training run, in the foreground or not. `arkdev train --resume` goes on with it."""
    from arkdev.cli.output import console, print_json
    from arkdev.cli.runs import runs_here
    from arkdev.flows.training_runs import ask_to_stop, find_training_run, stop_at_once

    names = words[1:] if words[0] == "mcj" else words
    if len(names) != 1:
        raise UsageError("name one run", hint="`arkdev list mcj -p running` lists what runs")
    reader = find_training_run(runs_here(), names[0], command="stop mcj")
    run_id = reader.manifest.run_id
    if now:
        stop_at_once(reader, say=lambda text: console(is_stderr=True).print(text, soft_wrap=True))
        told = f"{run_id} has ended; `arkdev train --resume {run_id}` goes on from its checkpoint"
    else:
        ask_to_stop(reader)
        told = f"{run_id} ends after the step that is under way; `arkdev watch {run_id}` follows it"
    if as_json:
        print_json({"run": run_id, "folder": str(reader.folder), "has_ended": now})
    else:
        console().print(told, soft_wrap=True)
