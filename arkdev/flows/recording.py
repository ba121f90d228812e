"""What finishes during a run is written down, counted and told, in this order."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from arkdev.harness.attempts import Outcome as AttemptOutcome
from arkdev.harness.rollouts import FinishedRollout, SampleToRun
from arkdev.harness.stalls import StallRecord
from arkdev.harness.statistics import RunStatistics
from arkdev.observe.log_lines import LogLine
from arkdev.runs.records import (
    TRAIN,
    Attempt,
    GraderRecord,
    GroupRecord,
    PluginLogRecord,
    SampleRecord,
    TokenRecord,
)
from arkdev.runs.writer import RunWriter, iso_time
from arkdev.sessions.identity import AttemptIdentity
from arkdev.sessions.session import Session

if TYPE_CHECKING:
    from arkdev.flows.test_plan import PluginTestPlan

_HasError = TypeVar("_HasError", Attempt, GraderRecord, GroupRecord)


class PluginTestObserver(Protocol):
    """Who is told of a test while it runs. Called on the harness's event loop, except `on_turn`."""

    def on_start(self, plan: PluginTestPlan, folder: Path) -> None:
        """The run folder exists; nothing has run yet."""
        ...

    def on_turn(self, session: Session) -> None:
        """A model call of the session was recorded; from whatever thread made it."""
        ...

    def on_log(self, line: LogLine) -> None:
        """A plugin logged or printed a line; from whatever thread it did."""
        ...

    def on_stall(self, record: StallRecord) -> None:
        """Code holds the run up, found for the first time; from a thread of the watch's own."""
        ...

    def on_warning(self, text: str) -> None:
        """Something to know of a test that ends early, so that no outcome will tell it."""
        ...

    def on_progress(self, text: str) -> None:
        """What is being made ready before anything runs: a line of it."""
        ...

    def on_attempt(self, identity: AttemptIdentity, outcome: AttemptOutcome[Any]) -> None:
        """An attempt of a rollout ended; another one may follow."""
        ...

    def on_rollout(self, finished: FinishedRollout) -> None:
        """A rollout is finished and on disk."""
        ...

    def on_group(self, record: GroupRecord) -> None:
        """A group is graded or dropped, and on disk."""
        ...


@dataclass(frozen=True)
class Recorder:
    """Writes what finishes, then counts it, then tells the observer.

    Error texts, which the report repeats, are masked first: a plugin may put its key into them.
    """

    run: RunWriter
    statistics: RunStatistics
    observer: PluginTestObserver
    phase: str = TRAIN
    step: int | None = None
    """Of the job; None in a test."""
    extras: dict[int, Any] = field(default_factory=dict)
    """Of the samples whose groups are under way."""

    def begun(self, samples: Iterable[SampleToRun]) -> Iterator[SampleToRun]:
        """Pass samples on; write them down, and keep what the groups' records will want of them."""
        for sample in samples:
            line = json.loads(sample.line)
            self.extras[sample.index] = line.get("extra")
            self.run.sample(SampleRecord(sample.index, line, self.phase, self.step))
            yield sample

    def log(self, line: LogLine) -> None:
        """Keep a line that a plugin logged or printed."""
        self.run.log(log_record(line))
        self.observer.on_log(line)

    def on_rollout(self, finished: FinishedRollout) -> FinishedRollout:
        """Keep a finished rollout; return it as it was written."""
        if any(attempt.error for attempt in finished.record.attempts):
            attempts = tuple(self._masked(attempt) for attempt in finished.record.attempts)
            finished = replace(finished, record=replace(finished.record, attempts=attempts))
        finished = replace(finished, record=self.run.trajectory(finished.record))
        if finished.evidence is not None:
            tokens = asdict(finished.evidence)
            self.run.tokens(TokenRecord(finished.record.trajectory_id, **tokens))
        self.statistics.add_trajectory(finished.record)
        self.observer.on_rollout(finished)
        return finished

    def on_group(self, record: GroupRecord) -> GroupRecord:
        """Keep a group that was graded or dropped; return it as it was written."""
        if record.error or any(grader.error for grader in record.graders):
            graders = tuple(self._masked(grader) for grader in record.graders)
            record = replace(self._masked(record), graders=graders)
        record = replace(
            record,
            sample_extra=self.extras.pop(record.sample_index, None),
            phase=self.phase,
            step=self.step,
        )
        self.run.group(record)
        self.statistics.add_group(record)
        self.observer.on_group(record)
        return record

    def _masked(self, record: _HasError) -> _HasError:
        return replace(record, error=self.run.masked(record.error)) if record.error else record


def log_record(line: LogLine) -> PluginLogRecord:
    """Return what the run folder keeps of a line that a plugin logged or printed."""
    place = line.place
    return PluginLogRecord(
        at=iso_time(datetime.fromtimestamp(line.at, UTC)),
        level=line.level,
        trajectory_ids=place.trajectory_ids if place else (),
        attempt=place.attempt if place else None,
        grader=place.grader if place else None,
        step=place.step if place else None,
        logger=line.logger,
        text=line.text,
        num_cut=line.num_cut,
        num_left_out=line.num_left_out,
    )
