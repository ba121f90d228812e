"""Weights & Biases (leaf: imports wandb). Offline, unless WANDB_MODE or WANDB_API_KEY is set.

Neither the environment, the command line, the code, the console nor the machine is recorded.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping

import wandb

from arkdev.observe.metric_sinks.sinks import LoggedRun


class WandbSink:
    """Writes ``RUN/wandb``, and sends it where the user has said so."""

    def __init__(self, run: LoggedRun) -> None:
        is_configured = "WANDB_MODE" in os.environ or "WANDB_API_KEY" in os.environ
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", run.project),
            id=run.run_id,
            name=run.run_id,
            resume="allow",
            dir=run.folder,
            config=dict(run.settings),
            mode=None if is_configured else "offline",
            settings=wandb.Settings(
                console="off",
                disable_code=True,
                disable_git=True,
                silent=True,
                x_disable_machine_info=True,
                x_disable_meta=True,
                x_disable_stats=True,
                x_save_requirements=False,
            ),
        )
        here = f"wandb sync {shlex.quote(str(run.folder))}/wandb/offline-run-*"
        self.place = here if self._run.offline else str(self._run.url)

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Send the metrics of a step."""
        self._run.log(dict(metrics), step=step)

    def close(self, *, has_failed: bool) -> None:
        """Send what waits, and end the process that wandb started."""
        self._run.finish(exit_code=int(has_failed))
        wandb.teardown()


def open_sink(run: LoggedRun) -> WandbSink:
    """Open the sink."""
    return WandbSink(run)
