"""The job in the one form that the rest of arkdev uses, whatever file it was written in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arkdev.job.models import CustomizationType, Data


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
    data: Data
    """As it is written; `arkdev.job.job_data` reads it."""
    training_files: tuple[Path, ...]
    """Absolute; empty when the data is on the platform."""
    validation_files: tuple[Path, ...]
    hyperparameters: Mapping[str, object]
    """Names with known number values hold numbers, others what was written."""
    batch_size: int | None
    num_generations: int | None
    warnings: tuple[str, ...] = ()
    where_data: str = ""
    """file:line of the training files in a job.yaml."""
