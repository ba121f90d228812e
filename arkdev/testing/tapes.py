"""A run on a tape inside a test: recorded once, replayed each time (docs/tape.md)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from arkdev.errors import UsageError
from arkdev.flows.replaying import mismatches
from arkdev.testing.options import request_of
from arkdev.testing.runs import RunFactory, RunOutcome
from arkdev.testing.tracebacks import with_short_tracebacks

_FLAG_OF = {"graders": "--grader", "num_generations": "--n-sample"}
"""Options whose flag has another name than they have."""


class TapeFactory:
    """Replays tapes; one that is not there is recorded first."""

    def __init__(self, root: Path, *, folder: Path, run: RunFactory) -> None:
        self._root = root
        self._folder = folder
        self._run = run

    @with_short_tracebacks
    def __call__(self, path: str | Path, **options: Any) -> RunOutcome:
        """Replay the tape at `path`, which is relative to the test's file, and return the outcome.

        A tape that does not exist is recorded with `options`, by a process of its own, since code
        that is imported already cannot be recorded; where the variable ``CI`` is set that is a
        `UsageError`. Raises `AssertionError`, with a diff of each request, when the code asks for
        something else than it did when the tape was recorded.
        """
        __tracebackhide__ = True
        request_of(self._root, options)
        tape = self._folder / path
        if not tape.exists():
            _record(tape, options, root=self._root)
        outcome = self._run(replay=tape)
        told = [f"{one.name} left the tape\n{one.text}" for one in mismatches(outcome.folder)]
        if told:
            raise AssertionError("\n\n".join([*told, str(tape), str(outcome.folder)]))
        return outcome


def _record(tape: Path, options: Mapping[str, Any], *, root: Path) -> None:
    __tracebackhide__ = True
    flags = list(_flags(options))
    if os.environ.get("CI"):
        raise UsageError(
            "there is no such tape, and none is recorded where CI is set",
            where=str(tape),
            hint="record it on your machine and keep it beside the test: "
            + " ".join(["arkdev test plugin --record", str(tape), *flags]),
        )
    command = [sys.executable, "-m", "arkdev", "test", "plugin", "--record", str(tape), *flags]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        tape.unlink(missing_ok=True)
        raise AssertionError(f"the recording ended with {done.returncode}\n{done.stderr}")


def _flags(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield the command line of options of `PluginTestRequest`."""
    for name, value in options.items():
        if name == "sampling":
            yield from _flags(value)
            continue
        flag = _FLAG_OF.get(name, f"--{name.replace('_', '-')}")
        for item in value if isinstance(value, (list, tuple)) else (value,):
            yield from (flag, str(item))
