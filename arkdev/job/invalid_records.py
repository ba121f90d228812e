"""Lines that are no samples: counted, told, tolerated as far as the job says (JOB-28, JOB-29)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from decimal import Decimal

from arkdev.errors import DataError
from arkdev.job.dataset_files import LineProblem
from arkdev.job.problems import Problem, make_error

MAX_PROBLEMS = 20
"""So many are told; where none is tolerated, reading stops at them."""
CORRECT_HINT = "nothing was run; correct the file and try again"


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
class Tolerance:
    """How many invalid lines a job accepts; at most one of the two, neither means none.

    Raises `ValueError`.
    """

    ratio: float | None = None
    """``max_invalid_records_ratio``: their share of all lines that hold something, 0 to 1."""
    number: int | None = None
    """``max_invalid_records_number``."""

    def __post_init__(self) -> None:
        if self.ratio is not None and self.number is not None:
            raise ValueError(
                "max_invalid_records_ratio and max_invalid_records_number exclude each other"
            )
        if self.ratio is not None and not 0 <= self.ratio <= 1:
            raise ValueError(
                f"max_invalid_records_ratio is {self.ratio:g}; a share from 0 to 1 is expected, "
                "0.05 for one line in twenty"
            )
        if self.number is not None and self.number < 0:
            raise ValueError(f"max_invalid_records_number is {self.number}; at least 0 is expected")

    @property
    def name(self) -> str:
        """The key of the job, with its value; "" when none is set."""
        if self.number is not None:
            return f"max_invalid_records_number ({self.number})"
        if self.ratio is not None:
            return f"max_invalid_records_ratio ({self.ratio:g})"
        return ""

    def allows(self, num_invalid: int, *, num_records: int) -> bool:
        """Tell whether so many invalid ones of all lines are accepted."""
        if self.number is not None:
            return num_invalid <= self.number
        # the share as it was written: 0.29 of 100 is 29, and less in binary floating point
        return num_invalid <= Decimal(repr(self.ratio or 0)) * num_records


@dataclass
class InvalidRecords:
    """What reading passes over. A problem of a whole file is never tolerated."""

    tolerance: Tolerance = field(default_factory=Tolerance)
    first: list[Problem] = field(default_factory=list)
    count: int = 0
    num_of_files: int = 0
    """Files of the count that cannot be read, or not to their end."""

    def add(self, problem: Problem) -> None:
        """Count a problem; the first 20 are kept."""
        self.count += 1
        if not isinstance(problem, LineProblem):
            self.num_of_files += 1
        if len(self.first) < MAX_PROBLEMS:
            self.first.append(problem)

    @property
    def is_hopeless(self) -> bool:
        """True when whatever follows, the data is refused, and enough is known to say why."""
        if self.count < MAX_PROBLEMS:
            return False
        limit = math.inf if self.tolerance.ratio is not None else self.tolerance.number or 0
        return self.count > limit or self.num_of_files > 0

    def warnings(self) -> list[DatasetWarning]:
        """Tell what was passed over, for a report; nothing when nothing was."""
        if not self.first:
            return []
        first = self.first[0]
        message = f"passed over, as {self.tolerance.name} allows: {first.message}"
        return [DatasetWarning(first.where, message, self.count)]

    def check(self, *, num_samples: int) -> None:
        """Raise `DataError` when they are more than is tolerated beside so many samples."""
        num_records = num_samples + self.count
        is_allowed = self.tolerance.allows(self.count, num_records=num_records)
        if not self.count or (is_allowed and not self.num_of_files):
            return
        hint = CORRECT_HINT
        if self.tolerance.name and not is_allowed:
            hint = f"more invalid lines than {self.tolerance.name} allows; {hint}"
        if self.is_hopeless:
            hint = f"reading stopped at {self.count} problems, there may be more; {hint}"
        elif self.count > len(self.first):
            hint = f"there are {self.count:,} problems, these are the first; {hint}"
        raise make_error(DataError, self.first, hint=hint)
