"""The hyperparameters that are publicly known, by method; the data is in catalogue.toml.

The platform's own table differs by model and version and is not public. What no source states is
None here, "unknown", and is never filled in; `Evidence` says how sure it is that a method takes a
name.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from arkdev.job.methods import CustomizationType
from arkdev.job.ranges import RANGES, Range

Value = str | int | float | bool


class Evidence(StrEnum):
    """Where it is known from that a method takes a hyperparameter."""

    DOCUMENTED = "documented"
    EXAMPLE = "example"
    """Public job files of that method set it."""
    INFERRED = "inferred"
    """Nothing says so; methods like it take it."""


class Kind(StrEnum):
    """The type of a value."""

    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    TEXT = "text"
    UNKNOWN = "unknown"


class Part(StrEnum):
    """What of a job a hyperparameter is about; `capabilities` says where each part counts."""

    SAMPLING = "sampling"
    LOOP = "loop"
    STEPS = "steps"
    UPDATE = "update"
    CHECKPOINTS = "checkpoints"
    VALIDATION = "validation"
    ADAPTER = "adapter"
    DISTILLATION = "distillation"
    ROUTING = "routing"
    SUPERVISED = "supervised"


@dataclass(frozen=True)
class Hyperparameter:
    """One name. `range` and `options` hold for every model."""

    name: str
    kind: Kind
    part: Part
    meaning: str
    methods: Mapping[CustomizationType, Evidence]
    sources: tuple[str, ...]
    """Rows of the contract, or public files."""
    range: Range | None = None
    options: tuple[str, ...] | None = None
    """Every value that there is; None: unknown, or any in `range`."""
    usual: tuple[Value, ...] = ()
    """The list that the platform usually has; a model may have another one."""
    seen: tuple[Value, ...] = ()
    """Values of public job files: examples, neither defaults nor limits."""
    default: Value | None = None
    """None: unknown."""
    default_of: Mapping[str, Value] = field(default_factory=dict)
    """Defaults of some models, by the beginning of their names."""
    note: str = ""

    def default_for(self, model: str) -> Value | None:
        """Return the default of a model, or None where it is unknown."""
        of_model = (value for start, value in self.default_of.items() if model.startswith(start))
        return next(of_model, self.default)


@cache
def catalogue() -> Mapping[str, Hyperparameter]:
    """Return all of them by name, in the order of the file."""
    return _entries("catalogue.toml")


@cache
def local_settings() -> Mapping[str, Hyperparameter]:
    """Return what training on this machine can be told beside them, by name.

    These names are arkdev's own: no job file holds them (`arkdev.job.local_values`).
    """
    return _entries("local_settings.toml")


def _entries(file: str) -> Mapping[str, Hyperparameter]:
    path = Path(__file__).with_name(file)
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    entries = (_entry(values, groups=data["groups"]) for values in data["hyperparameters"])
    return {entry.name: entry for entry in entries}


def entries_of(method: CustomizationType) -> list[Hyperparameter]:
    """Return what is known of a method's hyperparameters."""
    return [entry for entry in catalogue().values() if method in entry.methods]


def _entry(values: dict[str, Any], *, groups: Mapping[str, Mapping[str, str]]) -> Hyperparameter:
    methods: dict[str, str] = {}
    for group in values.pop("groups", ()):
        methods |= groups[group]
    methods |= values.pop("methods", {})
    allowed = values.pop("range", None)
    options = values.pop("options", None)
    return Hyperparameter(
        kind=Kind(values.pop("type")),
        part=Part(values.pop("part")),
        methods={CustomizationType(name): Evidence(how) for name, how in methods.items()},
        range=RANGES[allowed] if isinstance(allowed, str) else _range(allowed),
        options=tuple(options) if options else None,
        usual=tuple(values.pop("usual", ())),
        seen=tuple(values.pop("seen", ())),
        sources=tuple(values.pop("sources")),
        **values,
    )


def _range(values: dict[str, Any] | None) -> Range | None:
    return None if values is None else Range(**values)


_COUNTERPARTS = (
    ("lr", "learning_rate"),
    ("lr_warmup_steps", "warmup_step_rate"),
    ("num_steps", "epoch"),
    ("save_every_n_steps", "save_model_per_epoch"),
)
"""The same thing under the names that RL and supervised methods have for it."""

INTERNAL_NAMES = ("loss_name",)
"""Names of the platform's own, which jobs must not set (agentkit-samples: job_grpo_lora.py)."""


def counterpart_of(name: str, *, method: CustomizationType) -> str | None:
    """Return what `method` calls the thing that other methods call `name`, or None."""
    for pair in _COUNTERPARTS:
        if name in pair:
            other = pair[1 - pair.index(name)]
            return other if method in catalogue()[other].methods else None
    return None
