"""What `arkdev data check` reports; its JSON document has the same names."""

from __future__ import annotations

from dataclasses import dataclass, field

from arkdev.errors import ExitCode
from arkdev.job.dataset_statistics import SetStatistics


@dataclass(frozen=True)
class LineReport:
    """One thing about one line."""

    where: str
    """file:line, with the column where it is known; the file alone when all of it is meant."""
    message: str
    """What is wrong."""
    fix: str
    """What to do, as far as it can be said."""


@dataclass(frozen=True)
class LineReports:
    """Errors or warnings: the first ones, and how many there are in all."""

    shown: tuple[LineReport, ...] = ()
    count: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    """Lines by what is wrong with them, names and numbers left out; the 50 met first."""


@dataclass(frozen=True)
class KeyReport:
    """A key of ``extra`` that a grader reads and some samples lack."""

    key: str
    grader: str
    where: str
    """file:line where the grader reads it."""
    is_required: bool
    """Whether the grader fails without it: it reads ``extra["key"]``."""
    num_samples: int
    samples: tuple[str, ...]
    """file:line of the first samples that lack it."""


@dataclass(frozen=True)
class SetReport:
    """One set of samples."""

    name: str
    """``training_set``, ``validation_set``, or ``files``."""
    files: dict[str, int]
    """Samples of each file."""
    num_bytes: int
    errors: LineReports
    warnings: LineReports
    tolerance: str
    """What the job accepts; "" when that is nothing."""
    is_accepted: bool
    """Whether the errors are within what the job accepts."""
    statistics: SetStatistics
    missing_keys: tuple[KeyReport, ...]


@dataclass(frozen=True)
class PromptReport:
    """A prompt that is there more than once."""

    count: int
    places: tuple[str, ...]
    differs_in_extra: bool


@dataclass(frozen=True)
class DuplicateReport:
    """Prompts that are there more than once, over all sets."""

    num_repeated: int
    num_conflicting: int
    num_leaked: int
    """Validation samples whose prompt is in the training set too."""
    shown: tuple[PromptReport, ...]
    leaked: tuple[tuple[str, str], ...]
    """Places of a validation and a training sample."""


@dataclass(frozen=True)
class JobNumbers:
    """What a job makes of the data, mixed and split."""

    num_training: int
    num_validation: int | None
    batch_size: int | None
    steps_per_epoch: int | None
    last_batch: int | None
    """Samples of the last step of an epoch."""


@dataclass(frozen=True)
class DataCheck:
    """The whole report."""

    sets: tuple[SetReport, ...]
    duplicates: DuplicateReport
    job: JobNumbers | None
    """None for files alone, and when the data is not accepted."""
    notes: tuple[str, ...]

    @property
    def exit_code(self) -> ExitCode:
        """0 when all sets are accepted, whatever the warnings; else 2 (decision 16)."""
        is_good = all(checked.is_accepted for checked in self.sets)
        return ExitCode.OK if is_good else ExitCode.USAGE
