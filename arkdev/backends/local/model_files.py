"""Which folder a model's name stands for, looked at without torch.

A model is one of these, in this order:

* the name of an embedded one: ``tiny``, ``tiny-teacher``;
* the path of a folder in Hugging Face layout: config.json, weights, tokenizer;
* a training run, by its path or by what `find_run` takes (``latest`` is the newest): the best model
  that it saved in validation, else the last. ``RUN@last``, ``RUN@best`` and ``RUN@STEPS`` choose.

Nothing is downloaded. A model that a run saved may be a LoRA adapter beside its base.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arkdev.errors import ConfigurationError, RunError
from arkdev.runs.reader import RunReader, find_run, list_runs
from arkdev.runs.saved_models import BEST, LAST, SCORE, SavedModels
from arkdev.runs.snapshots import Snapshot
from arkdev.runs.writer import MANIFEST

TINY = "tiny"
EMBEDDED = (TINY, "tiny-teacher")
"""Shipped with arkdev (`arkdev/backends/local/embedded`)."""

TRAINING = "train"
"""The kind of the runs that save models."""

_EMBEDDED_FOLDER = Path(__file__).parent / "embedded"
_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
_INDEXES = tuple(f"{name}.index.json" for name in _WEIGHTS)
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json")
_ADAPTER = "adapter_config.json"
_POINTER = b"version https://git-lfs"
_LAYOUT = (
    "a model is a folder in Hugging Face layout: config.json, model.safetensors, tokenizer.json"
)


@dataclass(frozen=True)
class ModelFiles:
    """Where a model is."""

    name: str
    """What answers and run folders call it. `resolve_model` finds the same model by it."""
    folder: Path
    """Of the weights and their config; the base's where there is an adapter."""
    source: str
    """What it is, in words."""
    adapter: Path | None = None
    """A LoRA adapter that belongs to it."""

    @property
    def tokenizer_folder(self) -> Path:
        """Where its tokenizer and chat template are."""
        return self.adapter or self.folder

    @property
    def num_bytes(self) -> int:
        """The size of its weights."""
        return sum(path.stat().st_size for path in _weight_files(self.folder))


def resolve_model(
    name_or_path: str, *, runs: Path | None = None, takes_adapter: bool = False
) -> ModelFiles:
    """Return the model that `name_or_path` stands for.

    `runs` is the folder whose runs have names; None: there are none. Raises `ConfigurationError`
    for what is no model or lacks a part, for an adapter without its base (or at all, unless
    `takes_adapter`), and `RunError` for a run without a saved model.
    """
    if name_or_path in EMBEDDED:
        folder = _EMBEDDED_FOLDER / name_or_path
        _check_folder(folder)
        return ModelFiles(name_or_path, folder, f"the embedded model {name_or_path}")
    path = Path(name_or_path).expanduser()
    if path.is_dir() and not (path / MANIFEST).is_file():
        return _of_folder(path.absolute(), takes_adapter=takes_adapter)
    if path.is_file():
        raise _is_a_file(path)
    name, which = name_or_path, ""
    if not path.exists() and "@" in name:
        name, _, which = name_or_path.rpartition("@")
    found = Path(name).expanduser()
    if not (found / MANIFEST).is_file():
        if runs is None or not _may_be_a_run(name, runs):
            raise _unknown(name_or_path, runs=runs)
        found = find_run(runs, name, is_wanted=lambda run: run.kind == TRAINING)
        name = found.name
    return _of_run(RunReader(found), name, which, takes_adapter=takes_adapter)


def newest_trained(runs: Path) -> str | None:
    """Return the name of the newest finished training run in `runs` that saved a model."""
    for run in list_runs(runs):
        is_finished = run.kind == TRAINING and run.status == "finished"
        if is_finished and SavedModels(run.folder, run_id=run.run_id).all():
            return run.run_id
    return None


def _of_run(reader: RunReader, run: str, which: str, *, takes_adapter: bool) -> ModelFiles:
    run_id = reader.manifest.run_id
    if reader.manifest.kind != TRAINING:
        raise RunError(
            f"run {run_id} is a {reader.manifest.kind} run and has no model",
            hint="`arkdev train` makes one that has",
        )
    saved = SavedModels(reader.folder, run_id=run_id)
    model = saved.chosen(which or (BEST if saved.best() is not None else LAST))
    source = _source_of(model, run_id, is_best=model == saved.best())
    name = f"{run}@{model.step}"
    if (model.folder / "config.json").is_file():
        _check_folder(model.folder)
        return ModelFiles(name, model.folder, source)
    if not takes_adapter:
        raise ConfigurationError(
            f"run {run_id} saved a LoRA adapter, which is no model by itself",
            where=str(model.folder),
            hint=f"merge it into its base: arkdev export {run_id} --to DIR",
        )
    return ModelFiles(name, _base_of(model.folder), source, adapter=model.folder)


def _source_of(model: Snapshot, run_id: str, *, is_best: bool) -> str:
    score = model.facts.get(SCORE)
    scored = f", the best in validation ({score:.3f})" if is_best and score is not None else ""
    return f"step {model.step} of the training run {run_id}{scored}"


def _base_of(adapter: Path) -> Path:
    named = str(_json(adapter / _ADAPTER).get("base_model_name_or_path") or "")
    base = Path(named).expanduser()
    if not named or not base.is_dir():
        raise ConfigurationError(
            f"the model that the LoRA adapter belongs to is not there: {named or 'it names none'}",
            where=str(adapter),
            hint="put the folder back to where it was",
        )
    _check_folder(base)
    return base


def _of_folder(folder: Path, *, takes_adapter: bool) -> ModelFiles:
    if not (folder / "config.json").is_file() and (folder / _ADAPTER).is_file():
        if takes_adapter:
            source = f"the LoRA adapter in {folder}"
            return ModelFiles(str(folder), _base_of(folder), source, adapter=folder)
        raise ConfigurationError(
            "the folder holds a LoRA adapter, which is no model by itself",
            where=str(folder),
            hint="merge it into its base: `arkdev export RUN --to DIR` for one that arkdev "
            "trained, peft's merge_and_unload() for any other",
        )
    _check_folder(folder)
    return ModelFiles(str(folder), folder, f"the model in {folder}")


def _check_folder(folder: Path) -> None:
    """Raise `ConfigurationError` for the first part that is missing."""
    if not (folder / "config.json").is_file():
        ggufs = sorted(path.name for path in folder.glob("*.gguf"))
        if ggufs:
            raise _is_a_file(folder / ggufs[0])
        raise _lacks(folder, "config.json")
    config = _json(folder / "config.json")
    if not config.get("model_type"):
        raise ConfigurationError(
            "config.json names no model_type", where=str(folder / "config.json"), hint=_LAYOUT
        )
    weights = list(_weight_files(folder))
    if not weights:
        raise _lacks(folder, f"weights ({' or '.join(_WEIGHTS)})")
    for path in weights:
        if not path.is_file():
            raise _lacks(folder, f"{path.name}, which the index of its weights names")
        with path.open("rb") as file:
            if file.read(len(_POINTER)) == _POINTER:
                raise ConfigurationError(
                    "the file is a Git LFS pointer, not the weights",
                    where=str(path),
                    hint="fetch them: git lfs pull",
                )
    if not any((folder / name).is_file() for name in _TOKENIZERS):
        raise _lacks(folder, f"tokenizer ({', '.join(_TOKENIZERS)})")


def _weight_files(folder: Path) -> Iterator[Path]:
    for whole, index in zip(_WEIGHTS, _INDEXES, strict=True):
        if (folder / whole).is_file():
            yield folder / whole
            return
        if (folder / index).is_file():
            names = _json(folder / index).get("weight_map") or {}
            if not isinstance(names, dict):
                raise ConfigurationError(
                    "its weight_map is no object of weights and files", where=str(folder / index)
                )
            yield from (folder / name for name in sorted(set(names.values())))
            return


def _json(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"it cannot be read: {error}", where=str(path)) from error
    if not isinstance(document, dict):
        raise ConfigurationError("it is no JSON object", where=str(path))
    return document


def _lacks(folder: Path, part: str) -> ConfigurationError:
    return ConfigurationError(f"the model has no {part}", where=str(folder), hint=_LAYOUT)


def _is_a_file(path: Path) -> ConfigurationError:
    what = "a GGUF file, which cannot be trained or sampled from here"
    if path.suffix != ".gguf":
        what = "a file, not a model's folder"
    return ConfigurationError(f"{path.name} is {what}", where=str(path), hint=_LAYOUT)


def _may_be_a_run(name: str, runs: Path) -> bool:
    known = [run.run_id for run in list_runs(runs)]
    return name == "latest" or any(
        run_id.startswith(name) or run_id.endswith(name) for run_id in known
    )


def _unknown(name: str, *, runs: Path | None) -> ConfigurationError:
    known = f"There are {', '.join(EMBEDDED)}, folders in Hugging Face layout"
    known += " and training runs of this workspace." if runs is not None else "."
    if name.count("/") == 1 and not name.startswith((".", "/", "~")):
        return ConfigurationError(
            f"there is no folder {name!r}; a name on a model hub is not downloaded",
            where="--model",
            hint=f"Download it first (hf download {name} --local-dir DIR), then --model DIR.",
        )
    return ConfigurationError(f"there is no model {name!r}", where="--model", hint=known)
