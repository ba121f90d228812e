"""Dataset files: JSON Lines in UTF-8, one sample a line (SURFACE X-37; field cases 6.1, 6.2, 6.6).

Reading streams: memory holds one line at a time. Line numbers are those of an editor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arkdev.errors import DataError
from arkdev.job.content_parts import SampleProblem
from arkdev.job.dataset_files import (
    FileLine,
    LineProblem,
    check_files,
    no_progress,
    scan_file,
)
from arkdev.job.invalid_records import CORRECT_HINT, DatasetWarning, InvalidRecords
from arkdev.job.json_line import JsonProblem, parse_json
from arkdev.job.paths import readable, shown_path
from arkdev.job.problems import Problem, make_error
from arkdev.job.sample import make_sample
from arkdev.types import ChatCompletionSample

_SAMPLE_HINT = 'a sample is one JSON object: {"messages": [{"role": "user", "content": "..."}]}'


@dataclass(frozen=True)
class DatasetLine:
    """One sample and where it came from."""

    path: Path | None
    """None for a sample that was given on the command line."""
    line_number: int
    """From 1, blank lines counted."""
    offset: int
    """Of the line's first byte in the file."""
    index: int
    """Number of the sample, from 0, over all files read together."""
    raw: dict[str, Any]
    """The line as it is in the file (lone surrogates replaced)."""
    sample: ChatCompletionSample
    where: str
    """file:line for messages."""
    warnings: tuple[str, ...] = ()
    file_number: int = 0
    """Place of the file among those that were read together."""


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


def read_files(
    paths: Sequence[Path],
    limit: int | None = None,
    *,
    invalid: InvalidRecords | None = None,
    on_bytes: Callable[[int], None] = no_progress,
) -> Iterator[DatasetLine]:
    """Yield the samples of several files in turn, at most `limit` of them.

    All files are looked at before the first is read. Lines with problems are passed over and go to
    `invalid`. Once reading is over, or as soon as it is of no use any more, one `DataError` tells
    what `invalid` does not tolerate (without it: any). Nothing that follows the last sample wanted
    is read. `on_bytes` is called now and then with the bytes read since the last time.
    """
    if not paths:
        raise DataError("no data files", hint="name one with --data FILE")
    paths = [Path(path) for path in paths]
    refused = check_files(paths)
    if refused:
        raise make_error(DataError, refused, hint=CORRECT_HINT)
    invalid = InvalidRecords() if invalid is None else invalid
    index = 0
    for file, item in _scan(paths, on_bytes=on_bytes):
        if isinstance(item, FileLine):
            item = parse_line(item, file, index=index)
        if isinstance(item, Problem):
            invalid.add(item)
        else:
            yield item
            index += 1
        if invalid.is_hopeless or index == limit:
            break
    invalid.check(num_samples=index)


@dataclass(frozen=True)
class DataFile:
    """A file among those that are read together; lines of the command line have none."""

    path: Path | None
    number: int
    """Its place among them, from 0."""
    shown: str
    """Its name in messages."""


def _scan(
    paths: Sequence[Path], *, on_bytes: Callable[[int], None]
) -> Iterator[tuple[DataFile, FileLine | DatasetLine | Problem]]:
    for number, path in enumerate(paths):
        file = DataFile(path, number, shown_path(path))
        for item in scan_file(path, on_bytes=on_bytes):
            yield file, item


def parse_sample(text: str, *, where: str = "--sample") -> DatasetLine:
    """Return the sample that `text`, one JSON object, holds. Raises `DataError`."""
    found = parse_line(FileLine(1, 0, readable(text)), DataFile(None, 0, where), index=0)
    if isinstance(found, Problem):
        raise make_error(DataError, [found], hint=_SAMPLE_HINT)
    return found


def parse_line(line: FileLine, file: DataFile, *, index: int) -> DatasetLine | Problem:
    """Return the sample that a line holds, or what keeps it from being one."""
    where = f"{file.shown}:{line.number}" if file.path else file.shown
    warnings: list[str] = []
    try:
        raw, was_replaced = parse_json(line.text)
        if not isinstance(raw, dict):
            return LineProblem(where, "a JSON object is expected")
        sample = make_sample(raw, warn=warnings.append)
    except JsonProblem as problem:
        return LineProblem(_json_place(problem, file, where=where), str(problem))
    except SampleProblem as problem:
        return LineProblem(where, str(problem))
    if was_replaced:
        warnings.append("half a surrogate pair is no character; it was replaced by U+FFFD")
    return DatasetLine(
        path=file.path,
        line_number=line.number,
        offset=line.offset,
        index=index,
        raw=raw,
        sample=sample,
        where=where,
        warnings=tuple(warnings),
        file_number=file.number,
    )


def _json_place(problem: JsonProblem, file: DataFile, *, where: str) -> str:
    if problem.column is None:
        return where
    # On the command line the text may have lines of its own.
    return f"{where}:{problem.column}" if file.path else f"{where}:{problem.line}:{problem.column}"
