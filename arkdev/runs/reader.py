"""The only reader of run folders (docs/runs.md has the format)."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from arkdev.errors import RunError
from arkdev.runs.function_records import FunctionCallRecord, FunctionInstanceRecord
from arkdev.runs.rebuilding import NOT_A_RECORD, built, no_record
from arkdev.runs.records import (
    SCHEMA_VERSION,
    GroupRecord,
    Manifest,
    PluginLogRecord,
    SpanRecord,
    TokenRecord,
    TrajectoryRecord,
)
from arkdev.runs.writer import (
    EVENTS,
    GROUPS,
    INSTANCES,
    INVOCATIONS,
    MANIFEST,
    METRICS,
    PLUGIN_LOG,
    RUNNING,
    SPANS,
    TOKENS,
    TRAJECTORIES,
)

KILLED = "killed"
"""The status shown for a run that never finished and whose process is gone."""
UNREADABLE = "unreadable"

T = TypeVar("T")


@dataclass(frozen=True)
class TornLine:
    """A line that is not whole: the process was killed, or the disk was full, while writing it."""

    file: str
    line: int
    """Counted from 1."""


@dataclass(frozen=True)
class RunSummary:
    """One run of a list. `problem` says why a folder cannot be read (status ``unreadable``)."""

    folder: Path
    run_id: str
    kind: str
    status: str
    started_at: str
    finished_at: str | None = None
    summary: dict[str, Any] | None = None
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    problem: str | None = None
    num_resumed: int = 0
    worked_s: float | None = None
    """How long the run worked, without the time between its parts; None while it has no end."""


class RunReader:
    """Reads one run folder, also while it is being written. Iterators hold one line at a time.

    `torn` lists the lines that had to be skipped by the iterators used so far.
    """

    def __init__(self, folder: Path) -> None:
        """Raises `RunError` when there is no manifest or its schema version is unknown."""
        self.folder = folder
        self.manifest = _manifest(folder)
        self.torn: list[TornLine] = []

    @property
    def status(self) -> str:
        """The manifest's status, or ``killed`` when its process ended without a word."""
        is_dead = self.manifest.status == RUNNING and not _is_held(self.folder)
        return KILLED if is_dead else self.manifest.status

    def trajectories(self) -> Iterator[TrajectoryRecord]:
        """Yield the finished rollouts in the order in which they finished."""
        return (
            self._record(TrajectoryRecord, *line, TRAJECTORIES)
            for line in self._lines(TRAJECTORIES)
        )

    def groups(self) -> Iterator[GroupRecord]:
        """Yield the graded groups in the order in which they were graded."""
        return (self._record(GroupRecord, *line, GROUPS) for line in self._lines(GROUPS))

    def tokens(self) -> Iterator[TokenRecord]:
        """Yield the token evidence; nothing when the endpoint gave none."""
        return (self._record(TokenRecord, *line, TOKENS) for line in self._lines(TOKENS))

    def invocations(self) -> Iterator[FunctionCallRecord]:
        """Yield the calls of functions in the order in which they ended; none without --faas."""
        return (
            self._record(FunctionCallRecord, *line, INVOCATIONS)
            for line in self._lines(INVOCATIONS)
        )

    def instances(self) -> Iterator[FunctionInstanceRecord]:
        """Yield the instances of functions in the order in which they ended."""
        return (
            self._record(FunctionInstanceRecord, *line, INSTANCES)
            for line in self._lines(INSTANCES)
        )

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the events in order."""
        return (document for _, document in self._lines(EVENTS))

    def metrics(self) -> Iterator[dict[str, Any]]:
        """Yield the lines of metrics in order: numbers by name, beside ``at`` and ``step``."""
        return (document for _, document in self._lines(METRICS))

    def logs(self, trajectory_id: str = "") -> Iterator[PluginLogRecord]:
        """Yield what plugins logged and printed in order, of one trajectory or of all."""
        for line in self._lines(PLUGIN_LOG, marker=_as_json(trajectory_id)):
            record = self._record(PluginLogRecord, *line, PLUGIN_LOG)
            if not trajectory_id or trajectory_id in record.trajectory_ids:
                yield record

    def spans(self, trajectory_id: str) -> Iterator[SpanRecord]:
        """Yield the spans of a trajectory in the order in which they ended."""
        for line in self._lines(SPANS, marker=_as_json(trajectory_id)):
            record = self._record(SpanRecord, *line, SPANS)
            if trajectory_id in record.trajectory_ids:
                yield record

    def trajectory(self, trajectory_id: str) -> TrajectoryRecord:
        """Find one rollout. Raises `RunError`, naming ids of its sample, when there is none."""
        for number, document in self._lines(TRAJECTORIES, marker=_as_json(trajectory_id)):
            if document.get("trajectory_id") == trajectory_id:
                return self._record(TrajectoryRecord, number, document, TRAJECTORIES)
        raise RunError(
            f"run {self.manifest.run_id} has no trajectory {trajectory_id!r}",
            hint=f"it has {_ids_near(trajectory_id, self.trajectories())}",
        )

    def _lines(self, name: str, *, marker: bytes = b"") -> Iterator[tuple[int, dict[str, Any]]]:
        try:
            file = (self.folder / name).open("rb")
        except FileNotFoundError:
            return
        with file:
            for number, line in enumerate(file, start=1):
                if marker not in line:
                    continue
                try:
                    document = json.loads(line)
                except ValueError:
                    document = None
                if isinstance(document, dict):
                    yield number, document
                elif line.strip():
                    self._note_torn(TornLine(name, number))

    def _note_torn(self, torn: TornLine) -> None:
        if torn not in self.torn:
            self.torn.append(torn)

    def _record(self, kind: type[T], number: int, document: dict[str, Any], name: str) -> T:
        try:
            return built(kind, document)
        except NOT_A_RECORD as error:
            raise no_record(kind, error, where=f"{self.folder / name}:{number}") from error


def _as_json(text: str) -> bytes:
    """Return what a line that holds `text` holds; of an empty text nothing."""
    return json.dumps(text, ensure_ascii=False).encode() if text else b""


def _manifest(folder: Path) -> Manifest:
    path = folder / MANIFEST
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunError(
            "not a run folder: it has no manifest.json",
            where=str(folder),
            hint="`arkdev runs` lists the runs",
        ) from None
    except (OSError, ValueError) as error:
        raise RunError(f"cannot be read: {error}", where=str(path)) from error
    version = document.get("schema_version") if isinstance(document, dict) else None
    if version != SCHEMA_VERSION:
        raise RunError(
            f"run folder of schema version {version!r}; this arkdev reads version {SCHEMA_VERSION}",
            where=str(path),
            hint="read it with the version of arkdev that wrote it (under `versions` in the file)",
        )
    for name in ("settings", "hashes", "versions"):
        if not isinstance(document.get(name, {}), dict):
            raise RunError(f"cannot be read: {name} is not an object", where=str(path))
    try:
        return built(Manifest, document)
    except TypeError as error:
        raise RunError(f"incomplete: {error}", where=str(path)) from error


def _is_held(folder: Path) -> bool:
    """Whether a writer has the folder open. Readers share the lock among themselves."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True  # also where there are no locks: believe the manifest
    finally:
        os.close(descriptor)
    return False


def _ids_near(trajectory_id: str, records: Iterator[TrajectoryRecord]) -> str:
    sample = trajectory_id.rpartition(".")[0]
    shown: list[str] = []
    num_all = 0
    for record in records:
        num_all += 1
        if record.trajectory_id.rpartition(".")[0] == sample or len(shown) < 8:
            shown.append(record.trajectory_id)
    of_sample = [name for name in shown if name.rpartition(".")[0] == sample]
    names = ", ".join((of_sample or shown)[:8])
    return f"{num_all} trajectories, among them {names}" if num_all else "no trajectories"


def list_runs(root: Path) -> list[RunSummary]:
    """List the runs in `root`, the newest first; an unreadable one is listed with its problem."""
    if not root.is_dir():
        return []
    found = [_summary(folder) for folder in root.iterdir() if (folder / MANIFEST).is_file()]
    return sorted(found, key=lambda run: (run.started_at, run.run_id), reverse=True)


def _summary(folder: Path) -> RunSummary:
    try:
        reader = RunReader(folder)
    except RunError as error:
        return RunSummary(folder, folder.name, "", UNREADABLE, "", problem=str(error))
    manifest = reader.manifest
    return RunSummary(
        folder=folder,
        run_id=manifest.run_id,
        kind=manifest.kind,
        status=reader.status,
        started_at=manifest.started_at,
        finished_at=manifest.finished_at,
        summary=manifest.summary,
        settings=manifest.settings,
        num_resumed=len(manifest.resumed_at),
        worked_s=worked_s(manifest, until=manifest.finished_at) if manifest.finished_at else None,
    )


def worked_s(manifest: Manifest, *, until: str) -> float:
    """Return how many seconds a run worked until then: its earlier parts, and the last one."""
    begun = datetime.fromisoformat((manifest.started_at, *manifest.resumed_at)[-1])
    ended = datetime.fromisoformat(until)
    # file times, of which `until` may be one, are a little coarser than the clock
    return manifest.earlier_s + max(0.0, (ended - begun).total_seconds())


def find_run(
    root: Path, name: str, *, is_wanted: Callable[[RunSummary], bool] = lambda _: True
) -> Path:
    """Find a run's folder by its id, a unique beginning or end of it, its path or ``latest``.

    ``latest`` is the newest that `is_wanted`; the newest of all where none is. Raises `RunError`,
    which lists what there is.
    """
    runs = list_runs(root)
    if name == "latest":
        readable = [run for run in runs if run.status != UNREADABLE]
        readable = [run for run in readable if is_wanted(run)] or readable
        if readable:
            return readable[0].folder
    else:
        for matches in (
            [run.folder for run in runs if run.run_id == name],
            [run.folder for run in runs if run.run_id.startswith(name)],
            [run.folder for run in runs if run.run_id.endswith(name)],
        ):
            if len(matches) == 1:
                return matches[0]
            if matches:
                listed = ", ".join(folder.name for folder in matches[:8])
                raise RunError(f"{name!r} may be any of {len(matches)} runs", hint=listed)
        if (Path(name) / MANIFEST).is_file():
            return Path(name)
    raise RunError(
        f"no run {name!r} in {root}" if runs else f"there are no runs in {root}",
        hint=f"there are {', '.join(run.run_id for run in runs[:8])}"
        if runs
        else "`arkdev test plugin` makes one",
    )
