"""The training runs of this machine: whose process each is, which there are, and their end.

A run's folder says in ``process.txt`` which process trains, in a form that no later process of the
same number fits (`faas_emulator.engines.owners`), and with ``stop.txt`` that it is to end after the
step that is under way.
"""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arkdev.errors import ComesLaterError, RunError
from arkdev.faas_emulator.engines.owners import (
    Owner,
    is_gone,
    is_here,
    read_owner,
    this_process,
)
from arkdev.runs.reader import RunReader, RunSummary, find_run, list_runs
from arkdev.runs.records import TRAIN
from arkdev.runs.saved_models import SCORE, SavedModels
from arkdev.runs.writer import RUNNING, write_page

KIND = "train"
PROCESS_FILE = "process.txt"
STOP_FILE = "stop.txt"
OUTPUT_FILE = "output.txt"
"""What a run in the background printed."""
_BEGUN = ".run"

ENDS_WITHIN_S = 30.0
_LOOK_EVERY_S = 0.1
_DIES_WITHIN_S = 5.0


def begin_process(folder: Path, *, output: Path | None = None) -> None:
    """Note that this process trains the run in `folder`, which was not asked to stop yet.

    `output` is the file that it writes to in the background: it moves into the folder, and in its
    place is said which folder that is, for `begun_run`.
    """
    (folder / STOP_FILE).unlink(missing_ok=True)
    write_page(folder / PROCESS_FILE, f"{this_process()}\n")
    if output is not None:
        _keep_earlier(folder / OUTPUT_FILE)
        output.rename(folder / OUTPUT_FILE)
        write_page(output.with_suffix(_BEGUN), str(folder.absolute()))


def _keep_earlier(output: Path) -> None:
    """Rename what an earlier part of the run printed: ``output-1.txt`` is that of the first."""
    if output.exists():
        numbers = itertools.count(1)
        names = (output.with_stem(f"{output.stem}-{number}") for number in numbers)
        output.rename(next(path for path in names if not path.exists()))


def begun_run(output: Path) -> Path | None:
    """Return the folder of the run that the process which writes to `output` has begun, if so."""
    try:
        return Path(output.with_suffix(_BEGUN).read_text(encoding="utf-8"))
    except OSError:
        return None


def process_of(folder: Path) -> Owner | None:
    """Return the process that trained or trains the run; None where the folder says of none."""
    try:
        return read_owner((folder / PROCESS_FILE).read_text(encoding="utf-8").strip())
    except (OSError, ValueError):
        return None


def is_stop_asked(folder: Path) -> bool:
    """Whether the run is to end after the step that is under way."""
    return (folder / STOP_FILE).exists()


@dataclass(frozen=True)
class TrainingRun:
    """A row of ``arkdev list mcj``."""

    run: str
    job_id: str
    name: str | None
    """The job's; None where the run does not say."""
    customization_type: str | None
    foundation_model: str | None
    """The model that is trained."""
    phase: str
    """The run's status."""
    num_steps_done: int
    num_steps: int | None
    started_at: str
    finished_at: str | None


@dataclass(frozen=True)
class SavedModelRow:
    """One model that a run saved."""

    step: int
    score: float | None
    """In validation; None: it was not validated."""
    is_best: bool
    folder: str


def list_training_runs(root: Path) -> list[RunSummary]:
    """Return the training runs in `root`, the newest first."""
    return [run for run in list_runs(root) if run.kind == KIND]


def find_training_run(root: Path, name: str, *, command: str) -> RunReader:
    """Find a training run by what `find_run` takes, or by the id of its job; ``latest`` is one.

    Raises `RunError`, and `ComesLaterError` for the id of a job of the platform.
    """
    runs = list_training_runs(root)
    of_job = [run.folder for run in runs if job_id_at(run.started_at) == name]
    if of_job:
        return RunReader(of_job[0])
    if name == "latest" and not runs:
        raise RunError(f"there are no training runs in {root}", hint="`arkdev train` makes one")
    try:
        reader = RunReader(find_run(root, name, is_wanted=lambda run: run.kind == KIND))
    except RunError:
        if name.startswith("mcj-"):
            raise ComesLaterError(
                f"`arkdev {command}` is not built yet: it comes with remote job management "
                f"(no run of this machine is the job {name})",
                hint="`arkdev list mcj` lists the jobs that ran on this machine",
            ) from None
        raise
    if reader.manifest.kind != KIND:
        raise RunError(
            f"run {reader.manifest.run_id} is a {reader.manifest.kind} run, not a training",
            hint="`arkdev list mcj` lists the trainings; `arkdev show` shows any run",
        )
    return reader


def job_id_at(started_at: str) -> str:
    """Return the id that plugins are told of a job that began then.

    >>> job_id_at("2026-03-01T10:15:30.012345Z")
    'mcj-20260301101530-12345'
    """
    moment = "".join(letter for letter in started_at[:19] if letter.isdigit())
    return f"mcj-{moment}-{started_at[-6:-1]}"


def row_of(reader: RunReader) -> TrainingRun:
    """Return what a list shows of a run."""
    manifest = reader.manifest
    settings = manifest.settings
    endpoint = settings.get("endpoint")
    return TrainingRun(
        run=manifest.run_id,
        job_id=job_id_at(manifest.started_at),
        name=settings.get("job_name"),
        customization_type=settings.get("customization_type"),
        foundation_model=endpoint.get("model") if isinstance(endpoint, dict) else None,
        phase=reader.status,
        num_steps_done=_num_steps_done(reader),
        num_steps=settings.get("num_steps"),
        started_at=manifest.started_at,
        finished_at=manifest.finished_at,
    )


def _num_steps_done(reader: RunReader) -> int:
    steps = (
        event["step"]
        for event in reader.events()
        if event.get("kind") == "step" and event.get("phase") == TRAIN
    )
    return max(steps, default=-1) + 1


def saved_models_of(reader: RunReader) -> list[SavedModelRow]:
    """Return the models that a run saved and that are kept, the newest first."""
    models = SavedModels(reader.folder, run_id=reader.manifest.run_id)
    best = models.best()
    return [
        SavedModelRow(
            step=model.step,
            score=model.facts.get(SCORE),
            is_best=best is not None and model.step == best.step,
            folder=str(model.folder),
        )
        for model in models.all()
    ]


def ask_to_stop(reader: RunReader) -> None:
    """Ask a run to end after the step that is under way. Raises `RunError` when it does not run."""
    _living(reader)
    write_page(reader.folder / STOP_FILE, "")


def stop_at_once(
    reader: RunReader, *, say: Callable[[str], None], within_s: float = ENDS_WITHIN_S
) -> None:
    """End a run's process now and wait until it has; one that will not end is killed.

    What it saved is kept. Raises `RunError` when it does not run here.
    """
    owner = _living(reader)
    with _process(owner) as signal_it:
        signal_it(signal.SIGTERM)
        if _is_over(owner, within_s=within_s):
            return
        signal_it(signal.SIGKILL)
        say(f"it did not end within {within_s:g} s and was killed")
        _is_over(owner, within_s=_DIES_WITHIN_S)


def _living(reader: RunReader) -> Owner:
    run_id = reader.manifest.run_id
    if reader.status != RUNNING:
        raise RunError(
            f"run {run_id} is {reader.status}: there is nothing to stop",
            hint=f"`arkdev show {run_id}` shows it",
        )
    owner = process_of(reader.folder)
    if owner is None or is_gone(owner):
        raise RunError(
            f"run {run_id} is being written, but its folder does not say by which process",
            where=str(reader.folder / PROCESS_FILE),
            hint="it may be just beginning; try again in a few seconds",
        )
    if not is_here(owner):
        raise RunError(
            f"run {run_id} runs on another machine, or in a container on this one",
            hint="stop it there",
        )
    return owner


@contextmanager
def _process(owner: Owner) -> Iterator[Callable[[signal.Signals], None]]:
    """Yield what signals that very process, and no later one of the same number."""
    if not hasattr(os, "pidfd_open"):
        yield lambda number: None if is_gone(owner) else _killed(owner.pid, number)
        return
    try:
        descriptor = os.pidfd_open(owner.pid)
    except ProcessLookupError:
        yield lambda _: None
        return
    try:
        if is_gone(owner):  # looked at with the number held fast
            yield lambda _: None
        else:
            yield lambda number: _signalled(descriptor, number)
    finally:
        os.close(descriptor)


def _killed(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _signalled(descriptor: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(descriptor, number)


def _is_over(owner: Owner, *, within_s: float) -> bool:
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        if is_gone(owner):
            return True
        time.sleep(_LOOK_EVERY_S)
    return False


def hyperparameters_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the hyperparameters that a run notes."""
    training = settings.get("training")
    return dict(training) if isinstance(training, dict) else {}
