"""Reading a run while another process writes it: what is new since the last look."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from arkdev.runs.reader import RunReader
from arkdev.runs.writer import EVENTS, METRICS


class RunFollower:
    """Follows the events and metrics of one run, from its beginning.

    A run that is resumed sets lines aside and writes those steps anew: they are new lines then.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._events = _GrowingFile(folder / EVENTS)
        self._metrics = _GrowingFile(folder / METRICS)

    @property
    def status(self) -> str:
        """The run's status now. Raises `RunError` when the folder is gone."""
        return RunReader(self.folder).status

    def new_events(self) -> list[dict[str, Any]]:
        """Return the events since the last look."""
        return self._events.new_lines()

    def new_metrics(self) -> list[dict[str, Any]]:
        """Return the lines of metrics since the last look."""
        return self._metrics.new_lines()


class _GrowingFile:
    """An append-only file of JSON lines with a time (``at``), which resuming may replace."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode: int | None = None
        self._offset = 0
        self._last_at = ""

    def new_lines(self) -> list[dict[str, Any]]:
        try:
            with self._path.open("rb") as file:
                inode = self._path.stat().st_ino
                if inode != self._inode:
                    self._inode, self._offset = inode, 0
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        whole, newline, _ = data.rpartition(b"\n")  # a line that is not whole yet waits
        self._offset += len(whole) + len(newline)
        found = []
        for line in whole.split(b"\n"):
            with suppress(ValueError, TypeError, KeyError):  # cut short by a kill
                document = json.loads(line)
                if document["at"] > self._last_at:
                    found.append(document)
        if found:
            self._last_at = found[-1]["at"]
        return found
