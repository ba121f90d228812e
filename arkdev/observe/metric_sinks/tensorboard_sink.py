"""TensorBoard: event files in the run folder (leaf: imports tensorboard). Nothing is sent."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from arkdev.observe.metric_sinks.sinks import LoggedRun


class TensorBoardSink:
    """Writes ``RUN/tensorboard``; ``tensorboard --logdir runs`` shows all runs."""

    def __init__(self, run: LoggedRun) -> None:
        folder = run.folder / "tensorboard"
        self.place = f"tensorboard --logdir {shlex.quote(str(folder))}"
        self._writer = EventFileWriter(str(folder))
        if run.first_step:  # TensorBoard forgets what it had of this step and later ones
            start = SessionLog(status=SessionLog.START)
            self._write(Event(step=run.first_step, session_log=start))

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Write the metrics of a step."""
        values = [Summary.Value(tag=name, simple_value=value) for name, value in metrics.items()]
        self._write(Event(step=step, summary=Summary(value=values)))
        self._writer.flush()

    def _write(self, event: Event) -> None:
        event.wall_time = time.time()
        self._writer.add_event(event)

    def close(self, *, has_failed: bool) -> None:
        """Close the file."""
        self._writer.close()


def open_sink(run: LoggedRun) -> TensorBoardSink:
    """Open the sink."""
    return TensorBoardSink(run)
