"""The samples of a test: where they are, and whether every line is one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from arkdev.errors import DataError, UsageError
from arkdev.flows.test_request import PluginTestRequest
from arkdev.job.dataset import DatasetLine, parse_sample, read_files, summarised_warnings
from arkdev.job.invalid_records import DatasetWarning, InvalidRecords, Tolerance
from arkdev.job.job import Job
from arkdev.job.job_data import mixing_keys, tolerance_of, training_sources
from arkdev.job.workspace import Workspace


@dataclass(frozen=True)
class SamplesToTest:
    """Samples that were checked. A test takes each of them once: nothing is mixed or split."""

    files: tuple[Path, ...]
    line: DatasetLine | None
    """The one sample of ``--sample``, else None."""
    count: int
    tolerance: Tolerance
    """How many lines were, and are to be, passed over because they are no samples."""
    warnings: tuple[DatasetWarning, ...]
    notes: tuple[str, ...] = ()


def find_samples(
    request: PluginTestRequest, job: Job | None, workspace: Workspace
) -> SamplesToTest:
    """Read all samples that a test would run on. Raises `ConfigurationError`."""
    files = _files(request, job, workspace)
    of_job = job if not request.data else None
    tolerance = tolerance_of(of_job.config.data) if of_job else Tolerance()
    invalid = InvalidRecords(tolerance)
    count, line = 0, None

    def counted() -> Iterator[DatasetLine]:
        nonlocal count
        for each in read_files(files, limit=request.limit, invalid=invalid):
            count += 1
            yield each

    try:
        if request.sample is None:
            warnings = [*summarised_warnings(counted()), *invalid.warnings()]
        else:
            line = _one_sample(request.sample, files, invalid=invalid)
            count, warnings = 1, summarised_warnings([line])
    except DataError as error:
        where = of_job.where_data if of_job else ""
        if where and not all(path.is_file() for path in files):
            error.hint = f"the file is named in {where}" + (f"; {error.hint}" if error.hint else "")
        raise
    notes = _notes_on_mixing(of_job) if of_job and request.sample is None else ()
    return SamplesToTest(files, line, count, tolerance, tuple(warnings), notes)


def _notes_on_mixing(job: Job) -> tuple[str, ...]:
    keys = mixing_keys(job.config.data)
    if not keys:
        return ()
    return (
        f"each sample of the training files is taken once: {', '.join(keys)} of the job's data "
        "count in training and in `arkdev debug`",
    )


def _files(request: PluginTestRequest, job: Job | None, workspace: Workspace) -> tuple[Path, ...]:
    if request.data:
        return request.data
    if job is not None and job.training_files:
        return job.training_files
    if request.sample is not None and _index(request.sample) is None:
        return ()
    if job is None:
        raise UsageError("no data", hint="name a file with --data FILE")
    try:
        sources = training_sources(job.config.data, workspace=workspace)
    except DataError as error:
        error.where = error.where or str(job.source)
        raise
    return tuple(path for source in sources for path in source.paths)


def _one_sample(text: str, files: tuple[Path, ...], *, invalid: InvalidRecords) -> DatasetLine:
    wanted = _index(text)
    if wanted is None:
        return parse_sample(text)
    count = 0
    for line in read_files(files, invalid=invalid):
        if line.index == wanted:
            return line
        count += 1
    there_are = f"it has {count} samples, 0 to {count - 1}"
    raise UsageError(
        f"--sample {wanted}: the data has no sample of that number; {there_are}",
        hint="indices count from 0; a sample can also be given as JSON",
    )


def _index(text: str) -> int | None:
    """The number of a sample; None for a sample that is given itself."""
    return int(text) if re.fullmatch(r"[-+]?\d{1,18}", text.strip()) else None
