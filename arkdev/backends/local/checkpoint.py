"""Training states on the disk: what a run needs to go on as if it had never been interrupted.

::

    checkpoints/step-10/weights.safetensors   what is trained: all weights, or the LoRA adapter
    checkpoints/step-10/training.pt           optimizer, scheduler, generators of torch
    checkpoints/step-10/progress.json         steps, policy version, best model, Python's random
    checkpoints/step-10/snapshot.json         sizes and checksums of the three (`runs.snapshots`)

A state is whole or not at all. Saved models are others (`runs.snapshots` too): a state needs the
space of three models and only the last ones are of use.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from arkdev.errors import RunError
from arkdev.runs.snapshots import Snapshots, not_saved

WEIGHTS = "weights.safetensors"
TRAINING = "training.pt"
PROGRESS = "progress.json"
DEFAULT_LIMIT = 2
"""The last, and the one before it in case the disk damages the last."""


@dataclass(frozen=True)
class Trained:
    """The objects that change while a policy is trained."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    scheduler: torch.optim.lr_scheduler.LRScheduler | None = None
    generators: Mapping[str, torch.Generator] = field(default_factory=dict)
    """Of the sampler and whatever else draws numbers of its own, by name."""


@dataclass(frozen=True)
class Best:
    """The saved model that was best in validation so far."""

    step: int
    score: float


@dataclass(frozen=True)
class Progress:
    """How far a run is. All of it is JSON."""

    step: int
    """Steps done, which is the number of the step that is next, and the position in the data: their
    order follows from the run's seed (`arkdev.job.batches`). Metrics of these steps are in the run
    folder, whose later lines are set aside when the run goes on."""
    policy_version: int
    counters: Mapping[str, float] = field(default_factory=dict)
    """What else has been counted since the run began, by name."""
    best: Best | None = None


@dataclass(frozen=True)
class TrainingState:
    """One state, in memory."""

    progress: Progress
    weights: Mapping[str, torch.Tensor]
    training: Mapping[str, Any]
    random: Mapping[str, Any]

    @classmethod
    def of(cls, trained: Trained, progress: Progress) -> TrainingState:
        """Return the state as it is now. Tensors are the live ones: save it before a next step."""
        scheduler = trained.scheduler
        return cls(
            progress=progress,
            weights=trained_weights(trained.model),
            training={
                "optimizer": trained.optimizer.state_dict(),
                "scheduler": None if scheduler is None else scheduler.state_dict(),
                "generators": {
                    name: generator.get_state() for name, generator in trained.generators.items()
                },
                "torch": torch.get_rng_state(),
                "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
            },
            random={"python": _python_state(), "numpy": _numpy_state()},
        )

    def restore(self, trained: Trained) -> None:
        """Put the state into new objects of the same kinds, and into the process's generators.

        Raises `RunError` when they are of other kinds: another model, another LoRA rank.
        """
        load_weights(trained.model, self.weights)
        try:
            trained.optimizer.load_state_dict(dict(self.training["optimizer"]))
        except ValueError as error:
            raise _other_kind(f"the optimizer: {error}") from error
        if (trained.scheduler is None) != (self.training["scheduler"] is None):
            raise _other_kind("one has a learning-rate schedule, the other none")
        if trained.scheduler is not None:
            trained.scheduler.load_state_dict(self.training["scheduler"])
        saved = self.training["generators"]
        if saved.keys() != trained.generators.keys():
            raise _other_kind(
                f"generators {sorted(saved)} are saved, {sorted(trained.generators)} are there"
            )
        for name, generator in trained.generators.items():
            generator.set_state(saved[name])
        torch.set_rng_state(self.training["torch"])
        if self.training["cuda"] and len(self.training["cuda"]) == torch.cuda.device_count():
            torch.cuda.set_rng_state_all(self.training["cuda"])
        self._restore_python()

    def _restore_python(self) -> None:
        version, numbers, gauss = self.random["python"]
        random.setstate((version, tuple(numbers), gauss))
        kind, keys, *rest = self.random["numpy"]
        numpy.random.set_state((kind, numpy.array(keys, dtype=numpy.uint32), *rest))


class Checkpoints:
    """The training states of one run, in its folder ``checkpoints``."""

    def __init__(self, folder: Path, *, run_id: str, limit: int = DEFAULT_LIMIT) -> None:
        """Keep the last `limit` states of the run `run_id` in `folder`."""
        self._snapshots = Snapshots(folder, run_id=run_id)
        self._limit = limit

    def save(self, state: TrainingState) -> Path:
        """Save a state and remove the oldest above the limit; return its folder.

        Raises `OutputError` when the disk is full: the run ends there, as it does when any other
        file of its cannot be written, and those saved before are as they were.
        """
        step = state.progress.step
        saved = self._snapshots.save(step, lambda folder: _write(folder, state))
        steps = [snapshot.step for snapshot in self._snapshots.all()]
        # of the steps up to this one: whatever is later is of a part that is redone
        self._snapshots.keep([number for number in steps if number <= step][: self._limit])
        return saved.folder

    def latest(self, problems: list[str] | None = None) -> TrainingState | None:
        """Return the last whole state; None: there is none yet.

        `problems` is told of those that were cut short or damaged, which are left out.
        """
        snapshot = self._snapshots.latest_whole(problems)
        return None if snapshot is None else _read(snapshot.folder)


def trained_weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return what of a model is trained, by name, and its buffers that are kept."""
    trained = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    parameters = {id(p) for p in model.parameters()}
    kept = model.state_dict(keep_vars=True)
    buffers = {name: t.detach() for name, t in kept.items() if id(t) not in parameters}
    return trained | buffers


def load_weights(model: torch.nn.Module, weights: Mapping[str, torch.Tensor]) -> None:
    """Copy weights into a model in place. Raises `RunError` when they are another model's."""
    places = trained_weights(model)
    if places.keys() != weights.keys():
        odd = sorted(places.keys() ^ weights.keys())
        raise _other_kind(f"{len(odd)} weights are in one of them only, among them {odd[0]}")
    for name, place in places.items():
        if place.shape != weights[name].shape:
            raise _other_kind(
                f"{name} is saved as {tuple(weights[name].shape)} and is {tuple(place.shape)}"
            )
    with torch.no_grad():
        for name, place in places.items():
            place.copy_(weights[name])


def _other_kind(what: str) -> RunError:
    return RunError(
        f"the checkpoint is not of what is trained now: {what}",
        hint="train with the model and the settings that the run began with",
    )


def _write(folder: Path, state: TrainingState) -> None:
    """Raises `OSError`, and `OutputError` where a library hides that it was one."""
    try:
        contiguous = {name: tensor.contiguous() for name, tensor in state.weights.items()}
        save_file(contiguous, folder / WEIGHTS)
        with (folder / TRAINING).open("wb") as file:  # by a path torch does not say why it failed
            torch.save(dict(state.training), file)
    except (SafetensorError, RuntimeError) as error:
        raise not_saved(_reason(error), place=folder.with_suffix("")) from error
    progress = {**asdict(state.progress), "random": state.random}
    text = json.dumps(progress, ensure_ascii=False, allow_nan=False)
    (folder / PROGRESS).write_text(text, encoding="utf-8")


def _reason(error: Exception) -> str:
    """Return what the system said, if it is known, else what the library made of it."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__context__
    return str((cause and cause.strerror) or error).partition("\n")[0]


def _read(folder: Path) -> TrainingState:
    document = json.loads((folder / PROGRESS).read_text(encoding="utf-8"))
    random_states = document.pop("random")
    best = document.pop("best")
    return TrainingState(
        progress=Progress(**document, best=None if best is None else Best(**best)),
        weights=load_file(folder / WEIGHTS),
        training=torch.load(folder / TRAINING, map_location="cpu", weights_only=True),
        random=random_states,
    )


def _python_state() -> list[Any]:
    version, numbers, gauss = random.getstate()
    return [version, list(numbers), gauss]


def _numpy_state() -> list[Any]:
    kind, keys, *rest = numpy.random.get_state(legacy=True)
    return [kind, numpy.asarray(keys).tolist(), *rest]
