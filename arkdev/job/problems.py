"""What is wrong with a file, collected with its places and told at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from arkdev.errors import ConfigurationError

KeyPath = tuple[str | int, ...]
"""Keys and indexes from the top of a document to one value."""

_Error = TypeVar("_Error", bound=ConfigurationError)


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong; `where` is file:line, or the file alone."""

    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


def dotted(place: KeyPath) -> str:
    """Write a path of keys and indexes as it is spoken: ``graders[0].plugin.name``."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return "".join(parts).removeprefix(".")


def line_of(lines: Mapping[KeyPath, int], key: KeyPath) -> int:
    """Return the line of the longest part of `key` that a document has, else the first one."""
    found = (lines[key[:end]] for end in range(len(key), 0, -1) if key[:end] in lines)
    return next(found, 1)


def make_error(kind: type[_Error], problems: Sequence[Problem], *, hint: str = "") -> _Error:
    """Return one error of `kind` for all `problems`: the only one, or a list of them."""
    texts = tuple(str(problem) for problem in problems)
    if len(problems) == 1:
        [only] = problems
        return kind(only.message, where=only.where, hint=hint, problems=texts)
    message = "\n  ".join([f"{len(texts)} problems:", *texts])
    return kind(message, hint=hint, problems=texts)
