"""An attempt for tests, and code that belongs to a workspace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from arkdev.observe.attempt import current_attempt


@contextmanager
def attempt(name: str = "0.0", number: int = 0) -> Iterator[None]:
    """Be in an attempt for a while."""
    token = current_attempt.set(SimpleNamespace(name=name, number=number + 1))  # type: ignore[arg-type]
    try:
        yield
    finally:
        current_attempt.reset(token)


def module_at(path: Path, source: str) -> dict[str, Any]:
    """Run `source` as the module in the file `path`; returns its names."""
    names: dict[str, Any] = {"__name__": path.stem}
    exec(compile(source, str(path), "exec", dont_inherit=True), names)
    return names
