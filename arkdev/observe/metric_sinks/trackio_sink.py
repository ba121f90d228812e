"""trackio (leaf: imports trackio). Its own database of this user, unless TRACKIO_SPACE_ID or
TRACKIO_SERVER_URL is set.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

import trackio

from arkdev.observe.metric_sinks.sinks import LoggedRun


class TrackioSink:
    """``trackio show`` shows what it keeps."""

    def __init__(self, run: LoggedRun) -> None:
        project = re.sub(r"[^\w\-]", "-", run.project)
        self.place = f"trackio show --project {shlex.quote(project)}"
        self._run = trackio.init(
            project=project,
            name=run.run_id,
            config=dict(run.settings),
            resume="allow",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Send the metrics of a step."""
        self._run.log(dict(metrics), step=step)

    def close(self, *, has_failed: bool) -> None:
        """Send what waits."""
        self._run.finish()


def open_sink(run: LoggedRun) -> TrackioSink:
    """Open the sink."""
    return TrackioSink(run)
