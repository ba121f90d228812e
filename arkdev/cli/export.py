"""``arkdev export RUN --to DIR``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from arkdev.cli.options import JsonOption
from arkdev.errors import UsageError

_EXAMPLES = """\b
Examples:
  arkdev export latest --to my-model
  arkdev export latest --to my-model --step best
  arkdev export 20260301T101530Z-train-1a2b --to step40 --step 40 --json

\b
Exit codes: 0, 1 the disk refuses, 2 there is no such run or model, or DIR is not empty."""


def register(app: typer.Typer) -> None:
    """Add the command `export` to `app`."""
    app.command("export", epilog=_EXAMPLES)(export)


def export(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="The run: its id, its unique beginning or end, its job's id, or latest.",
            show_default=False,
        ),
    ],
    to: Annotated[
        Path, typer.Option("--to", metavar="DIR", help="A new folder.", show_default=False)
    ],
    step: Annotated[
        str,
        typer.Option(
            "--step", metavar="N|best|last", help="Which of its saved models, by steps done."
        ),
    ] = "last",
    as_json: JsonOption = False,
) -> None:
    """Write a trained model into a folder of its own, in Hugging Face layout.

    A LoRA adapter is merged into its base. The folder is one for --model, transformers and vLLM.
    """
    import dataclasses

    from arkdev.cli.output import console, print_json
    from arkdev.cli.runs import runs_here
    from arkdev.cli.terminal import number, plural
    from arkdev.flows.export_model import export_model

    if step not in ("best", "last") and not step.isdecimal():
        raise UsageError(f"--step {step}: it is a number of steps, best or last")
    exported = export_model(runs_here(), run=run, to=to, which=step)
    if as_json:
        print_json(dataclasses.asdict(exported))
        return
    out = console()
    merged = ", its LoRA adapter merged" if exported.is_merged else ""
    done = plural(exported.step, "step")
    reward = "" if exported.score is None else f", reward {number(exported.score)} in validation"
    out.print(f"run {exported.run} after {done}{reward}{merged}", soft_wrap=True)
    if exported.best_step not in (None, exported.step):
        told = f"the model after {plural(exported.best_step, 'step')} is the best in validation"
        out.print(f"{told}: --step best exports it", soft_wrap=True)
    out.print(f"{exported.num_bytes / 2**20:.1f} MiB in {exported.folder}", soft_wrap=True)
    out.print(f"arkdev test plugin --endpoint local --model {shlex.quote(str(to))}", soft_wrap=True)
