"""The job in the one form that the rest of arkdev uses, whatever file it was written in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arkdev.job.methods import CustomizationType
from arkdev.job.models import ModelCustomizationJob
from arkdev.job.paths import shown_path
from arkdev.job.problems import KeyPath, line_of


@dataclass(frozen=True)
class PluginReference:
    """A plugin as the job names it, not loaded yet."""

    name: str
    """The job's name for it, else the function's."""
    reference: str | Callable[..., Any]
    """``module:function`` from the workspace's root, or the decorated function itself."""
    weight: float = 1.0
    """What a grader's reward is multiplied by."""
    envs: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Environment variables of the function."""
    runtime: Mapping[str, object] = field(default_factory=dict)
    """Runtime limits that the job sets, over the decorator's (X-20)."""
    where: str = ""
    """file:line in a job.yaml."""


@dataclass(frozen=True)
class Job:
    """One training job."""

    source: Path
    """The file that was read."""
    name: str | None
    customization_type: CustomizationType
    model_name: str | None
    """None for a custom model."""
    model_version: str | None
    custom_model_id: str | None
    rollout: PluginReference | None
    """None: the built-in single-turn rollout (CT-11)."""
    graders: tuple[PluginReference, ...]
    """Empty for the methods without a pipeline, otherwise at least one."""
    training_files: tuple[Path, ...]
    """Absolute; empty when the data is on the platform."""
    validation_files: tuple[Path, ...]
    hyperparameters: Mapping[str, object]
    """Names with known number values hold numbers, others what was written."""
    batch_size: int | None
    num_generations: int | None
    config: ModelCustomizationJob = field(repr=False)
    """Every field of the job; the debug endpoint's key in it is a `SecretStr`."""
    declared_hyperparameters: frozenset[str] = frozenset()
    """Names that the workspace says the platform has."""
    warnings: tuple[str, ...] = ()
    inferred: tuple[str, ...] = ()
    """What the file leaves open and something else in it decides, a sentence each."""
    lines: Mapping[KeyPath, int] = field(default_factory=dict, repr=False)
    """Line of each key: all of a job.yaml, of a job.py those that its text tells."""

    def place(self, key: KeyPath) -> str:
        """Return file:line of `key` or of what it stands in; the file alone if that is unknown."""
        return place_of_key(key, file=self.source, lines=self.lines)

    @property
    def where_data(self) -> str:
        """Where the training files are named."""
        return self.place(("data", "training_set", "local_files"))


def place_of_key(key: KeyPath, *, file: Path, lines: Mapping[KeyPath, int]) -> str:
    """Return file:line of `key` in a job file; the file alone where a job.py does not tell it."""
    shown = shown_path(file)
    is_known = key[:1] in lines or file.suffix != ".py"
    return f"{shown}:{line_of(lines, key)}" if is_known else shown
