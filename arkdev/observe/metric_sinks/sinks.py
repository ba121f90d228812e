"""Metrics on their way to TensorBoard, W&B, MLflow or trackio.

The modules beside this one are leaves: each imports its package, and is imported when its sink is
asked for. Whatever a sink does (refuse, hang, be gone), training goes on: it is warned of once, and
that sink gets nothing more. Names are those of ``metrics.jsonl`` where a sink allows them.

Nothing leaves the machine unless the user's own settings say where to (each leaf says which).
"""

from __future__ import annotations

import math
import os
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from arkdev.errors import MissingExtraError

NAMES = ("tensorboard", "wandb", "mlflow", "trackio")
CLOSE_S = 20.0
"""How long the end of a run waits for what a sink has not taken yet."""

_LEAF = "arkdev.observe.metric_sinks.{}_sink"
_TELEMETRY: Mapping[str, Mapping[str, str]] = {
    "wandb": {"WANDB_ERROR_REPORTING": "false"},
    "mlflow": {"MLFLOW_DISABLE_TELEMETRY": "true"},
    "trackio": {"GRADIO_ANALYTICS_ENABLED": "False", "HF_HUB_DISABLE_TELEMETRY": "1"},
}
"""Variables by which a package is told to send its makers nothing; a value of the user's stays."""


@dataclass(frozen=True)
class LoggedRun:
    """The run whose metrics are sent."""

    run_id: str
    folder: Path
    """Of the run; sinks that write files write them here, or beside the runs."""
    project: str
    settings: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    """What it is trained with, without secrets."""
    first_step: int = 0
    """Above 0: the run goes on, and what was sent of this step and later ones is redone."""


class MetricSink(Protocol):
    """One receiver. Its methods are called from one thread, never two at once; they may raise."""

    place: str
    """Where the metrics are, and how to look at them, in a few words."""

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Take the metrics of a step, finite numbers by name."""
        ...

    def close(self, *, has_failed: bool) -> None:
        """Write what it still holds, and end."""
        ...


@dataclass(frozen=True)
class Told:
    """Who is told of sinks, from their threads."""

    tell: Callable[[str], None]
    """Where the metrics go, once a sink is open."""
    warn: Callable[[str], None]
    """That a sink has failed, once."""


def open_sinks(names: Sequence[str], run: LoggedRun, *, told: Told) -> tuple[SinkThread, ...]:
    """Open the sinks called `names`, each once.

    Raises `MissingExtraError` when a sink's package is not installed.
    """
    leaves = {name: load(name) for name in dict.fromkeys(names)}
    return tuple(SinkThread(name, leaf.open_sink, run, told) for name, leaf in leaves.items())


def check_installed(names: Sequence[str]) -> None:
    """Raise `MissingExtraError` for a sink whose package is not installed; imports none."""
    for name in names:
        if find_spec(name) is None:
            raise _missing(name, package=name)


def load(name: str) -> Any:
    """Import the leaf of a sink. Raises `MissingExtraError` when its package is not installed."""
    for variable, value in _TELEMETRY.get(name, {}).items():
        os.environ.setdefault(variable, value)  # read while the package is imported
    try:
        return import_module(_LEAF.format(name))
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("arkdev"):
            raise
        raise _missing(name, package=error.name or name) from error


def _missing(name: str, *, package: str) -> MissingExtraError:
    return MissingExtraError(
        f"--log-to {name} needs the package {package}", hint=f"pip install 'arkdev[{name}]'"
    )


class SinkThread:
    """A sink with a thread of its own, so that a slow one keeps nobody waiting."""

    def __init__(
        self,
        name: str,
        open_sink: Callable[[LoggedRun], MetricSink],
        run: LoggedRun,
        told: Told,
    ) -> None:
        self.name = name
        self._open_sink = open_sink
        self._run = run
        self._told = told
        self._waiting: queue.Queue[tuple[int, dict[str, float]] | None] = queue.Queue()
        self._has_failed_run = False
        self._is_broken = False
        self._thread = threading.Thread(target=self._work, name=f"arkdev-{name}", daemon=True)
        self._thread.start()

    def log(self, metrics: Mapping[str, Any], *, step: int) -> None:
        """Send the metrics of a step: those that are finite numbers. Returns at once."""
        numbers = {
            name: float(value)
            for name, value in metrics.items()
            if isinstance(value, (int, float)) and math.isfinite(value)
        }
        if not self._is_broken:
            self._waiting.put((step, numbers))

    def close(self, *, has_failed: bool, within_s: float = CLOSE_S) -> None:
        """Send what waits and end; a sink that hangs is left behind with its thread."""
        self._has_failed_run = has_failed
        self._waiting.put(None)
        self._thread.join(within_s)
        if self._thread.is_alive():
            self._complain(f"no answer within {within_s:g} s")

    def _work(self) -> None:
        try:
            sink = self._open_sink(self._run)
            self._told.tell(f"metrics also go to {self.name}: {sink.place}")
            while (item := self._waiting.get()) is not None:
                step, metrics = item
                sink.log(metrics, step=step)
            sink.close(has_failed=self._has_failed_run)
        except Exception as error:  # noqa: BLE001 - of four packages and what is behind them
            self._complain(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")

    def _complain(self, reason: str) -> None:
        if not self._is_broken:
            self._is_broken = True
            self._told.warn(f"--log-to {self.name} gets no more metrics: {reason}")
