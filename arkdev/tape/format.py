"""A tape file: JSON lines, each with its ``kind`` (docs/tape.md has the fields).

The first line is the header. Lines of one attempt say whose they are: ``of`` is the trajectory's
id, with the grader's name when it is being graded, ``attempt`` counts from 0; both are missing for
what belongs to no attempt, such as a clock read while a plugin is imported.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from arkdev.errors import OutputError, TapeError, UsageError
from arkdev.runs.lines import LineFile
from arkdev.tape.shape import problem_of, problem_of_header

SCHEMA_VERSION = 1

HEADER = "header"
SAMPLE = "sample"
ATTEMPT = "attempt"
TIMEOUT = "timeout"
GROUP = "group"
CLOCK = "clock"
MODEL = "model"
HTTP = "http"
MCP = "mcp"
EXCHANGES = (MODEL, HTTP, MCP)
"""Kinds of lines that hold a request and what came of it."""

CANCELLED = "cancelled"
"""Outcome of a request that the plugin gave up, or whose time was over."""

Line = dict[str, Any]
StreamKey = tuple[str, int]
"""Whose lines: the attempt's name and number."""

SHARED: StreamKey = ("", 0)
"""What belongs to no attempt."""


@dataclass(frozen=True)
class TapeHeader:
    """What a tape was recorded from."""

    arkdev: str
    """The version that wrote it."""
    recorded_at: str
    """UTC, as in run folders."""
    seed: int
    """Of the attempts' random numbers."""
    settings: dict[str, Any]
    """As in the run's manifest."""
    flags: dict[str, Any]
    """What the command line set."""
    hashes: dict[str, str]
    """SHA-256 of the workspace's files, the data and the job file."""
    judge_url: str | None = None
    """ARK_BASE_URL as the plugins saw it."""
    is_judge_scripted: bool = False
    """Calls to Ark's public hosts went to `judge_url`."""
    hash_seed: str | None = None
    """PYTHONHASHSEED, on which the order of a set of texts hangs; None: it was not known."""
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True)
class Tape:
    """A tape that was read."""

    path: Path
    header: TapeHeader
    samples: tuple[Line, ...]
    """In dataset order; only those whose group came to its end."""
    num_unfinished: int
    """Samples that had begun when the recording was cut short; they are left out."""
    streams: Mapping[StreamKey, tuple[Line, ...]] = field(default_factory=dict)
    """The lines of each attempt, in the order in which they were written."""


class TapeWriter:
    """Appends whole lines; a process killed at any moment leaves at most one torn line, the last.

    Use it from any thread. What the disk refuses is kept for `check`: it must not fail a plugin.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = LineFile(path)
        self._problem: OSError | None = None
        self._claimed: int | None = None

    def claim(self) -> None:
        """Make the file this writer's own; raises `UsageError` when another one is writing it."""
        try:
            self._claimed = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            self._problem = error
            self.check()
            return
        try:
            fcntl.flock(self._claimed, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise _taken(self.path) from error
        except OSError:  # some network file systems have no locks
            pass
        if os.fstat(self._claimed).st_size > 0:
            raise _taken(self.path)

    def write(self, line: Line) -> None:
        """Append one line."""
        try:
            self._file.append(encoded_line(line))
        except OSError as error:
            self._problem = self._problem or error

    def check(self) -> None:
        """Raise `OutputError` when a line could not be written."""
        if self._problem is not None:
            raise OutputError(
                f"the tape cannot be written any more: {self._problem.strerror or self._problem}",
                where=str(self.path),
                hint="make room, or record into another place",
            ) from self._problem

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        if self._claimed is not None:
            os.close(self._claimed)
            self._claimed = None


def header_line(header: TapeHeader) -> Line:
    """Return the first line of a tape."""
    return {"kind": HEADER, **asdict(header)}


def encoded_line(line: Line) -> bytes:
    """Return one line of a tape with its newline."""
    text = json.dumps(line, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError:  # half a character, which only an escape can hold
        return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def check_free(path: Path) -> None:
    """Raise `UsageError` unless a tape can be recorded into `path`."""
    try:
        is_taken = path.exists() and (not path.is_file() or path.stat().st_size > 0)
        has_folder = path.absolute().parent.is_dir()
    except OSError as error:
        raise UsageError(f"--record {path}: {error.strerror}") from error
    if is_taken:
        raise _taken(path)
    if not has_folder:
        raise UsageError(
            f"--record {path}: there is no folder {path.absolute().parent}",
            hint="make it first, or name a file elsewhere",
        )


def _taken(path: Path) -> UsageError:
    return UsageError(
        f"--record {path}: this is there already, and a tape holds one run",
        hint="name a new file, or delete this one first",
    )


def read_tape(path: Path) -> Tape:
    """Read a tape whole. Raises `TapeError` when it is none, or of another schema version."""
    lines = _lines(path)
    header = _header(next(lines, (1, None))[1], path)
    samples: dict[int, Line] = {}
    finished: set[int] = set()
    streams: dict[StreamKey, list[Line]] = {}
    for number, line in lines:
        problem = problem_of(line)
        if line["kind"] == HEADER:
            problem = "there is a second header: two recordings wrote into this file"
        if problem is not None:
            raise _no_line(problem, path, number)
        if line["kind"] == SAMPLE:
            samples[line["index"]] = line
        elif line["kind"] == GROUP:
            finished.add(line["sample_index"])
        else:
            key = (line.get("of", ""), line.get("attempt", 0))
            streams.setdefault(key, []).append(line)
    return Tape(
        path=path,
        header=header,
        samples=tuple(line for index, line in sorted(samples.items()) if index in finished),
        num_unfinished=len(samples.keys() - finished),
        streams={key: tuple(stream) for key, stream in streams.items()},
    )


def _lines(path: Path) -> Iterator[tuple[int, Line]]:
    """Yield lines with their numbers."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TapeError(
            f"the tape cannot be read: {error.strerror}",
            where=str(path),
            hint="record one with `arkdev test plugin --record FILE`",
        ) from error
    whole = data.split(b"\n")[:-1]  # what follows the last newline was cut short
    for number, text in enumerate(whole, start=1):
        if not text:  # after a line that was cut short
            continue
        try:
            line = json.loads(text)
        except ValueError:
            line = None
        if isinstance(line, dict) and "kind" in line:
            yield number, line
        elif number == 1 or not _is_torn(text):
            raise _no_line("", path, number)


def _no_line(problem: str, path: Path, number: int) -> TapeError:
    return TapeError(
        "this is no line of a tape" + (f": {problem}" if problem else ""),
        where=f"{path}:{number}",
        hint="record it anew with `arkdev test plugin --record FILE`",
    )


def _is_torn(text: bytes) -> bool:
    """Tell whether a line is the beginning of one: the disk was full, or the process killed."""
    return text.startswith(b'{"kind":') and not text.endswith(b"}")


def _header(line: Line | None, path: Path) -> TapeHeader:
    if line is None or line["kind"] != HEADER:
        raise TapeError(
            "this is no tape: its first line is no header",
            where=str(path),
            hint="record one with `arkdev test plugin --record FILE`",
        )
    version = line.get("schema_version")
    if version != SCHEMA_VERSION:
        raise TapeError(
            f"the tape has schema version {version}, of arkdev {line.get('arkdev')}; this arkdev "
            f"reads version {SCHEMA_VERSION}",
            where=str(path),
            hint="replay it with the arkdev that recorded it, or record it anew",
        )
    problem = problem_of_header(line)
    if problem is not None:
        raise _no_line(problem, path, 1)
    try:
        return TapeHeader(**{name: value for name, value in line.items() if name != "kind"})
    except TypeError as error:
        raise _no_line(f"a header of other fields: {error}", path, 1) from error
