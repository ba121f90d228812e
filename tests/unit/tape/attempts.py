"""An attempt for tests, and code that belongs to a workspace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arkdev.observe.attempt import current_attempt, in_flight


@dataclass(frozen=True, eq=False)
class _Attempt:
    name: str
    number: int


@contextmanager
def attempt(name: str = "0.0", number: int = 0) -> Iterator[None]:
    """Be in an attempt for a while."""
    under_way: Any = _Attempt(name, number + 1)
    token = current_attempt.set(under_way)
    in_flight[under_way] = True
    try:
        yield
    finally:
        in_flight.pop(under_way)
        current_attempt.reset(token)


def module_at(path: Path, source: str) -> dict[str, Any]:
    """Run `source` as the module in the file `path`; returns its names."""
    names: dict[str, Any] = {"__name__": path.stem}
    exec(compile(source, str(path), "exec", dont_inherit=True), names)
    return names
