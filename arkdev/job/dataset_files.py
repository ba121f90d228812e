"""The files of a dataset before their lines are read as samples (SURFACE JOB-16; field case 6.1).

What can be known without reading is checked first, for all files at once. Lines are then read one
at a time, with the byte where each begins, so that one can be read again without the others.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO, NamedTuple

from arkdev.job.data import MAX_FILE_BYTES, MAX_LOCAL_FILES
from arkdev.job.paths import readable, shown_path
from arkdev.job.problems import Problem
from arkdev.job.spelling import closest

MAX_LINE_BYTES = 64 * 1024**2
"""A longer line is no JSON Lines: it would be held in memory whole."""

UTF8_BOM = b"\xef\xbb\xbf"
_PATTERN_CHARACTERS = "*?[]"
_HEAD_BYTES = 4096
_LINES_PER_PROGRESS = 512


class FileLine(NamedTuple):
    """A line of a file that holds something."""

    number: int
    """From 1, blank lines counted."""
    offset: int
    """Of its first byte in the file."""
    text: str


class LineProblem(Problem):
    """A problem of one line; the others can still be read. A plain `Problem` is of the file."""


def no_progress(_num_bytes: int) -> None:
    """Tell nobody how many bytes were read."""


def check_files(paths: Sequence[Path]) -> list[Problem]:
    """Return what keeps files from being read, told by their names and sizes alone."""
    problems = [problem for path in paths if (problem := _file_problem(path))]
    if len(paths) > MAX_LOCAL_FILES:
        problems.insert(
            0,
            Problem(
                shown_path(paths[MAX_LOCAL_FILES]),
                f"{len(paths)} files in one set, at most {MAX_LOCAL_FILES} are allowed; join some",
            ),
        )
    return problems


def _file_problem(path: Path) -> Problem | None:
    shown = shown_path(path)
    if any(character in str(path) for character in _PATTERN_CHARACTERS):
        return Problem(shown, f"a path must not hold any of {' '.join(_PATTERN_CHARACTERS)}")
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return Problem(shown, f"there is no such data file{_near_file(path)}")
    except OSError as error:
        return Problem(shown, f"the file cannot be read: {error.strerror}")
    if stat.S_ISDIR(status.st_mode):
        return Problem(shown, "this is a folder; name the files in it")
    if not stat.S_ISREG(status.st_mode):  # a pipe that nobody writes to is waited for
        return Problem(shown, "this is a pipe or a device, not a file; write its data to a file")
    if status.st_size > MAX_FILE_BYTES:
        gigabytes = status.st_size / 1024**3
        return Problem(shown, f"the file has {gigabytes:.2f} GB, at most 2 are allowed; split it")
    return None


def _near_file(path: Path) -> str:
    try:
        names = [readable(sibling.name) for sibling in path.parent.iterdir()]
    except OSError:
        return f"; there is no folder {shown_path(path.parent)} either"
    match = closest(readable(path.name), names)
    return f"; did you mean {match!r}?" if match else ""


def scan_file(
    path: Path, *, on_bytes: Callable[[int], None] = no_progress
) -> Iterator[FileLine | Problem]:
    """Yield the lines of a file that are not blank, and what keeps lines or the file from it.

    `on_bytes` is called now and then with the bytes read since the last time.
    """
    shown = shown_path(path)
    try:
        with path.open("rb") as file:
            yield from _scan(file, shown=shown, on_bytes=on_bytes)
    except OSError as error:
        yield Problem(shown, f"the file cannot be read: {error.strerror}")


def _scan(
    file: BinaryIO, *, shown: str, on_bytes: Callable[[int], None]
) -> Iterator[FileLine | Problem]:
    head = file.read(_HEAD_BYTES).removeprefix(UTF8_BOM)
    refused = _refusal_of_file(head)
    if refused:
        yield Problem(f"{shown}:1" if head else shown, refused)
        return
    file.seek(0, os.SEEK_SET)
    is_empty, has_utf8 = True, False
    offset = told = 0
    for number, data in enumerate(iter(partial(file.readline, MAX_LINE_BYTES), b""), start=1):
        if len(data) == MAX_LINE_BYTES:
            limit = f"{MAX_LINE_BYTES // 1024**2} MB"
            yield Problem(f"{shown}:{number}", f"longer than {limit}; write one JSON object a line")
            return
        try:
            text = line_text(data, offset=offset)
        except UnicodeDecodeError as error:
            at = offset + error.start
            message = f"not UTF-8 text (byte {at} of the file, from 0); save it as UTF-8"
            if not has_utf8:  # nothing but ASCII so far: the whole file is in another encoding
                yield Problem(f"{shown}:{number}", message)
                return
            is_empty = False
            yield LineProblem(f"{shown}:{number}", message)
        else:
            has_utf8 = has_utf8 or not text.isascii()
            if text and not text.isspace():
                is_empty = False
                yield FileLine(number, offset, text)
        offset += len(data)
        if number % _LINES_PER_PROGRESS == 0:
            on_bytes(offset - told)
            told = offset
    on_bytes(offset - told)
    if is_empty:
        yield Problem(shown, "the file has no samples")


def line_text(data: bytes, *, offset: int) -> str:
    """Return the text of a line that begins at byte `offset` of its file.

    Raises `UnicodeDecodeError`; its `start` counts from the line's first byte.
    """
    text = data.decode("utf-8").rstrip("\r\n")
    return text.removeprefix("\ufeff") if offset == 0 else text


def _refusal_of_file(head: bytes) -> str:
    """Say what makes a whole file unreadable, by its first bytes; "" when nothing does."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\x00" in head:
        return "the file looks like UTF-16 or UTF-32 text; save it as UTF-8"
    if head.lstrip().startswith(b"["):
        return "the file is a JSON array; write one JSON object a line (JSON Lines)"
    return ""
