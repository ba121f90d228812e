"""A recorded run group by group, with everything that its graders were given.

Memory holds where each line begins, and one group.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

from pydantic_core import from_json

from arkdev.errors import RunError
from arkdev.runs.reader import RunReader
from arkdev.runs.rebuilding import built, no_record
from arkdev.runs.records import GroupRecord, SampleRecord, TokenRecord, TrajectoryRecord
from arkdev.runs.writer import GROUPS, SAMPLES, TOKENS, TRAJECTORIES


@dataclass(frozen=True)
class RecordedTrajectory:
    """One trajectory; the lines are those of its files, whole."""

    record: TrajectoryRecord
    tokens: TokenRecord | None
    line: bytes
    tokens_line: bytes | None


@dataclass(frozen=True)
class RecordedGroup:
    """One group that the run finished; the trajectories stand in the order of its record."""

    record: GroupRecord
    sample: dict[str, Any]
    sample_line: bytes
    trajectories: tuple[RecordedTrajectory, ...]


class RecordedGroups:
    """The finished groups of a run, in the order in which they were graded.

    `num_left_out` counts the groups read so far of which a line is missing or was cut short.
    """

    def __init__(self, reader: RunReader, *, limit: int | None = None) -> None:
        """Raises `RunError` when the run keeps no samples or has no finished group."""
        self._reader = reader
        self.num_left_out = 0
        num_groups = _num_lines(reader.folder / GROUPS)
        self.num_groups = num_groups if limit is None else min(limit, num_groups)
        run_id = reader.manifest.run_id
        if not num_groups:
            raise RunError(
                f"run {run_id} has no finished group", hint="there is nothing to grade again"
            )
        if not (reader.folder / SAMPLES).is_file():
            raise RunError(
                f"run {run_id} does not hold its samples: an earlier arkdev wrote it",
                where=str(reader.folder),
                hint="run the test again; from then on its run can be graded again",
            )

    def __iter__(self) -> Iterator[RecordedGroup]:
        """Read the groups. Raises `RunError` for a line that something else has changed."""
        folder = self._reader.folder
        with ExitStack() as files:
            samples = files.enter_context(_Lines(folder / SAMPLES, key="sample_index"))
            trajectories = files.enter_context(_Lines(folder / TRAJECTORIES, key="trajectory_id"))
            tokens = files.enter_context(_Lines(folder / TOKENS, key="trajectory_id"))
            for number, record in enumerate(self._reader.groups()):
                if number == self.num_groups:
                    break
                try:
                    sample_line = samples.read(record.sample_index)
                    sample = built(SampleRecord, from_json(sample_line)).sample
                    members = tuple(
                        _trajectory(trajectories.read(name), tokens.find(name))
                        for name in record.trajectory_ids
                    )
                except (LookupError, ValueError):  # never written, or cut short
                    self.num_left_out += 1
                    continue
                except (TypeError, AttributeError) as error:
                    where = f"{folder}: group of sample {record.sample_index}"
                    raise no_record(TrajectoryRecord, error, where=where) from error
                yield RecordedGroup(record, sample, sample_line, members)


def _trajectory(line: bytes, tokens_line: bytes | None) -> RecordedTrajectory:
    return RecordedTrajectory(
        record=built(TrajectoryRecord, from_json(line)),
        tokens=built(TokenRecord, from_json(tokens_line)) if tokens_line else None,
        line=line,
        tokens_line=tokens_line,
    )


class _Lines:
    """The lines of a file by the value of a field, which each of them begins with."""

    def __init__(self, path: Path, *, key: str) -> None:
        self._path = path
        self._head = re.compile(rb'\{\s*"%b"\s*:\s*("[^"\\]*"|\d+)' % key.encode())
        self._offsets: dict[bytes, int] = {}

    def __enter__(self) -> _Lines:
        """Open the file, and note where each line begins. A missing file has no lines."""
        self._file: BinaryIO = self._path.open("rb") if self._path.is_file() else BytesIO()
        offset = 0
        for line in self._file:
            head = self._head.match(line)
            if head:
                self._offsets[head[1]] = offset
            offset += len(line)
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, value: str | int) -> bytes:
        """Return the line of `value`. Raises `LookupError` when there is none."""
        self._file.seek(self._offsets[json.dumps(value).encode()])
        return self._file.readline()

    def find(self, value: str) -> bytes | None:
        """Return the line of `value`, None when there is none."""
        return self.read(value) if json.dumps(value).encode() in self._offsets else None


def _num_lines(path: Path) -> int:
    try:
        with path.open("rb") as file:
            return sum(1 for line in file if line.endswith(b"\n"))
    except FileNotFoundError:
        return 0
