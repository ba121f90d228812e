"""``arkdev data``: the data of a job."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated

import typer

from arkdev.cli.options import JobOption, JsonOption
from arkdev.errors import DataError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

app = typer.Typer(help="Data of a job.", no_args_is_help=True)

_EXAMPLES = """\b
Examples:
  arkdev data check                        the job's training and validation sets
  arkdev data check data/*.jsonl           some files; the job's graders say which keys they read
  arkdev data check --show 1000 --json | jq '.sets[].errors'

\b
Exit codes: 0 all lines are samples (or as many as the job accepts; warnings are good),
2 some are not, or a file cannot be read."""


@app.callback()
def _group() -> None:
    """Data of a job."""


@app.command("check", epilog=_EXAMPLES)
def check(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILES]...", help="JSONL files, in place of the job's.", show_default=False
        ),
    ] = None,
    job: JobOption = None,
    show: Annotated[
        int,
        typer.Option("--show", metavar="N", min=0, help="Tell at most so many lines one by one."),
    ] = 20,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", help="Of mixing and of splitting.")
    ] = 0,
    as_json: JsonOption = False,
) -> None:
    """Check every line of the data and say what the data is made of.

    Nothing is run: graders are only read, for the keys of `extra` that they want.
    """
    import sys
    from contextlib import redirect_stdout
    from dataclasses import asdict

    from arkdev.cli.data_report import print_data_check, refusal
    from arkdev.cli.output import console, print_json
    from arkdev.cli.streams import keep_results_apart
    from arkdev.flows.check_data import CheckProgress, DataCheckRequest, check_data

    keep_results_apart()  # a job.py may print
    request = DataCheckRequest(
        Path.cwd(), files=tuple(files or ()), job=job, num_shown=show, seed=seed
    )
    with redirect_stdout(sys.stderr), _Bar(console(is_stderr=True)) as bar:
        found = check_data(request, progress=CheckProgress(bar.start, bar.advance))
    code = int(found.exit_code)
    if as_json:
        print_json({"exit_code": code, **asdict(found)})
    else:
        print_data_check(found, console())
    if code:
        raise DataError(refusal(found), hint="correct the lines that the report names")


class _Bar:
    """Bytes read, on a terminal alone."""

    def __init__(self, target: Console) -> None:
        self._target = target
        self._progress: Progress | None = None

    def __enter__(self) -> _Bar:
        return self

    def start(self, num_bytes: int) -> None:
        """Show the bar; one for nothing would jump."""
        if not self._target.is_terminal or not num_bytes:
            return
        from rich.progress import DownloadColumn, TimeRemainingColumn

        from arkdev.cli.progress import bar

        self._progress = bar(self._target, DownloadColumn(), TimeRemainingColumn())
        self._task = self._progress.add_task("reading", total=num_bytes)
        self._progress.start()

    def advance(self, num_bytes: int) -> None:
        """Move it by so many bytes."""
        if self._progress is not None:
            self._progress.advance(self._task, num_bytes)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._progress is not None:
            self._progress.stop()
