"""Samples of big files by their number: where each line begins is kept, the lines are not.

The index is built by the reading that checks the files, and holds 8 bytes a sample (and 8 for each
line that was passed over).
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import overload

from arkdev.errors import DataError
from arkdev.job.dataset import DataFile, DatasetLine, parse_line
from arkdev.job.dataset_files import MAX_LINE_BYTES, FileLine, line_text
from arkdev.job.paths import shown_path
from arkdev.job.problems import Problem


@dataclass
class _File:
    file: DataFile
    first_index: int
    """Number of its first sample."""
    stamp: tuple[int, int]
    """Size and time of change while it was indexed."""
    offsets: array[int] = field(default_factory=lambda: array("Q"))
    skipped: array[int] = field(default_factory=lambda: array("Q"))
    """For each line that is no sample: the samples of the file before it."""

    def add(self, line: DatasetLine) -> None:
        place = len(self.offsets)
        num_skipped = line.line_number - 1 - place - len(self.skipped)
        if num_skipped:
            self.skipped.extend([place] * num_skipped)
        self.offsets.append(line.offset)

    def line_number(self, place: int) -> int:
        return place + 1 + bisect_right(self.skipped, place)


class IndexedDataset:
    """All samples of some files, each read when it is asked for.

    Made of the lines that `read_files` yields: going through them checks all files.
    """

    def __init__(self, lines: Iterable[DatasetLine]) -> None:
        """Raises what reading `lines` raises."""
        self._files: list[_File] = []
        self._starts: list[int] = []
        self._size = 0
        for line in lines:
            if line.path is None or line.index != self._size:
                raise ValueError("the lines of one reading of files are expected, in its order")
            if not self._files or self._files[-1].file.number != line.file_number:
                self._begin(DataFile(line.path, line.file_number, shown_path(line.path)))
            self._files[-1].add(line)
            self._size += 1

    def _begin(self, file: DataFile) -> None:
        self._files.append(_File(file, self._size, _stamp(file)))
        self._starts.append(self._size)

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> DatasetLine:
        """Read sample `index` again. Raises `DataError` when its file is not what it was."""
        indexed, place = self._find(index)
        file, offset = indexed.file, indexed.offsets[place]
        where = self.where(index)
        try:
            if _stamp(file) != indexed.stamp:
                raise _changed(where)
            with open(file.path or "", "rb") as data:
                data.seek(offset)
                text = line_text(data.readline(MAX_LINE_BYTES), offset=offset)
        except (OSError, UnicodeDecodeError) as error:
            raise _changed(where) from error
        line = FileLine(indexed.line_number(place), offset, text)
        found = parse_line(line, file, index=index)
        if isinstance(found, Problem):
            raise _changed(where)
        return found

    def num_of_file(self, number: int) -> int:
        """Return how many samples the file at place `number` of the reading has."""
        return sum(len(file.offsets) for file in self._files if file.file.number == number)

    def where(self, index: int) -> str:
        """Return file:line of sample `index`, without reading it."""
        file, place = self._find(index)
        return f"{file.file.shown}:{file.line_number(place)}"

    def _find(self, index: int) -> tuple[_File, int]:
        if not 0 <= index < self._size:
            raise IndexError(f"there is no sample {index}; the data has {self._size}")
        file = self._files[bisect_right(self._starts, index) - 1]
        return file, index - file.first_index


def _stamp(file: DataFile) -> tuple[int, int]:
    status = os.stat(file.path or "")
    return status.st_size, status.st_mtime_ns


def _changed(where: str) -> DataError:
    return DataError(
        "the data file is no longer what it was when it was checked",
        where=where,
        hint="leave data files alone while a command runs on them; start it again",
    )


class SampleSet(Sequence[DatasetLine]):
    """Samples picked from a dataset, in the order of the pick; one may be there several times."""

    def __init__(self, dataset: IndexedDataset, picked: Sequence[int]) -> None:
        self._dataset = dataset
        self.picked = picked
        """Number in the dataset of each sample of the set."""

    def __len__(self) -> int:
        return len(self.picked)

    @overload
    def __getitem__(self, index: int) -> DatasetLine: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[DatasetLine]: ...
    def __getitem__(self, index: int | slice) -> DatasetLine | Sequence[DatasetLine]:
        """Read the sample at `index` of the set; its own `index` is that of the dataset."""
        if isinstance(index, slice):
            return SampleSet(self._dataset, self.picked[index])
        return self._dataset[self.picked[index]]
