"""`arkdev data check`: every line of the data, and what the data is made of. Nothing is run."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from arkdev.errors import DataError, UsageError
from arkdev.flows.data_report import (
    DataCheck,
    DuplicateReport,
    JobNumbers,
    KeyReport,
    LineReport,
    LineReports,
    PromptReport,
    SetReport,
)
from arkdev.job.batches import BatchPlan
from arkdev.job.dataset import DatasetLine, read_files
from arkdev.job.dataset_files import no_progress
from arkdev.job.dataset_statistics import MissingKey, StatisticsCollector
from arkdev.job.duplicates import Duplicates, PromptIndex
from arkdev.job.extra_keys import ExtraRead, extra_reads
from arkdev.job.indexed_dataset import IndexedDataset
from arkdev.job.invalid_records import InvalidRecords, Tolerance
from arkdev.job.job import Job
from arkdev.job.job_data import (
    DataSource,
    arranged,
    tolerance_of,
    training_sources,
    validation_sources,
)
from arkdev.job.paths import shown_path
from arkdev.job.problems import Problem
from arkdev.job.prompts import json_hash, prompt_hash
from arkdev.job.reader import read_job
from arkdev.job.workspace import Workspace, find_workspace

SHOWN_LINES = 20
_MAX_KINDS = 50
_VARYING = re.compile(r"\[\d+\]|'[^']*'|\"[^\"]*\"|-?\d[\d.,e+]*")


@dataclass(frozen=True)
class DataCheckRequest:
    """What to check."""

    start: Path
    """A folder of the workspace."""
    files: tuple[Path, ...] = ()
    """Empty: the job's training and validation sets."""
    job: Path | None = None
    num_shown: int = SHOWN_LINES
    """Lines that are told one by one, of errors and of warnings each."""
    seed: int = 0
    """Of the mix and the split."""


@dataclass(frozen=True)
class CheckProgress:
    """Whom to tell how far the reading is, in bytes."""

    on_start: Callable[[int], None] = no_progress
    """Told the bytes of all files."""
    on_bytes: Callable[[int], None] = no_progress
    """Told how many more were read."""


def check_data(request: DataCheckRequest, *, progress: CheckProgress) -> DataCheck:
    """Read all data once and report. Raises `ConfigurationError` when it cannot be found."""
    workspace = find_workspace(request.start, job=request.job)
    job = _job(request, workspace)
    sources = _sources(request, job, workspace=workspace)
    tolerance = tolerance_of(job.config.data) if job and not request.files else Tolerance()
    reads, notes = _keys_of_graders(job, root=workspace.root)
    progress.on_start(sum(_size(path) for of_set in sources.values() for path in _paths(of_set)))
    prompts = PromptIndex()
    readings = []
    for name, of_set in sources.items():
        reading = _Reading(name, of_set, request=request, wanted=list(reads))
        reading.read(prompts, tolerance, on_bytes=progress.on_bytes)
        readings.append(reading)
    numbers = None
    if job is not None and not request.files and all(r.is_accepted for r in readings):
        numbers = _numbers(job, readings, seed=request.seed)
    return DataCheck(
        sets=tuple(reading.report(reads) for reading in readings),
        duplicates=_duplicates(prompts, readings),
        job=numbers,
        notes=tuple(notes),
    )


def _job(request: DataCheckRequest, workspace: Workspace) -> Job | None:
    """With files the job only says which graders read them; then there may be none."""
    job = read_job(workspace.root, request.job)
    if job is None and not request.files:
        raise UsageError(
            f"no job.yaml or job.py in {workspace.root}, and no files",
            hint="name them: arkdev data check FILE...",
        )
    return job


def _sources(
    request: DataCheckRequest, job: Job | None, *, workspace: Workspace
) -> dict[str, list[DataSource]]:
    if request.files or job is None:
        return {"files": [DataSource("files", request.files)]}
    try:
        sources = {
            "training_set": training_sources(job.config.data, workspace=workspace),
            "validation_set": validation_sources(job.config.data, workspace=workspace),
        }
    except DataError as error:
        error.where = ", ".join(filter(None, [shown_path(job.source), error.where]))
        raise
    return {name: of_set for name, of_set in sources.items() if of_set}


def _paths(sources: Sequence[DataSource]) -> list[Path]:
    return [path for source in sources for path in source.paths]


def _size(path: Path) -> int:
    return path.stat().st_size if os.path.isfile(path) else 0


def _keys_of_graders(
    job: Job | None, *, root: Path
) -> tuple[dict[str, list[tuple[str, ExtraRead]]], list[str]]:
    """Return who reads which key of ``extra``, and what could not be found out."""
    reads: dict[str, list[tuple[str, ExtraRead]]] = {}
    notes: list[str] = []
    for grader in job.graders if job else ():
        found = extra_reads(grader.reference, root=root)
        notes += [f"grader {grader.name}: {unknown}" for unknown in found.unknown]
        for read in found.reads:
            reads.setdefault(read.key, []).append((grader.name, read))
    return reads, notes


class _Findings(InvalidRecords):
    """Counts every problem and refuses none: the report tells them."""

    def __init__(self, tolerance: Tolerance, reports: _LineCounts) -> None:
        super().__init__(tolerance)
        self._reports = reports

    @property
    def is_hopeless(self) -> bool:
        return False

    def add(self, problem: Problem) -> None:
        super().add(problem)
        self._reports.add(problem.where, problem.message)

    def check(self, *, num_samples: int) -> None:
        """Leave it to `is_accepted`."""

    def is_accepted(self, num_samples: int) -> bool:
        is_allowed = self.tolerance.allows(self.count, num_records=num_samples + self.count)
        return is_allowed and not self.num_of_files and num_samples > 0


class _LineCounts:
    """Collects `LineReports` in flat memory."""

    def __init__(self, num_shown: int) -> None:
        self._num_shown = num_shown
        self._shown: list[LineReport] = []
        self._kinds: Counter[str] = Counter()
        self._count = 0

    def add(self, where: str, message: str) -> None:
        self._count += 1
        what, _, fix = message.partition("; ")
        if len(self._shown) < self._num_shown:
            self._shown.append(LineReport(where, what, fix))
        kind = _VARYING.sub(lambda match: "[]" if match[0].startswith("[") else "…", what)
        if kind in self._kinds or len(self._kinds) < _MAX_KINDS:
            self._kinds[kind] += 1

    def report(self) -> LineReports:
        return LineReports(tuple(self._shown), self._count, dict(self._kinds.most_common()))


class _Reading:
    """One set, read once."""

    def __init__(
        self,
        name: str,
        sources: Sequence[DataSource],
        *,
        request: DataCheckRequest,
        wanted: Sequence[str],
    ) -> None:
        self.name, self.sources = name, sources
        self._errors = _LineCounts(request.num_shown)
        self._warnings = _LineCounts(request.num_shown)
        self._statistics = StatisticsCollector(wanted=wanted)
        self._tolerance = ""

    def read(
        self, prompts: PromptIndex, tolerance: Tolerance, *, on_bytes: Callable[[int], None]
    ) -> None:
        """Read all files of the set."""
        invalid = _Findings(tolerance, self._errors)
        lines = read_files(_paths(self.sources), invalid=invalid, on_bytes=on_bytes)
        self.dataset = IndexedDataset(self._counted(lines, prompts))
        self._tolerance = tolerance.name
        self.is_accepted = invalid.is_accepted(len(self.dataset))

    def _counted(self, lines: Iterator[DatasetLine], prompts: PromptIndex) -> Iterator[DatasetLine]:
        for line in lines:
            self._statistics.add(line.raw, where=line.where)
            for warning in line.warnings:
                self._warnings.add(line.where, warning)
            prompts.add(prompt_hash(line.raw), extra=json_hash(line.raw.get("extra")))
            yield line

    def report(self, reads: Mapping[str, Sequence[tuple[str, ExtraRead]]]) -> SetReport:
        """Return what was found."""
        paths = _paths(self.sources)
        files: Counter[str] = Counter()  # one that is named twice has its samples twice
        for number, path in enumerate(paths):
            files[shown_path(path)] += self.dataset.num_of_file(number)
        return SetReport(
            name=self.name,
            files=dict(files),
            num_bytes=sum(map(_size, paths)),
            errors=self._errors.report(),
            warnings=self._warnings.report(),
            tolerance=self._tolerance,
            is_accepted=self.is_accepted,
            statistics=self._statistics.summary(),
            missing_keys=tuple(
                _key_report(missing, grader, read)
                for missing in self._statistics.missing_keys()
                for grader, read in reads[missing.key]
            ),
        )


def _key_report(missing: MissingKey, grader: str, read: ExtraRead) -> KeyReport:
    return KeyReport(
        key=missing.key,
        grader=grader,
        where=read.where,
        is_required=read.is_required,
        num_samples=missing.num_samples,
        samples=missing.places,
    )


def _numbers(job: Job, readings: Sequence[_Reading], *, seed: int) -> JobNumbers:
    training, *others = readings
    other = others[0] if others else None
    sets = arranged(
        job.config.data,
        (training.dataset, training.sources),
        (other.dataset, other.sources) if other else (None, ()),
        seed=seed,
    )
    steps = last = None
    if job.batch_size:
        plan = BatchPlan(len(sets.training), job.batch_size, num_epochs=1)
        steps, last = len(plan), len(sets.training) - (len(plan) - 1) * job.batch_size
    return JobNumbers(
        num_training=len(sets.training),
        num_validation=None if sets.validation is None else len(sets.validation),
        batch_size=job.batch_size,
        steps_per_epoch=steps,
        last_batch=last,
    )


def _duplicates(prompts: PromptIndex, readings: Sequence[_Reading]) -> DuplicateReport:
    size_of_first = len(readings[0].dataset)

    def place(number: int) -> str:
        if number < size_of_first:
            return readings[0].dataset.where(number)
        return readings[1].dataset.where(number - size_of_first)

    found: Duplicates = prompts.find(size_of_first_set=size_of_first)
    return DuplicateReport(
        num_repeated=found.num_repeated,
        num_conflicting=found.num_conflicting,
        num_leaked=found.num_leaked,
        shown=tuple(
            PromptReport(same.count, tuple(map(place, same.samples)), same.differs_in_extra)
            for same in found.shown
        ),
        leaked=tuple((place(late), place(early)) for late, early in found.leaked),
    )
