"""Dataset files: JSON Lines in UTF-8, one sample a line (SURFACE X-37; field cases 6.1, 6.2, 6.6).

Reading streams: memory holds one line at a time. Line numbers are those of an editor.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from arkdev.errors import DataError
from arkdev.job.json_line import JsonProblem, parse_json
from arkdev.job.paths import readable, shown_path
from arkdev.job.problems import Problem, make_error
from arkdev.job.sample import SampleProblem, make_sample
from arkdev.job.spelling import closest
from arkdev.types import ChatCompletionSample

MAX_PROBLEMS = 20
"""After so many problems reading stops and tells them."""

_UTF8_BOM = b"\xef\xbb\xbf"
_PATTERN_CHARACTERS = "*?[]"
_HEAD_BYTES = 4096
_SAMPLE_HINT = 'a sample is one JSON object: {"messages": [{"role": "user", "content": "..."}]}'


@dataclass(frozen=True)
class DatasetWarning:
    """Something accepted that may not be meant. `where` is file:line of the first time."""

    where: str
    message: str
    count: int = 1
    """Lines with the same warning."""

    def __str__(self) -> str:
        again = f" ({self.count} lines)" if self.count > 1 else ""
        return f"{self.where}: {self.message}{again}"


@dataclass(frozen=True)
class DatasetLine:
    """One sample and where it came from."""

    path: Path | None
    """None for a sample that was given on the command line."""
    line_number: int
    """From 1, blank lines counted."""
    index: int
    """Number of the sample, from 0, over all files read together."""
    raw: dict[str, Any]
    """The line as it is in the file (lone surrogates replaced)."""
    sample: ChatCompletionSample
    where: str
    """file:line for messages."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Dataset:
    """All samples of some files, and what is odd about them."""

    samples: tuple[DatasetLine, ...]
    warnings: tuple[DatasetWarning, ...]


def load_dataset(paths: Sequence[Path], *, limit: int | None = None) -> Dataset:
    """Return the samples of `paths`, at most `limit`. Raises `DataError` with every problem."""
    samples = tuple(read_files(paths, limit=limit))
    return Dataset(samples=samples, warnings=tuple(summarised_warnings(samples)))


def summarised_warnings(lines: Iterable[DatasetLine]) -> list[DatasetWarning]:
    """Return each different warning of a file once, with its first line and its count."""
    first: dict[tuple[Path | None, str], str] = {}
    counts: dict[tuple[Path | None, str], int] = {}
    for line in lines:
        for message in line.warnings:
            key = (line.path, message)
            first.setdefault(key, line.where)
            counts[key] = counts.get(key, 0) + 1
    return [DatasetWarning(where, key[1], counts[key]) for key, where in first.items()]


def read_samples(path: Path) -> Iterator[DatasetLine]:
    """Yield the samples of one file. Raises `DataError` at the end, or at 20 problems."""
    return read_files([path])


def read_files(paths: Sequence[Path], limit: int | None = None) -> Iterator[DatasetLine]:
    """Yield the samples of several files in turn, at most `limit` of them.

    Lines with problems are passed over; once reading is over, or has met 20 of them, one
    `DataError` tells them all. Nothing that follows the last sample wanted is read.
    """
    if not paths:
        raise DataError("no data files", hint="name one with --data FILE")
    problems: list[Problem] = []
    index = 0
    for item in chain.from_iterable(_scan(Path(path)) for path in paths):
        if isinstance(item, Problem):
            problems.append(item)
        else:
            yield replace(item, index=index)
            index += 1
        if len(problems) >= MAX_PROBLEMS or index == limit:
            break
    if problems:
        hint = "nothing was run; correct the file and try again"
        if len(problems) >= MAX_PROBLEMS:
            hint = f"reading stopped at {MAX_PROBLEMS} problems, there may be more; {hint}"
        raise make_error(DataError, problems, hint=hint)


def parse_sample(text: str, *, where: str = "--sample") -> DatasetLine:
    """Return the sample that `text`, one JSON object, holds. Raises `DataError`."""
    found = _parse_line(readable(text), path=None, line_number=1, where=where)
    if isinstance(found, Problem):
        raise make_error(DataError, [found], hint=_SAMPLE_HINT)
    return found


def _scan(path: Path) -> Iterator[DatasetLine | Problem]:
    """Yield what is on each line of a file: a sample, or what keeps it from being one."""
    shown = shown_path(path)
    if any(character in str(path) for character in _PATTERN_CHARACTERS):
        yield Problem(shown, f"a path must not hold any of {' '.join(_PATTERN_CHARACTERS)}")
        return
    if path.is_dir():
        yield Problem(shown, "this is a folder; name the files in it")
        return
    try:
        with path.open("rb") as file:
            yield from _scan_lines(file, path=path, shown=shown)
    except FileNotFoundError:
        yield Problem(shown, f"there is no such data file{_near_file(path)}")
    except OSError as error:
        yield Problem(shown, f"the file cannot be read: {error.strerror}")


def _scan_lines(file: BinaryIO, *, path: Path, shown: str) -> Iterator[DatasetLine | Problem]:
    head = file.read(_HEAD_BYTES).removeprefix(_UTF8_BOM)
    refused = _refusal_of_file(head)
    if refused:
        yield Problem(f"{shown}:1" if head else shown, refused)
        return
    file.seek(0, os.SEEK_SET)
    is_empty = True
    offset = 0
    for line_number, data in enumerate(file, start=1):
        body = data.removeprefix(_UTF8_BOM) if line_number == 1 else data
        where = f"{shown}:{line_number}"
        try:
            text = body.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            at = offset + len(data) - len(body) + error.start
            yield Problem(
                where, f"not UTF-8 text (byte {at} of the file, from 0); save it as UTF-8"
            )
            return
        offset += len(data)
        if text.strip():
            is_empty = False
            yield _parse_line(text, path=path, line_number=line_number, where=where)
    if is_empty:
        yield Problem(shown, "the file has no samples")


def _near_file(path: Path) -> str:
    try:
        names = [readable(sibling.name) for sibling in path.parent.iterdir()]
    except OSError:
        return f"; there is no folder {shown_path(path.parent)} either"
    match = closest(readable(path.name), names)
    return f"; did you mean {match!r}?" if match else ""


def _refusal_of_file(head: bytes) -> str:
    """Say what makes a whole file unreadable, by its first bytes; "" when nothing does."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\x00" in head:
        return "the file looks like UTF-16 or UTF-32 text; save it as UTF-8"
    if head.lstrip().startswith(b"["):
        return "the file is a JSON array; write one JSON object a line (JSON Lines)"
    return ""


def _parse_line(
    text: str, *, path: Path | None, line_number: int, where: str
) -> DatasetLine | Problem:
    warnings: list[str] = []
    try:
        raw, was_replaced = parse_json(text)
        if not isinstance(raw, dict):
            return Problem(where, "a JSON object is expected")
        sample = make_sample(raw, warn=warnings.append)
    except JsonProblem as problem:
        return Problem(_json_place(problem, path=path, where=where), str(problem))
    except SampleProblem as problem:
        return Problem(where, str(problem))
    if was_replaced:
        warnings.append("half a surrogate pair is no character; it was replaced by U+FFFD")
    return DatasetLine(
        path=path,
        line_number=line_number,
        index=0,
        raw=raw,
        sample=sample,
        where=where,
        warnings=tuple(warnings),
    )


def _json_place(problem: JsonProblem, *, path: Path | None, where: str) -> str:
    if problem.column is None:
        return where
    # On the command line the text may have lines of its own.
    return f"{where}:{problem.column}" if path else f"{where}:{problem.line}:{problem.column}"
