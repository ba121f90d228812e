"""Folders of a run that are whole or not at all: its training states and its saved models.

A snapshot is written beside its place, under a name that ends in ``.partial``, brought to the disk,
described by a ``snapshot.json`` with the size and SHA-256 of each file, and renamed into place. So
a process that is killed, or a disk that is full, at any moment leaves the older ones as they were,
and nothing that could be taken for a whole one::

    checkpoints/step-10/            after 10 steps
    checkpoints/step-10/snapshot.json
    checkpoints/step-12.partial/    cut short: ignored, and removed when the next one is written
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from arkdev.errors import OutputError
from arkdev.runs.writer import iso_time, run_removed

CHECKPOINTS = "checkpoints"
"""The folder of a run that has its training states."""
SNAPSHOT = "snapshot.json"
SCHEMA_VERSION = 1
PARTIAL = ".partial"

_OLD = ".old"
_NAME = re.compile(r"step-(\d+)")
_PARTIAL_NAME = re.compile(rf"step-\d+({re.escape(_OLD)})?{re.escape(PARTIAL)}")
_BLOCK = 1 << 20
_NO_DIRECTORY_SYNC = (errno.EINVAL, errno.ENOTSUP)
"""What file systems say that cannot bring a folder to the disk."""


@dataclass(frozen=True)
class Snapshot:
    """One that is in place."""

    folder: Path
    step: int
    """How many steps of training made it."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What was noted of it when it was saved."""


class Snapshots:
    """The snapshots of one run in one folder. One process writes them: the run's."""

    def __init__(self, root: Path, *, run_id: str) -> None:
        self.root = root
        self._run_id = run_id

    def save(
        self, step: int, write: Callable[[Path], None], *, facts: Mapping[str, Any] | None = None
    ) -> Snapshot:
        """Save one: `write` fills the empty folder that it is given.

        Raises `OutputError` when the disk refuses; those saved before are as they were, and what
        was written of this one is removed. Also when a folder of another run has its name.
        """
        place = self.root / f"step-{step}"
        partial = place.with_name(place.name + PARTIAL)
        try:
            self.root.mkdir(exist_ok=True)  # in a run's folder, which is there
            self.remove_partial()
            self._check_free(place)
            partial.mkdir()
            write(partial)
            self._describe(partial, step=step, facts=dict(facts or {}))
            _put_in_place(partial, place)
        except OSError as error:
            shutil.rmtree(partial, ignore_errors=True)
            if not self.root.parent.exists():
                raise run_removed(self.root.parent) from error
            raise not_saved(error.strerror or str(error), place=place) from error
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        return Snapshot(place, step, dict(facts or {}))

    def all(self, problems: list[str] | None = None) -> list[Snapshot]:
        """Return this run's, the newest first, without a look at what their files hold.

        Newest by number. `problems` is told of what looks like one and is not whole.
        """
        found = []
        for folder in self._folders(_NAME):
            described = self._described(folder, problems)
            if described is not None:
                found.append(described)
        return sorted(found, key=lambda snapshot: snapshot.step, reverse=True)

    def latest_whole(self, problems: list[str] | None = None) -> Snapshot | None:
        """Return the newest whose files are all what they were when it was saved."""
        for folder in self._folders(_PARTIAL_NAME):
            if not folder.name.endswith(_OLD + PARTIAL):
                _note(problems, folder, "it was cut short while it was being saved")
        for snapshot in self.all(problems):
            damage = damage_of(snapshot.folder)
            if damage is None:
                return snapshot
            _note(problems, snapshot.folder, damage)
        return None

    def keep(self, steps: Iterable[int]) -> None:
        """Remove this run's snapshots but those of `steps`; those of other runs stay.

        Raises `OutputError`.
        """
        wanted = set(steps)
        try:
            self.remove_partial()
            for snapshot in self.all():
                if snapshot.step not in wanted:
                    shutil.rmtree(_out_of_the_way(snapshot.folder))
        except OSError as error:
            raise OutputError(
                f"what is no longer kept cannot be removed: {error.strerror}",
                where=str(error.filename or self.root),
            ) from error

    def remove_after(self, step: int) -> list[int]:
        """Remove this run's snapshots of more steps than `step`; return theirs."""
        steps = [snapshot.step for snapshot in self.all()]
        self.keep(number for number in steps if number <= step)
        return sorted(number for number in steps if number > step)

    def remove_partial(self) -> None:
        """Remove what was cut short while it was being saved or removed. Raises `OSError`."""
        for folder in self._folders(_PARTIAL_NAME):
            shutil.rmtree(folder)

    def _folders(self, name: re.Pattern[str]) -> list[Path]:
        if not self.root.is_dir():
            return []
        return [path for path in self.root.iterdir() if name.fullmatch(path.name) and path.is_dir()]

    def _described(self, folder: Path, problems: list[str] | None) -> Snapshot | None:
        try:
            document = read_description(folder)
        except (OSError, ValueError):
            _note(problems, folder, f"it has no readable {SNAPSHOT}")
            return None
        if document.get("run_id") != self._run_id:
            return None
        number = _NAME.fullmatch(folder.name)
        if number is None or document.get("step") != int(number[1]):
            _note(problems, folder, "its name is not that of its step")
            return None
        return Snapshot(folder, document["step"], document.get("facts") or {})

    def _describe(self, folder: Path, *, step: int, facts: dict[str, Any]) -> None:
        files = {}
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            files[path.relative_to(folder).as_posix()] = {
                "size": path.stat().st_size,
                "sha256": _digest(path, is_synced=True),
            }
        document = {
            "schema_version": SCHEMA_VERSION,
            "run_id": self._run_id,
            "step": step,
            "saved_at": iso_time(datetime.now(UTC)),
            "files": files,
            "facts": facts,
        }
        with (folder / SNAPSHOT).open("w", encoding="utf-8", newline="\n") as file:
            json.dump(document, file, ensure_ascii=False, allow_nan=False, indent=1)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        for inner in [folder, *(path for path in folder.rglob("*") if path.is_dir())]:
            _sync_folder(inner)

    def _check_free(self, place: Path) -> None:
        try:
            owner = read_description(place).get("run_id")
        except (OSError, ValueError):
            return  # nothing there, or nothing that can be used
        if owner != self._run_id:
            raise OutputError(
                f"{place.name} is of another run ({owner})",
                where=str(place),
                hint="move it elsewhere; arkdev removes nothing of other runs",
            )


def read_description(folder: Path) -> dict[str, Any]:
    """Return what ``snapshot.json`` says. Raises `OSError`, and `ValueError` for another form."""
    document = json.loads((folder / SNAPSHOT).read_text(encoding="utf-8"))
    if not isinstance(document, dict) or document.get("schema_version") != SCHEMA_VERSION:
        raise ValueError(f"not a {SNAPSHOT} of schema version {SCHEMA_VERSION}")
    files = document.get("files")
    if not isinstance(files, dict) or not all(
        isinstance(saved, dict) and saved.keys() >= {"size", "sha256"} for saved in files.values()
    ):
        raise ValueError("it does not say which files were saved")
    return document


def damage_of(folder: Path) -> str | None:
    """Say which file of a snapshot is not what was saved; None: it is whole. Reads all of it."""
    for name, saved in read_description(folder)["files"].items():
        path = folder / name
        try:
            if path.stat().st_size != saved["size"]:
                return f"{name} has {path.stat().st_size} bytes of {saved['size']}"
            if _digest(path) != saved["sha256"]:
                return f"{name} is not what was saved"
        except FileNotFoundError:
            return f"{name} is gone"
        except OSError as error:
            return f"{name} cannot be read: {error.strerror}"
    return None


def not_saved(reason: str, *, place: Path) -> OutputError:
    """Return the error for a snapshot that the disk would not take."""
    return OutputError(
        f"{place.name} cannot be saved: {reason}",
        where=str(place),
        hint="what was saved before is whole. Make room, then go on with --resume",
    )


def _note(problems: list[str] | None, folder: Path, reason: str) -> None:
    if problems is not None:
        problems.append(
            f"{folder.parent.name}/{folder.name} is not whole and is left out: {reason}"
        )


def _put_in_place(partial: Path, place: Path) -> None:
    """Rename; what is there already, damaged or of a part that is redone, gives way."""
    old = _out_of_the_way(place) if place.exists() else None
    partial.rename(place)
    _sync_folder(place.parent)
    if old is not None:
        shutil.rmtree(old)


def _out_of_the_way(folder: Path) -> Path:
    """Rename a snapshot that is to go: killed before it is removed, it is no snapshot any more."""
    old = folder.with_name(f"{folder.name}{_OLD}{PARTIAL}")
    folder.rename(old)
    return old


def _digest(path: Path, *, is_synced: bool = False) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        if is_synced:
            os.fsync(file.fileno())
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_DIRECTORY_SYNC:
            raise
    finally:
        os.close(descriptor)
