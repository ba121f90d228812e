"""The temporary folder of a deployment whose instances are child processes.

It holds the plugin's package, which all instances read, and a home for each. Whoever made it holds
a lock on it, so that the folders of a deployment that was killed are found and removed by the next.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Protocol

_PREFIX = "arkdev-function-"
_LOCK = "lock"
_WRITABLE = 0o222


class PackageFiles(Protocol):
    """The files of a plugin's package."""

    def write_to(self, folder: Path, /) -> object:
        """Write them below `folder`."""
        ...


class FunctionFolder:
    """Unpacks a package, so that nobody writes to it by accident, until `remove`."""

    def __init__(self, package: PackageFiles) -> None:
        remove_left_folders()
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        free = self.path / "free"
        self._lock = os.open(free, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        free.rename(self.path / _LOCK)  # under this name it is never seen without its lock
        self.package = self.path / "package"
        self.package.mkdir()
        try:
            package.write_to(self.package)
            for path in [self.package, *self.package.rglob("*")]:
                if not path.is_symlink():
                    path.chmod(path.stat().st_mode & ~_WRITABLE)
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        """Remove it with all that is in it."""
        remove_folder(self.path)
        os.close(self._lock)


def remove_folder(folder: Path) -> None:
    """Remove a folder, also what is read-only in it."""
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir() and not path.is_symlink():
            with suppress(OSError):
                path.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)


def remove_left_folders() -> None:
    """Remove the folders of deployments that were killed: nobody holds their locks."""
    for lock in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_LOCK}"):
        if lock.parent.is_symlink():
            continue  # none of ours
        with suppress(OSError):  # somebody else's, or gone meanwhile
            descriptor = os.open(lock, os.O_RDWR)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_folder(lock.parent)
            finally:
                os.close(descriptor)
