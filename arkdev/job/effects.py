"""What a job's own keys do on a backend: where each value comes from, and what it does there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from pydantic import SecretStr

from arkdev.errors import JobError
from arkdev.job.capabilities import (
    DECLARED_HYPERPARAMETER,
    HYPERPARAMETERS,
    KEYS,
    LOCAL_SETTING,
    METHODS,
    PARTS,
    UNKNOWN_HYPERPARAMETER,
    WITHOUT_VALIDATION,
    BackendName,
    Capability,
    Effect,
    Support,
    capability_of,
)
from arkdev.job.catalogue import Part, catalogue, entries_of, local_settings
from arkdev.job.job import Job
from arkdev.job.local_values import (
    OWN_DEFAULTS,
    LocalJob,
    LocalValue,
    Switch,
    own_defaults,
    switched_off,
)
from arkdev.job.model import JobModel
from arkdev.job.pipelines import PipelinePluginWrapper
from arkdev.job.problems import KeyPath, Problem, dotted, make_error


class Origin(StrEnum):
    """Where a value comes from."""

    FILE = "file"
    DEFAULT = "default"
    INFERRED = "inferred"
    FLAG = "flag"
    WORKSPACE = "workspace"
    """The table of arkworkspace.toml for training on this machine."""


@dataclass(frozen=True)
class KeyEffect:
    """One key of a job, its value as text without secrets, and what it does."""

    key: str
    value: str
    origin: Origin
    where: str
    """file:line, or what decides a default or an inferred value."""
    capability: Capability


def effects_of(job: Job, local: LocalJob | None = None) -> list[KeyEffect]:
    """Return every key that the job gives, then what it leaves to known defaults.

    `local` has what stands in the place of the job's hyperparameters on this machine.
    """
    given = [_given(job, path, text) for path, text in _given_keys(job.config, ())]
    if local is None:
        return [_method(job), *given, *_defaults(job)]
    replaced = {_key(name): value for name, value in local.values.items()}
    rows = [_replaced(job, replaced.get(effect.key), effect) for effect in given]
    rows += [
        _replaced(job, value, None)
        for key, value in replaced.items()
        if key not in {effect.key for effect in given}
    ]
    defaults = [effect for effect in _defaults(job) if effect.key not in replaced]
    off = {_key(name): switch for name, switch in switched_off(local).items()}
    every = [_method(job), *rows, *defaults, *_local_defaults(local)]
    return [_without_effect(effect, off.get(effect.key)) for effect in every]


def refusals(job: Job, backend: BackendName, local: LocalJob | None = None) -> list[Problem]:
    """Return a problem for each key that `backend` would pass over, of those that are given."""
    return [
        Problem(effect.where, f"{effect.key} has no effect on {backend}: {on.text}; {on.instead}")
        for effect in effects_of(job, local)
        if (on := effect.capability.on(backend)).support is Support.REFUSED
        and effect.origin is not Origin.DEFAULT
    ]


def require_supported(job: Job, backend: BackendName, local: LocalJob | None = None) -> None:
    """Raise `JobError` when the job has keys that `backend` would pass over."""
    problems = refusals(job, backend, local)
    if problems:
        raise make_error(
            JobError, problems, hint=f"arkdev plan --backend {backend} says what each key does"
        )


def _method(job: Job) -> KeyEffect:
    method = job.customization_type
    is_given = job.config.customization_type is not None
    return KeyEffect(
        key="customization_type",
        value=method.value,
        origin=Origin.FILE if is_given else Origin.INFERRED,
        where=job.place(("customization_type",)) if is_given else f"from {method.pipeline}",
        capability=METHODS[method],
    )


def _given(job: Job, path: KeyPath, text: str) -> KeyEffect:
    key = dotted(path)
    is_yaml = job.source.suffix != ".py"
    is_inferred = path[-1] == "pipeline_type" and is_yaml and path not in job.lines
    return KeyEffect(
        key=key,
        value=text,
        origin=Origin.INFERRED if is_inferred else Origin.FILE,
        where=f"from {job.customization_type}" if is_inferred else job.place(path),
        capability=_capability(job, path),
    )


def _key(name: str) -> str:
    return dotted(("hyperparameters", name))


def _replaced(job: Job, value: LocalValue | None, effect: KeyEffect | None) -> KeyEffect:
    """The row of a value that is this machine's own; `effect` is the job's, if it gives one."""
    if value is None:
        assert effect is not None
        return effect
    where = value.place
    if effect is not None:
        where += f"; the job has {effect.value} ({effect.where})"
    return KeyEffect(
        key=_key(value.name),
        value=_text(value.value),
        origin=Origin.FLAG if value.is_flag else Origin.WORKSPACE,
        where=where,
        capability=_capability(job, ("hyperparameters", value.name)),
    )


def _without_effect(effect: KeyEffect, switch: Switch | None) -> KeyEffect:
    """What was set for this machine and does nothing is refused; of the job's it is only said."""
    if switch is None:
        return effect
    is_asked_for = effect.origin in (Origin.FLAG, Origin.WORKSPACE)
    here = Effect(
        Support.REFUSED if is_asked_for else Support.RECORDED,
        switch.reason if is_asked_for else f"no effect here: {switch.reason}",
        switch.instead if is_asked_for else "",
    )
    return replace(effect, capability=replace(effect.capability, local=here))


def _local_defaults(local: LocalJob) -> Iterator[KeyEffect]:
    for entry, value, source in own_defaults(local):
        yield KeyEffect(
            key=_key(entry.name),
            value=_text(value),
            origin=Origin.DEFAULT,
            where=source,
            capability=_capability(local.job, ("hyperparameters", entry.name)),
        )


def _capability(job: Job, path: KeyPath) -> Capability:
    if path[0] == "hyperparameters":
        name = str(path[1])
        if name in local_settings():
            return LOCAL_SETTING
        entry = catalogue().get(name)
        if entry is None:
            is_declared = name in job.declared_hyperparameters
            return DECLARED_HYPERPARAMETER if is_declared else UNKNOWN_HYPERPARAMETER
        if entry.part is Part.VALIDATION and not _has_validation(job):
            return WITHOUT_VALIDATION
        return HYPERPARAMETERS.get(name) or PARTS[entry.part]
    row = capability_of(path)
    assert row is not None, f"{dotted(path)} is not in the table of capabilities"
    return row


def _has_validation(job: Job) -> bool:
    data = job.config.data
    return data.validation_set is not None or data.validation_percentage is not None


def _given_keys(part: JobModel, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    """Yield each key that has a row of its own, with its value."""
    for name in type(part).model_fields:
        value, here = getattr(part, name), (*path, name)
        if value is None or value in ({}, []) or here == ("customization_type",):
            continue
        if isinstance(value, PipelinePluginWrapper):
            yield from _plugin(value, here)
        elif name == "graders":
            for index, grader in enumerate(value):
                yield from _plugin(grader, (*here, index))
        elif name == "hyperparameters":
            yield from (((name, key), _text(item)) for key, item in value.items())
        elif isinstance(value, JobModel) and dotted(here) not in KEYS:
            yield from _given_keys(value, here)
        else:
            yield here, _text(value)


def _plugin(plugin: PipelinePluginWrapper, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    """Names of variables only: their values may be secrets."""
    function = plugin.function
    name = function if isinstance(function, str) else getattr(function, "__qualname__", "")
    yield path, name or repr(function)
    if plugin.environment:
        yield (*path, "envs"), ", ".join(plugin.environment)
    if plugin.runtime:
        yield (*path, "runtime"), _text(plugin.runtime)
    if plugin.reward_weight is not None:
        yield (*path, "weight"), f"{plugin.reward_weight:g}"


def _text(value: Any) -> str:
    if isinstance(value, SecretStr):
        return "***"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, JobModel):
        fields = value.model_dump(exclude_none=True, mode="json")
        return _text(fields)
    if isinstance(value, dict):
        return ", ".join(f"{key}={_text(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return str(value)


def _defaults(job: Job) -> Iterator[KeyEffect]:
    pipeline = job.config.custom_rl_pipeline
    if pipeline is not None and pipeline.rollout is None:
        rollout = ("custom_rl_pipeline", "rollout")
        yield _default(job, rollout, "the built-in single-turn rollout", "CT-11")
    for index, grader in enumerate(pipeline.graders if pipeline else ()):
        if grader.reward_weight is None:
            yield _default(job, ("custom_rl_pipeline", "graders", index, "weight"), "1", "arkdev")
    for entry in entries_of(job.customization_type):
        default = entry.default_for(job.model_name or "")
        if default is not None and entry.name not in job.hyperparameters:
            path = ("hyperparameters", entry.name)
            yield _default(job, path, _text(default), entry.sources[0])


def _default(job: Job, path: KeyPath, value: str, source: str) -> KeyEffect:
    return KeyEffect(
        key=dotted(path),
        value=value,
        origin=Origin.DEFAULT,
        where=source,
        capability=_of_default(_capability(job, path)),
    )


def _of_default(capability: Capability) -> Capability:
    """A default that a backend would pass over is no error: nobody asked for it."""
    effects = {
        backend.value: replace(on, support=Support.RECORDED, instead="")
        for backend in BackendName
        if (on := capability.on(backend)).support is Support.REFUSED
    }
    return replace(capability, **effects)


def without_default(job: Job, *, is_local: bool = False) -> list[str]:
    """Return the method's hyperparameters that are not given and whose default is not known.

    `is_local`: nor is there one of this machine.
    """
    return [
        entry.name
        for entry in entries_of(job.customization_type)
        if entry.name not in job.hyperparameters
        and entry.default_for(job.model_name or "") is None
        and not (is_local and entry.name in OWN_DEFAULTS)
    ]
