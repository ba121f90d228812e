"""What went wrong in one attempt, in order."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace

from arkdev.runs.records import FaultRecord, FaultSide, HandledBy


class FaultLog:
    """The faults of an attempt, real and injected, until it ends; safe from any thread."""

    def __init__(self, *, started: float) -> None:
        self._started = started
        """On the clock of `time.perf_counter`."""
        self._records: list[FaultRecord] = []
        self._lock = threading.Lock()
        self._is_open = True

    @property
    def records(self) -> tuple[FaultRecord, ...]:
        """The faults so far."""
        return tuple(self._records)

    def add(
        self, side: FaultSide, kind: str, target: str, *, detail: str = "", is_injected: bool
    ) -> FaultRecord:
        """Record a fault, unless the attempt has ended; return its record."""
        started_s = time.perf_counter() - self._started
        record = FaultRecord(side, kind, target, started_s, is_injected, detail=detail)
        with self._lock:
            if self._is_open:
                self._records.append(record)
        return record

    def made_good(self, faults: Sequence[FaultRecord]) -> None:
        """Note that arkdev sent the call again after these, and that it was answered."""
        with self._lock:
            for index, record in enumerate(self._records):
                if any(record is fault for fault in faults):
                    self._records[index] = replace(record, handled_by=HandledBy.HARNESS)

    def answered_later(self, fault: object) -> None:
        """Note that the plugin sent the same again after `fault`, and that it was answered."""
        with self._lock:
            for index, record in enumerate(self._records):
                if record is fault and self._is_open:
                    self._records[index] = replace(record, is_answered_later=True)

    def close(self) -> None:
        """The attempt has ended: nothing is recorded any more."""
        with self._lock:
            self._is_open = False
