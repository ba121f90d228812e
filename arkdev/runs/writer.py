"""The only writer of run folders (docs/runs.md has the format)."""

from __future__ import annotations

import fcntl
import json
import os
import secrets as random_names
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from arkdev.errors import OutputError, WorkspaceError
from arkdev.runs.function_records import FunctionCallRecord, FunctionInstanceRecord
from arkdev.runs.lines import LineFile, ManyLineFile, cleaned, encoded, masked_json
from arkdev.runs.masking import masked_output, masked_settings, masked_text, usable_secrets
from arkdev.runs.records import (
    SCHEMA_VERSION,
    GroupRecord,
    Manifest,
    PluginLogRecord,
    SampleRecord,
    TokenRecord,
    TrajectoryRecord,
)

MANIFEST = "manifest.json"
SAMPLES = "samples.jsonl"
TRAJECTORIES = "trajectories.jsonl"
GROUPS = "groups.jsonl"
TOKENS = "tokens.jsonl"
EVENTS = "events.jsonl"
METRICS = "metrics.jsonl"
INVOCATIONS = "invocations.jsonl"
INSTANCES = "instances.jsonl"
PLUGIN_LOG = "logs/plugin.jsonl"
SPANS = "traces.jsonl"

_FAAS = (INVOCATIONS, INSTANCES)
RUNNING = "running"

_CREATE_TRIES = 20
_TEMPORARY = ".tmp"


class RunWriter:
    """Writes one run. Every method may be called from any thread.

    Methods raise `OutputError` when the disk refuses, but for `log` and `span`: what a plugin logs
    must not fail the plugin, so the next record raises it.

    A record is on its way to the disk when its method returns: killing the process loses none.
    The open folder is locked (``flock``), which tells a reader that the run is alive.
    """

    def __init__(
        self,
        folder: Path,
        *,
        manifest: Manifest,
        secrets: Iterable[str] = (),
        lock: int | None = None,
    ) -> None:
        """Write into `folder`, which exists and is the caller's alone; see `create`.

        `lock` is the descriptor of the folder when the caller has locked it already.
        """
        self.folder = folder
        self.manifest = manifest
        self._secrets = usable_secrets(secrets)
        (folder / "logs").mkdir(exist_ok=True)
        names = (SAMPLES, TRAJECTORIES, GROUPS, TOKENS, EVENTS, METRICS, PLUGIN_LOG, *_FAAS)
        self._files = {name: LineFile(folder / name) for name in names}
        self._files[SPANS] = ManyLineFile(folder / SPANS)
        self._log_problem: OutputError | None = None
        self._lock = _locked(folder) if lock is None else lock
        self._write_manifest()

    @classmethod
    def create(  # noqa: PLR0913 (each is a part of the manifest that only the caller knows)
        cls,
        root: Path,
        *,
        kind: str,
        settings: dict[str, Any],
        hashes: dict[str, str],
        versions: dict[str, str],
        folder: Path | None = None,
        secrets: Iterable[str] = (),
    ) -> RunWriter:
        """Make ``<root>/<UTC time>-<kind>-<4 hex>``, or `folder`, and begin a run in it.

        `settings` under keys that look like secrets are masked, and each literal of `secrets` (6
        characters or more) is masked wherever it appears in the run. Raises `WorkspaceError` when
        `folder` exists and is not empty, or when a folder cannot be made.
        """
        started = datetime.now(UTC)
        try:
            made = _make_new(root, kind, started) if folder is None else _claim(folder)
        except OSError as error:
            raise WorkspaceError(
                f"cannot make a run folder: {error.strerror}",
                where=str(error.filename or folder or root),
                hint="choose a folder that you may write to with --out",
            ) from error
        manifest = Manifest(
            schema_version=SCHEMA_VERSION,
            run_id=made.name,
            kind=kind,
            status=RUNNING,
            started_at=iso_time(started),
            settings=masked_settings(settings),
            hashes=hashes,
            versions=versions,
        )
        _write_first_manifest(made, manifest, secrets=secrets)
        return cls(made, manifest=manifest, secrets=secrets)

    @property
    def run_id(self) -> str:
        """The folder's name."""
        return self.manifest.run_id

    def masked(self, text: str) -> str:
        """Return `text` with the run's secrets masked, as every file of the run has it."""
        return masked_text(text, secrets=self._secrets)

    def masked_output(self, text: str) -> str:
        """Return what a plugin logged or printed with secrets and passwords in URLs masked."""
        return masked_output(text, secrets=self._secrets)

    def sample(self, record: SampleRecord) -> None:
        """Append to ``samples.jsonl``."""
        self._append(SAMPLES, record)

    def trajectory(self, record: TrajectoryRecord) -> TrajectoryRecord:
        """Append to ``trajectories.jsonl``; return the record with the warnings of its line.

        They tell also what could not be written as it was.
        """
        warnings = self._append(TRAJECTORIES, record)
        return record if warnings is None else replace(record, warnings=warnings)

    def tokens(self, record: TokenRecord) -> None:
        """Append to ``tokens.jsonl``."""
        self._append(TOKENS, record)

    def group(self, record: GroupRecord) -> None:
        """Append to ``groups.jsonl``."""
        self._append(GROUPS, record)

    def copied(self, name: str, lines: Iterable[bytes]) -> None:
        """Append to the file `name` whole lines of another run, with this run's secrets masked."""
        copy = b"".join(lines)
        if copy:
            with _disk_faults_named(self.folder):
                self._files[name].append(masked_json(copy, secrets=self._secrets))

    def invocation(self, record: FunctionCallRecord) -> None:
        """Append to ``invocations.jsonl``."""
        self._append(INVOCATIONS, record)

    def instance(self, record: FunctionInstanceRecord) -> None:
        """Append to ``instances.jsonl``."""
        self._append(INSTANCES, record)

    def event(self, kind: str, **fields: Any) -> None:
        """Append ``{"at": <UTC>, "kind": kind, ...}`` to ``events.jsonl``."""
        self._append(EVENTS, {"at": iso_time(datetime.now(UTC)), "kind": kind, **fields})

    def metrics(self, values: Mapping[str, Any]) -> None:
        """Append one line of metrics, finite numbers by name, to ``metrics.jsonl``."""
        self._append(METRICS, {"at": iso_time(datetime.now(UTC)), **values})

    def log(self, record: PluginLogRecord) -> None:
        """Append to ``logs/plugin.jsonl``."""
        self._append_quietly(PLUGIN_LOG, record)

    def span(self, record: Mapping[str, Any]) -> None:
        """Append to ``traces.jsonl``; `record` has the fields of a `SpanRecord`."""
        self._append_quietly(SPANS, record)

    def finish(self, status: str, summary: Mapping[str, Any]) -> None:
        """Write how the run ended and close its files. What arrives later is still appended."""
        self.manifest = replace(
            self.manifest,
            status=status,
            finished_at=iso_time(datetime.now(UTC)),
            summary=dict(summary),
        )
        self._write_manifest()
        for file in self._files.values():
            file.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _append_quietly(self, name: str, record: object) -> None:
        try:
            self._files[name].append(encoded(record, secrets=self._secrets)[0])
        except OSError as error:
            self._log_problem = _disk_fault(error, folder=self.folder)

    def _append(self, name: str, record: object) -> tuple[str, ...] | None:
        if self._log_problem is not None:
            raise self._log_problem
        with _disk_faults_named(self.folder):
            line, warnings = encoded(record, secrets=self._secrets)
            self._files[name].append(line)
        return warnings

    def _write_manifest(self) -> None:
        with _disk_faults_named(self.folder):
            temporary = _written_aside(self.folder, self.manifest, secrets=self._secrets)
            temporary.replace(self.folder / MANIFEST)


@contextmanager
def _disk_faults_named(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _disk_fault(error, folder=folder) from error


def run_removed(folder: Path) -> OutputError:
    """Return the error for a run whose folder is gone while it runs."""
    return OutputError(
        "the run folder was removed while the run wrote it",
        where=str(folder),
        hint="start the run again, and leave its folder in place until it has ended",
    )


def _disk_fault(error: OSError, *, folder: Path) -> OutputError:
    if not folder.exists():
        return run_removed(folder)
    return OutputError(
        f"the run folder cannot be written any more: {error.strerror or error}",
        where=str(folder),
        hint="the run ended there; what was written before is whole. Make room, or choose "
        "another place with --out",
    )


def _written_aside(folder: Path, manifest: Manifest, *, secrets: Iterable[str]) -> Path:
    """Write a manifest, whole and on the disk, under a name of this thread's own."""
    document = cleaned(manifest, secrets=usable_secrets(secrets))
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=2)
    mine = f"{os.getpid()}-{threading.get_ident()}"
    temporary = folder / f"{MANIFEST}.{mine}{_TEMPORARY}"
    with temporary.open("w", encoding="utf-8", newline="\n") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    return temporary


def _write_first_manifest(folder: Path, manifest: Manifest, *, secrets: Iterable[str]) -> None:
    """Make the folder a run's: with a whole manifest or, killed on the way, with none.

    The link decides between two processes that want the same folder.
    """
    temporary = _written_aside(folder, manifest, secrets=secrets)
    try:
        os.link(temporary, folder / MANIFEST)
    except FileExistsError:
        raise _not_empty(folder) from None
    finally:
        temporary.unlink()


def _locked(folder: Path) -> int:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    with suppress(OSError):  # some network file systems have no locks
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # a reader holds it for an instant only
    return descriptor


def write_page(path: Path, text: str) -> Path:
    """Write a page about a run into its folder, whole or not at all; return its path."""
    with _disk_faults_named(path.parent):
        temporary = path.with_name(f"{path.name}{_TEMPORARY}")
        temporary.write_text(text, encoding="utf-8", newline="\n", errors="replace")
        temporary.replace(path)
    return path


def recorded_settings(settings: dict[str, Any], *, secrets: Iterable[str] = ()) -> dict[str, Any]:
    """Return `settings` as a manifest that is read again has them."""
    document = {"settings": masked_settings(settings)}
    text, _ = encoded(document, secrets=usable_secrets(secrets))
    recorded: dict[str, Any] = json.loads(text)["settings"]
    return recorded


def iso_time(moment: datetime) -> str:
    """Return a moment in UTC as run folders write it, with microseconds."""
    return f"{moment.replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


def _make_new(root: Path, kind: str, started: datetime) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    for _ in range(_CREATE_TRIES):
        name = f"{started:%Y%m%dT%H%M%SZ}-{kind}-{random_names.token_hex(2)}"
        with suppress(FileExistsError):
            (root / name).mkdir()
            return root / name
    raise WorkspaceError(f"no free run name in {root}", hint="try again in a second")


def _claim(folder: Path) -> Path:
    """Take `folder`, new or empty but for what a run killed at its very start left, for a run."""
    folder.mkdir(parents=True, exist_ok=True)
    if any(not path.name.endswith(_TEMPORARY) for path in folder.iterdir()):
        raise _not_empty(folder)
    return folder.absolute()


def _not_empty(folder: Path) -> WorkspaceError:
    return WorkspaceError(
        "the run folder is not empty", where=str(folder), hint="name a new folder with --out"
    )
