"""What is wrong with a file, collected with its places and told at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from arkdev.errors import ConfigurationError

_Error = TypeVar("_Error", bound=ConfigurationError)


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong; `where` is file:line, or the file alone."""

    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


def make_error(kind: type[_Error], problems: Sequence[Problem], *, hint: str = "") -> _Error:
    """Return one error of `kind` for all `problems`: the only one, or a list of them."""
    texts = tuple(str(problem) for problem in problems)
    if len(problems) == 1:
        [only] = problems
        return kind(only.message, where=only.where, hint=hint, problems=texts)
    message = "\n  ".join([f"{len(texts)} problems:", *texts])
    return kind(message, hint=hint, problems=texts)
