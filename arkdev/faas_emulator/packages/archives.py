"""Tar archives whose bytes follow from their content alone: no owner, no time, no umask."""

from __future__ import annotations

import io
import tarfile
from typing import IO

FILE_MODE = 0o644
FOLDER_MODE = 0o755
_TIME = 315_532_800
"""1980-01-01, in seconds since 1970; a zip cannot say an earlier one."""


def open_archive(target: IO[bytes]) -> tarfile.TarFile:
    """Open a tar for writing; names may be any bytes, and long."""
    return tarfile.open(
        fileobj=target,
        mode="w",
        format=tarfile.PAX_FORMAT,
        encoding="utf-8",
        errors="surrogateescape",
    )


def add_file(archive: tarfile.TarFile, path: str, content: bytes) -> None:
    """Add a file with the mode and the time that all files have."""
    entry = _entry(path, mode=FILE_MODE)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))


def add_folder(archive: tarfile.TarFile, path: str) -> None:
    """Add a folder with the mode and the time that all folders have."""
    entry = _entry(path, mode=FOLDER_MODE)
    entry.type = tarfile.DIRTYPE
    archive.addfile(entry)


def _entry(path: str, *, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(path)
    entry.mode = mode
    entry.mtime = _TIME
    return entry
