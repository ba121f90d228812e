"""``arkdev watch [RUN]``: a training run, followed from elsewhere."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arkdev.errors import ExitCode

if TYPE_CHECKING:
    from arkdev.flows.watching import Watched
    from arkdev.runs.reader import RunReader

_EXAMPLES = """\b
Examples:
  arkdev watch                      the latest training run
  arkdev watch 1a2b                 by the end of its id
  arkdev watch latest --json        a line of JSON for each step

\b
Exit codes: 0 it finished, 1 it ended otherwise or died, 2 there is no such training run,
130 Ctrl-C ended the watching; the run goes on."""


def register(app: typer.Typer) -> None:
    """Add the command `watch` to `app`."""
    app.command("watch", epilog=_EXAMPLES)(watch)


def watch(
    run: Annotated[
        str,
        typer.Argument(
            metavar="[RUN]",
            help="The run: its id, its unique beginning or end, its job's id, or latest.",
        ),
    ] = "latest",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a line of JSON for each step, and for the end.")
    ] = False,
) -> None:
    """Show the steps of a training run, those done and those to come, until it ends.

    Ctrl-C ends the watching; the run goes on.
    """
    from arkdev.cli.runs import runs_here
    from arkdev.flows.training_runs import find_training_run
    from arkdev.flows.watching import watch_run

    reader = find_training_run(runs_here(), run, command="watch")
    show = _Lines(reader) if as_json else _Table(reader)
    status = ""
    for watched in watch_run(reader.folder):
        show.add(watched)
        status = watched.status
    raise typer.Exit(int(ExitCode.OK if status == "finished" else ExitCode.SOME_FAILED))


class _Lines:
    """One JSON document in each line."""

    def __init__(self, reader: RunReader) -> None:
        self._run_id = reader.manifest.run_id

    def add(self, watched: Watched) -> None:
        from arkdev.cli.output import JSON_SCHEMA_VERSION
        from arkdev.cli.streams import results

        record = watched.record
        document: dict[str, Any] = {
            "schema_version": JSON_SCHEMA_VERSION,
            "run": self._run_id,
            "kind": watched.kind,
            "status": watched.status,
            "step": record.step if record else watched.from_step,
            "phase": record.phase if record else None,
            "metrics": record.metrics if record else {},
        }
        line = json.dumps(document, ensure_ascii=False, allow_nan=False)
        results().buffer.write(line.encode() + b"\n")
        results().buffer.flush()


class _Table:
    """The table that the run itself shows."""

    def __init__(self, reader: RunReader) -> None:
        from arkdev.cli.output import console
        from arkdev.cli.terminal import symbols

        self._out = console()
        self._err = console(is_stderr=True)
        self._signs = symbols(self._out)
        self._width = self._out.width if self._out.is_terminal else 1_000
        self._reader = reader
        self._num_steps: int | None = reader.manifest.settings.get("num_steps")
        self._hyperparameters = reader.manifest.settings.get("hyperparameters") or {}
        self._kl: str | None = None
        self._times: list[str] = []

    def add(self, watched: Watched) -> None:
        from arkdev.flows.watching import RESUMED, STEP

        if watched.kind == STEP:
            self._add_step(watched)
        elif watched.kind == RESUMED:
            self._times.clear()
            if watched.from_step is not None:
                self._say(f"the run goes on after step {watched.from_step - 1}")
        else:
            self._say_end(watched.status)

    def _add_step(self, watched: Watched) -> None:
        from rich.text import Text

        from arkdev.cli.train_report import HEADERS, aligned, cells, kl_column
        from arkdev.runs.records import TEST

        record = watched.record
        assert record is not None
        if self._kl is None:
            self._kl, told = kl_column(self._hyperparameters)
            self._say(told)
            self._out.print(Text(aligned(HEADERS, width=self._width), style="dim"), soft_wrap=True)
        left_s = None if record.phase == TEST else self._left_s(watched.at, step=record.step)
        row = aligned(cells(record, self._signs, kl=self._kl, left_s=left_s), width=self._width)
        style = "cyan" if record.phase == TEST else ""
        self._out.print(Text(row, style=style), soft_wrap=True)
        if text := record.failure or record.message:
            self._out.print(Text(f"  {text}", style="yellow"), soft_wrap=True)

    def _left_s(self, at: str, *, step: int) -> float | None:
        """Steps to come take what those took that were watched since the run last began."""
        from datetime import datetime

        self._times.append(at)
        if self._num_steps is None or len(self._times) < 2:
            return None
        first, last = (datetime.fromisoformat(each) for each in (self._times[0], at))
        each_s = (last - first).total_seconds() / (len(self._times) - 1)
        return each_s * (self._num_steps - 1 - step)

    def _say_end(self, status: str) -> None:
        from arkdev.cli.terminal import printable
        from arkdev.flows.watching import last_output

        run_id = self._reader.manifest.run_id
        if status == "finished":
            self._say(f"{run_id} has finished")
            for command in self._next(run_id):
                self._say(f"  {command}")
            return
        if status == "failed":
            self._say_failure(run_id)
            return
        ended = "has died: its process is gone" if status == "killed" else f"is {status}"
        self._say(f"{run_id} {ended}; `arkdev train --resume {run_id}` goes on with it")
        for line in last_output(self._reader.folder) if status == "killed" else ():
            self._say(f"  {printable(line)}")

    def _say_failure(self, run_id: str) -> None:
        from arkdev.cli.terminal import printable
        from arkdev.cli.train_report import last_checkpoint, next_after_failure
        from arkdev.runs.reader import RunReader

        folder = self._reader.folder
        failure = (RunReader(folder).manifest.summary or {}).get("failure")
        self._say(f"{run_id} has failed" + (f": {printable(failure)}" if failure else ""))
        for command in next_after_failure(run_id, last_checkpoint=last_checkpoint(folder)):
            self._say(f"  {command}")

    def _next(self, run_id: str) -> list[str]:
        from arkdev.cli.train_report import next_for_models
        from arkdev.flows.training_runs import saved_models_of

        saved = saved_models_of(self._reader)  # the newest first
        best = next((model.folder for model in saved if model.is_best), None)
        return next_for_models(run_id, best=best, last=saved[0].folder) if saved else []

    def _say(self, text: str) -> None:
        self._err.print(text, soft_wrap=True, style="dim")
