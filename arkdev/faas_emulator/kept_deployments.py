"""Deployments that `arkdev faas up` keeps: what is known of them on disk, per user.

::

    faas/ID/owner.txt    whose process makes it
    faas/ID/state.json   what it is, where it listens, whose process it is; written once it is up
    faas/ID/log.jsonl    a line for each line of its functions; before it log.1.jsonl
    faas/ID/output.txt   what a detached one said

The process that serves owns its folder and removes it at its end. A folder whose process is gone is
of one that was killed.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from arkdev.errors import OutputError, UsageError
from arkdev.faas_emulator.engines.owners import is_gone, is_here, read_owner, this_process
from arkdev.runs.lines import LineFile

OWNER_FILE = "owner.txt"
STATE_FILE = "state.json"
LOG_FILE = "log.jsonl"
OLDER_LOG_FILE = "log.1.jsonl"
OUTPUT_FILE = "output.txt"
MAX_LOG_BYTES = 32 * 2**20
"""Of each of the two log files."""
_HALF_MADE_S = 3600.0
"""A folder of this age that says nothing of an owner is nobody's."""
_ID = re.compile(r"[0-9a-z]{1,16}")


@dataclass(frozen=True)
class KeptFunction:
    """One function of a deployment."""

    name: str
    reference: str
    kind: str
    url: str
    """Where it is called."""


@dataclass(frozen=True)
class KeptDeployment:
    """A deployment that is up."""

    id: str
    owner: str
    """`owners.Owner` as text: the process that serves."""
    workspace: str
    url: str
    """Of the front door."""
    engine: str
    """``container`` or ``process``."""
    network: str
    endpoint: str
    """Where calls to Ark go; empty: to Ark."""
    started_at: str
    """ISO 8601, UTC."""
    functions: tuple[KeptFunction, ...]

    @property
    def pid(self) -> int:
        """The process that serves."""
        owner = read_owner(self.owner)
        return owner.pid if owner else 0

    @property
    def is_here(self) -> bool:
        """False for one of another machine, or of a container on this one: it is ended there."""
        owner = read_owner(self.owner)
        return owner is not None and is_here(owner)

    @property
    def is_up(self) -> bool:
        """False once its process has surely ended."""
        owner = read_owner(self.owner)
        return owner is not None and not is_gone(owner)


class KeptDeployments:
    """All of a user; `state` is the user's state folder."""

    def __init__(self, state: Path) -> None:
        self.folder = state / "faas"

    def make_folder(self, given: str = "") -> tuple[str, Path]:
        """Make the folder of a new deployment of this process; return its id.

        With an id that is given, the process that made the folder hands it over to this one.
        Raises `OutputError`.
        """
        name = given or secrets.token_hex(3)
        if not _ID.fullmatch(name):
            raise UsageError(f"{name!r} is no id of a deployment")
        folder = self.folder / name
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=bool(given))
            _replace(folder / OWNER_FILE, owner_here())
        except OSError as error:
            raise OutputError(
                f"the deployment's folder cannot be made: {error.strerror}", where=str(folder)
            ) from error
        return name, folder

    def write(self, deployment: KeptDeployment) -> None:
        """Note that a deployment is up. Raises `OutputError`."""
        path = self.folder / deployment.id / STATE_FILE
        try:
            _replace(path, json.dumps(asdict(deployment), indent=1))
        except OSError as error:
            raise OutputError(
                f"the deployment cannot be noted: {error.strerror}", where=str(path)
            ) from error

    def remove(self, deployment_id: str) -> None:
        """Remove all that is known of one. Idempotent."""
        folder = self.folder / deployment_id
        # first: whoever waits for the end waits for this
        (folder / STATE_FILE).unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)

    def find(self, deployment_id: str) -> KeptDeployment | None:
        """Return one whose state is there, whether its process still is or not."""
        try:
            text = (self.folder / deployment_id / STATE_FILE).read_text(encoding="utf-8")
            fields: dict[str, Any] = json.loads(text)
            functions = tuple(KeptFunction(**each) for each in fields.pop("functions"))
            return KeptDeployment(**fields, functions=functions)
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def all(self) -> list[KeptDeployment]:
        """Return those that are up, the oldest first."""
        found = [self.find(folder.name) for folder in self._folders()]
        up = (each for each in found if each and each.is_up)
        return sorted(up, key=lambda each: each.started_at)

    def left_behind(self) -> dict[str, KeptDeployment | None]:
        """Return what killed processes left here, by the ids of their deployments.

        None: it was killed before it was up.
        """
        left = {}
        for folder in self._folders():
            deployment = self.find(folder.name)
            if not deployment.is_up if deployment else _is_given_up(folder):
                left[folder.name] = deployment
        return left

    def _folders(self) -> Iterator[Path]:
        return iter(sorted(self.folder.iterdir())) if self.folder.is_dir() else iter(())


def owner_here() -> str:
    """Return this process as the owner of a deployment."""
    return str(this_process())


def _is_given_up(folder: Path) -> bool:
    """Whether the process that was making a deployment has ended."""
    try:
        owner = read_owner((folder / OWNER_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        owner = None
    if owner is not None:
        return is_gone(owner)
    try:
        return time.time() - folder.stat().st_mtime > _HALF_MADE_S
    except OSError:
        return False  # removed meanwhile


def _replace(path: Path, text: str) -> None:
    """Write a file so that whoever reads it sees all of it or nothing."""
    half = path.with_suffix(".partial")
    half.write_text(text, encoding="utf-8")
    half.replace(path)


class DeploymentLog:
    """Writes the log of a deployment: whole lines of JSON, of bounded size. From any thread."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOG_FILE
        self._older = folder / OLDER_LOG_FILE
        self._file = LineFile(self._path)
        self._size = 0
        self._num_lost = 0
        self._lock = threading.Lock()

    def add(self, fields: dict[str, Any]) -> None:
        """Append one line.

        A disk that is full must not fail the plugin: what is lost so is told in the log afterwards.
        """
        with self._lock:
            try:
                if self._num_lost:
                    text = f"lines that could not be written: {self._num_lost}"
                    told = {"function": "-", "request_id": "", "level": "ERROR", "logger": "arkdev"}
                    self._append({**fields, **told, "text": text})
                    self._num_lost = 0
                self._append(fields)
            except OSError:
                self._num_lost += 1

    def _append(self, fields: dict[str, Any]) -> None:
        line = json.dumps(fields).encode("ascii") + b"\n"
        if self._size + len(line) > MAX_LOG_BYTES:
            self._file.close()
            self._path.replace(self._older)
            self._size = 0
        self._file.append(line)
        self._size += len(line)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class LogReader:
    """Reads a deployment's log, from its beginning and on as it grows."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOG_FILE
        self._older = folder / OLDER_LOG_FILE
        self._offset = 0
        self._inode = 0
        self._is_first = True

    def new_lines(self) -> list[dict[str, Any]]:
        """Return what was written since the last look; a line that is not whole yet waits."""
        found = []
        if self._is_first:
            self._is_first = False
            found += _lines(_read(self._older, 0)[0])[0]
        data, inode = _read(self._path, self._offset)
        if inode != self._inode:  # a new file: the rest of the old one first
            if self._inode:
                found += _lines(_read(self._older, self._offset)[0])[0]
            self._inode, self._offset = inode, 0
            data, _ = _read(self._path, 0)
        lines, size = _lines(data)
        self._offset += size
        return found + lines


def _read(path: Path, offset: int) -> tuple[bytes, int]:
    try:
        with path.open("rb") as file:
            inode = path.stat().st_ino
            file.seek(offset)
            return file.read(), inode
    except OSError:
        return b"", 0


def _lines(data: bytes) -> tuple[list[dict[str, Any]], int]:
    whole, separator, _ = data.rpartition(b"\n")
    found = []
    for line in whole.split(b"\n"):
        with contextlib.suppress(ValueError):  # cut short by a full disk, which the log tells
            found.append(json.loads(line))
    return found, len(whole) + len(separator)
