"""Following a training run from another process, until it ends or dies."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arkdev.flows.training_runs import OUTPUT_FILE
from arkdev.harness.steps import StepRecord
from arkdev.runs.following import RunFollower
from arkdev.runs.reader import KILLED
from arkdev.runs.writer import RUNNING

STEP = "step"
RESUMED = "resumed"
END = "end"

LOOK_EVERY_S = 0.5


@dataclass(frozen=True)
class Watched:
    """Something that happened in a run."""

    kind: str
    """`STEP`: a step is done, or a round of validation. `RESUMED`: the run goes on, from
    `from_step`. `END`: there is no more."""
    status: str
    """Of the run."""
    at: str = ""
    record: StepRecord | None = None
    from_step: int | None = None


def watch_run(folder: Path, *, look_every_s: float = LOOK_EVERY_S) -> Iterator[Watched]:
    """Yield what happened in a run so far, then what happens, until it is over.

    A run whose process dies ends with the status ``killed``. Raises `RunError` when the folder
    goes.
    """
    follower = RunFollower(folder)
    before = RUNNING
    while True:
        status = follower.status  # before the look: what was written by then is seen
        for event in follower.new_events():
            watched = _watched(event, status)
            if watched is not None:
                yield watched
        # a run that begins, or goes on, looks dead for an instant
        if status not in (RUNNING, KILLED) or status == before == KILLED:
            yield Watched(END, status)
            return
        before = status
        time.sleep(look_every_s)


def _watched(event: dict[str, Any], status: str) -> Watched | None:
    if event.get("kind") == STEP:
        return Watched(STEP, status, event["at"], record=StepRecord.from_json(event))
    if event.get("kind") == RESUMED:
        return Watched(RESUMED, status, event["at"], from_step=event.get("from_step"))
    return None


def last_output(folder: Path, *, num_lines: int = 10) -> list[str]:
    """Return the last lines that a detached run printed; none for one in the foreground."""
    try:
        text = (folder / OUTPUT_FILE).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.splitlines()[-num_lines:]
