"""What a run that was cut short keeps when it goes on (decision 3: a group is the unit).

A group is finished when its line in ``groups.jsonl`` is whole and every trajectory that the line
names is in ``trajectories.jsonl``. Whatever else the files hold belongs to groups that were under
way, and is dropped: those groups run again from their first rollout. A file is replaced as a whole,
so being killed in the midst of this loses nothing either.

Training goes back further, to its last checkpoint: what later steps wrote came from weights that
are gone. It is set aside, in the folder ``set_aside``, and those steps are redone whole.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from arkdev.errors import RunError
from arkdev.runs.reader import RunReader, worked_s
from arkdev.runs.records import TRAIN, Manifest, step_of_id
from arkdev.runs.writer import (
    EVENTS,
    GROUPS,
    INSTANCES,
    INVOCATIONS,
    METRICS,
    PLUGIN_LOG,
    RUNNING,
    SAMPLES,
    SPANS,
    TOKENS,
    TRAJECTORIES,
    RunWriter,
    iso_time,
)

GroupKey = tuple[str, int | None, int]
"""The phase, the step and the sample of a group."""

_IsKept = Callable[[dict[str, Any]], bool]

SET_ASIDE = "set_aside"
_BY_STEP = (
    SAMPLES,
    TRAJECTORIES,
    TOKENS,
    GROUPS,
    EVENTS,
    METRICS,
    INVOCATIONS,
    INSTANCES,
    PLUGIN_LOG,
    SPANS,
)
"""Files whose lines are of a step, where they are of one."""

_LOCK_TRIES = 20
_LOCK_WAIT_S = 0.01
"""A reader holds the lock for an instant only."""


@dataclass(frozen=True)
class FinishedGroups:
    """The groups that a run has behind it."""

    groups: frozenset[GroupKey]
    trajectory_ids: frozenset[str]


def check_resumable(reader: RunReader) -> None:
    """Raise `RunError` when the run is finished, or still alive."""
    name = reader.manifest.run_id
    if reader.status == "finished":
        raise RunError(
            f"run {name} is finished: there is nothing left of it to do",
            hint=f"look at it with `arkdev show {name}`, or start a new run without --resume",
        )
    if reader.status == RUNNING:
        raise _still_running(name)


def resume_run(
    folder: Path, *, secrets: Iterable[str] = (), from_step: int | None = None, **note: Any
) -> RunWriter:
    """Go on with the run in `folder`: lock it, drop what is unfinished, and open it for writing.

    With `from_step` all that this step and later ones wrote is set aside. `note` goes into the
    event ``resumed``. Raises `RunError` when the run has been finished, or is
    being written by another process.
    """
    lock = _lock(folder)
    try:
        reader = RunReader(folder)
        if reader.manifest.status != RUNNING:  # else it is ours: nobody else holds the lock
            check_resumable(reader)
        manifest = _resumed(reader.manifest, folder=folder)
        num_dropped = (
            drop_unfinished(folder) if from_step is None else set_aside_from(folder, from_step)
        )
        writer = RunWriter(folder, manifest=manifest, secrets=secrets, lock=lock)
    except BaseException:
        os.close(lock)
        raise
    if from_step is not None:
        note["from_step"] = from_step
    writer.event("resumed", num_lines_dropped=num_dropped, **note)
    return writer


def _lock(folder: Path) -> int:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOCK_WAIT_S)
        except OSError:  # no locks here: a run that says "running" was taken for alive before
            return descriptor
        else:
            return descriptor
    os.close(descriptor)
    raise _still_running(folder.name)


def _still_running(name: str) -> RunError:
    return RunError(
        f"run {name} is still running: another process is writing it",
        hint="wait for it, or interrupt it with Ctrl-C",
    )


def _resumed(manifest: Manifest, *, folder: Path) -> Manifest:
    """Return the manifest of the part that begins now."""
    ended_at = manifest.finished_at or _last_written_at(folder)
    return replace(
        manifest,
        status=RUNNING,
        finished_at=None,
        summary=None,
        resumed_at=(*manifest.resumed_at, iso_time(datetime.now(UTC))),
        earlier_s=worked_s(manifest, until=ended_at),
    )


def _last_written_at(folder: Path) -> str:
    """Return when a killed run wrote its last line."""
    written = max(path.stat().st_mtime for path in folder.rglob("*") if path.is_file())
    return iso_time(datetime.fromtimestamp(written, UTC))


def finished_groups(folder: Path) -> FinishedGroups:
    """Read which groups of the run in `folder` are finished."""
    written = {document.get("trajectory_id") for document in _documents(folder / TRAJECTORIES)}
    members = {
        _key(document): document["trajectory_ids"]
        for document in _documents(folder / GROUPS)
        if "sample_index" in document and written.issuperset(document.get("trajectory_ids", [None]))
    }
    return FinishedGroups(
        groups=frozenset(members),
        trajectory_ids=frozenset(name for names in members.values() for name in names),
    )


def _key(document: dict[str, Any]) -> GroupKey:
    return document.get("phase", TRAIN), document.get("step"), document["sample_index"]


def drop_unfinished(folder: Path) -> int:
    """Leave in `folder` what finished groups wrote; return how many lines were dropped.

    Torn lines go too. The run must not be alive.
    """
    finished = finished_groups(folder)

    def first_of_its_group() -> _IsKept:
        seen: set[GroupKey] = set()

        def is_first(document: dict[str, Any]) -> bool:
            key = _key(document) if "sample_index" in document else None
            if key is None or key not in finished.groups or key in seen:
                return False
            seen.add(key)
            return True

        return is_first

    def is_of_a_finished_group(document: dict[str, Any]) -> bool:
        return document.get("trajectory_id") in finished.trajectory_ids

    def is_of_finished_groups(document: dict[str, Any]) -> bool:
        return finished.trajectory_ids.issuperset(document.get("trajectory_ids") or ())

    kept: dict[str, _IsKept] = {
        SAMPLES: first_of_its_group(),
        TRAJECTORIES: is_of_a_finished_group,
        TOKENS: is_of_a_finished_group,
        GROUPS: first_of_its_group(),
        EVENTS: bool,
        METRICS: bool,
        INVOCATIONS: is_of_finished_groups,
        INSTANCES: bool,
        PLUGIN_LOG: is_of_finished_groups,
        SPANS: is_of_finished_groups,
    }
    return sum(_keep(folder / name, is_kept) for name, is_kept in kept.items())


def set_aside_from(folder: Path, step: int) -> int:
    """Move what a step and those after it wrote into ``set_aside``; return how many lines.

    A round on the validation set is of the step that it follows. Torn lines are dropped. The run
    must not be alive.
    """

    def is_of_an_earlier_step(document: dict[str, Any]) -> bool:
        return all(number < step for number in _steps_of(document))

    aside = folder / SET_ASIDE
    return sum(_keep(folder / name, is_of_an_earlier_step, aside=aside / name) for name in _BY_STEP)


def _steps_of(document: dict[str, Any]) -> Iterator[int]:
    """Yield the steps that a line says it is of; it says none when it is of the whole run."""
    if isinstance(number := document.get("step"), int):
        yield number
    names = document.get("trajectory_ids") or [document.get("trajectory_id", "")]
    for name in names:
        number = step_of_id(name)[1]
        if number is not None:
            yield number


def _documents(path: Path) -> Iterator[dict[str, Any]]:
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        yield from (document for _, document in _whole_lines(file) if document)


def _whole_lines(lines: Iterator[bytes]) -> Iterator[tuple[bytes, dict[str, Any] | None]]:
    """Yield each line, with None in place of its document when it is torn."""
    for line in lines:
        try:
            document = json.loads(line) if line.endswith(b"\n") else None
        except ValueError:
            document = None
        yield line, document if isinstance(document, dict) else None


def _keep(path: Path, is_kept: _IsKept, *, aside: Path | None = None) -> int:
    """Replace a file by those of its lines that are whole and `is_kept`; return what is missing.

    What is whole and not kept is appended to the file `aside`.
    """
    temporary = path.with_name(f"{path.name}.tmp")
    num_dropped = 0
    try:
        source = path.open("rb")
    except FileNotFoundError:
        return 0
    with source, temporary.open("wb") as target, ExitStack() as opened:
        other: BinaryIO | None = None
        for line, document in _whole_lines(source):
            if document and is_kept(document):
                target.write(line)
                continue
            num_dropped += 1
            if document and aside is not None:
                if other is None:
                    aside.parent.mkdir(parents=True, exist_ok=True)
                    other = opened.enter_context(aside.open("ab"))
                other.write(line)
        for file in (other, target):
            if file is not None:
                file.flush()
                os.fsync(file.fileno())
    if num_dropped:
        temporary.replace(path)
    else:
        temporary.unlink()
    return num_dropped
