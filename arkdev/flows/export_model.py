"""A model that a run saved, put into a folder of its own that needs nothing of the run any more."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from arkdev.backends.local.packages import require_packages
from arkdev.errors import OutputError, RunError, WorkspaceError
from arkdev.flows.training_runs import find_training_run, row_of
from arkdev.runs.reader import RunReader
from arkdev.runs.saved_models import SCORE, SavedModels
from arkdev.runs.snapshots import PARTIAL, SNAPSHOT, Snapshot

ADAPTER_CONFIG = "adapter_config.json"
CARD = "README.md"


@dataclass(frozen=True)
class ExportedModel:
    """What was written."""

    run: str
    step: int
    score: float | None
    """In validation; None: it was not validated."""
    best_step: int | None
    """Of the run's model that is best in validation; None: none was validated."""
    base_model: str
    is_merged: bool
    """Whether a LoRA adapter was merged into its base."""
    folder: str
    files: tuple[str, ...]
    num_bytes: int


def export_model(root: Path, *, run: str, to: Path, which: str) -> ExportedModel:
    """Write the model of a run in `root` that `which` names into the new folder `to`.

    `which` is ``best``, ``last`` or a number of steps. Raises `RunError`, `WorkspaceError` when
    `to` is there and not empty, `MissingExtraError` when an adapter is to be merged without torch,
    and `OutputError` when the disk refuses; then nothing is left in `to`.
    """
    reader = find_training_run(root, run, command="export")
    saved = SavedModels(reader.folder, run_id=reader.manifest.run_id)
    model, best = saved.chosen(which), saved.best()
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise WorkspaceError(
            "the folder is not empty" if to.is_dir() else "it is a file",
            where=str(to),
            hint="name a new folder with --to",
        )
    to = to.absolute()
    # of this process alone: a folder beside may be the user's, or of another export
    partial = to.with_name(f"{to.name}.{os.getpid()}{PARTIAL}")
    is_adapter = (model.folder / ADAPTER_CONFIG).is_file()
    try:
        partial.mkdir(parents=True)
        if is_adapter:
            _merge(model.folder, partial)
        else:
            _copy(model.folder, partial)
        (partial / CARD).write_text(
            model_card(reader, model, is_merged=is_adapter), encoding="utf-8", newline="\n"
        )
        partial.rename(to)
    except OSError as error:
        raise OutputError(
            f"the model cannot be written: {error.strerror or error}", where=str(to)
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    files = sorted(path for path in to.rglob("*") if path.is_file())
    return ExportedModel(
        run=reader.manifest.run_id,
        step=model.step,
        score=model.facts.get(SCORE),
        best_step=best.step if best else None,
        base_model=_base_model(model),
        is_merged=is_adapter,
        folder=str(to),
        files=tuple(path.relative_to(to).as_posix() for path in files),
        num_bytes=sum(path.stat().st_size for path in files),
    )


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(
        source, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns(SNAPSHOT, CARD)
    )


def _merge(adapter: Path, target: Path) -> None:
    config = json.loads((adapter / ADAPTER_CONFIG).read_text(encoding="utf-8"))
    base = Path(config.get("base_model_name_or_path") or "")
    if not (base / "config.json").is_file():
        raise RunError(
            f"the model that the adapter belongs to is not there: {base}",
            where=str(adapter),
            hint="put it back; the exported model is the two together",
        )
    require_packages(purpose="merging a LoRA adapter into its base")
    import_module("arkdev.backends.local.model_saving").write_merged(
        target, adapter=adapter, base=base
    )


def _base_model(model: Snapshot) -> str:
    return str(model.facts.get("model") or "unknown")


def model_card(reader: RunReader, model: Snapshot, *, is_merged: bool) -> str:
    """Return the page about an exported model: what it came from, and how well it did."""
    row = row_of(reader)
    how = "LoRA, merged into the base model" if is_merged else "all weights"
    facts = {
        "Base model": _base_model(model),
        "Job": row.name or row.job_id,
        "Method": row.customization_type or "unknown",
        "Trained": how,
        "Run": row.run,
        "Steps": f"{model.step} of {row.num_steps or 'unknown'}",
        "Data": ", ".join(_data(reader.manifest.settings)) or "unknown",
        "arkdev": str(reader.manifest.versions.get("arkdev", "unknown")),
    }
    lines = ["---", "library_name: transformers", "tags: [arkdev, reinforcement-learning]", "---"]
    lines += [f"# {row.name or row.run}, step {model.step}", ""]
    lines += ["A model that `arkdev train` made.", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {_cell(value)} |" for name, value in facts.items()]
    rewards = rewards_at(reader, step=model.step - 1)
    if rewards:
        lines += ["", "## Rewards", "", "Means after the last of these steps.", ""]
        lines += ["| metric | value |", "|---|---|"]
        lines += [f"| `{name}` | {value:.4g} |" for name, value in rewards.items()]
    lines += ["", "Rewards say how well it does what was rewarded, and nothing else of it.", ""]
    return "\n".join(lines)


def _data(settings: Mapping[str, Any]) -> list[str]:
    """Return the data files as the workspace calls them: the card may be published."""
    root = f"{settings.get('workspace')}/"
    return [str(path).removeprefix(root) for path in settings.get("data") or []]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def rewards_at(reader: RunReader, *, step: int) -> dict[str, float]:
    """Return the means of rewards that a step, and the validation after it, came to."""
    found: dict[str, float] = {}
    for line in reader.metrics():
        if line.get("step") == step:
            found.update(_mean_rewards(line))
    return found


def _mean_rewards(line: Mapping[str, Any]) -> dict[str, float]:
    return {
        name: value
        for name, value in line.items()
        if isinstance(value, (int, float)) and "reward" in name and name.endswith(".mean")
    }
