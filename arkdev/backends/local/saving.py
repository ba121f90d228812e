"""What is saved after a step of training, and how a run goes on from it.

After each step that is due, in this order: a state never knows of a model that is not there::

    the model   every `save_every_n_steps` steps, when it is the best so far, at the end
    the state   with each model, and otherwise as often as saving takes 2 % of the time

A run that is stopped (`arkdev stop`) saves both after the step that is under way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from safetensors import SafetensorError

from arkdev.backends.local.checkpoint import (
    Best,
    Checkpoints,
    Progress,
    Trained,
    TrainingState,
)
from arkdev.backends.local.model_saving import write_model
from arkdev.errors import RunStoppedError
from arkdev.runs.saved_models import SavedModels
from arkdev.runs.snapshots import CHECKPOINTS, not_saved

_MOST_OF_THE_TIME = 0.02


class Learns(Protocol):
    """What is saved of, and restored into."""

    policy_version: int
    trained: Trained
    counters: dict[str, float]


@dataclass(frozen=True)
class SavingSettings:
    """Where and how often."""

    run: Path
    """The run's folder."""
    run_id: str
    source: Path
    """The folder of the model that training began with: its tokenizer goes with each model."""
    every_n_steps: int | None = None
    """None: models are saved when they are the best so far, and at the end."""
    limit: int | None = None
    """Of the saved models; None: all are kept."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What is noted with each saved model."""


class RunSaving:
    """Saves a run, and restores it. Every method blocks; call them from one thread at a time."""

    def __init__(
        self,
        learner: Learns,
        settings: SavingSettings,
        *,
        is_stop_asked: Callable[[], bool] = lambda: False,
    ) -> None:
        self._learner = learner
        self._settings = settings
        self._is_stop_asked = is_stop_asked
        self._models = SavedModels(settings.run, run_id=settings.run_id, limit=settings.limit)
        self._checkpoints = Checkpoints(settings.run / CHECKPOINTS, run_id=settings.run_id)
        self._best: Best | None = None
        self._saved_at: float | None = None
        self._took_s = 0.0

    def latest(self, problems: list[str]) -> TrainingState | None:
        """Return the state that the run goes on from; None: there is none, it begins anew."""
        return self._checkpoints.latest(problems)

    def restore(self, state: TrainingState | None) -> int:
        """Go on from a state: put it into the learner; nothing on the disk changes.

        Returns the steps done. Raises `RunError` for a state of another model.
        """
        if state is None:
            return 0
        state.restore(self._learner.trained)
        self._learner.policy_version = state.progress.policy_version
        self._learner.counters = dict(state.progress.counters)
        self._best = state.progress.best
        return state.progress.step

    def drop_later(self, step: int) -> None:
        """Remove models of more steps than `step`, which are redone. The run must be locked: they
        might be another process's, which goes on with it. Raises `OutputError`."""
        self._models.remove_after(step)

    def after_step(self, step: int, *, score: float | None, is_last: bool) -> None:
        """Save what is due after a step, counted from 0.

        Raises `OutputError` when the disk refuses, and `RunStoppedError` once the run is stopped
        and saved.
        """
        num_done = step + 1
        is_stopped = self._is_stop_asked() and not is_last
        is_best = score is not None and (self._best is None or score > self._best.score)
        if is_best and score is not None:
            self._best = Best(num_done, score)
        every = self._settings.every_n_steps
        is_due = every is not None and num_done % every == 0
        saves_model = is_due or is_best or is_last or is_stopped
        if saves_model:
            self._models.save(num_done, self._write_model, score=score, facts=self._settings.facts)
        if saves_model or self._is_state_due():
            self._save_state(num_done)
        if is_stopped:
            raise RunStoppedError(f"stopped after step {step}, as `arkdev stop` asked")

    def _write_model(self, folder: Path) -> None:
        try:
            write_model(folder, self._learner.trained.model, source=self._settings.source)
        except SafetensorError as error:
            raise not_saved(str(error), place=folder.with_suffix("")) from error

    def _is_state_due(self) -> bool:
        if self._saved_at is None:
            return True
        return self._took_s <= _MOST_OF_THE_TIME * (time.perf_counter() - self._saved_at)

    def _save_state(self, num_done: int) -> None:
        began = time.perf_counter()
        learner = self._learner
        progress = Progress(num_done, learner.policy_version, learner.counters, self._best)
        self._checkpoints.save(TrainingState.of(learner.trained, progress))
        self._saved_at = time.perf_counter()
        self._took_s = self._saved_at - began
