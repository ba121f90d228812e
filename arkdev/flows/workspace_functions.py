"""The plugins of a workspace as functions: by name, with what its job says of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from arkdev.errors import UsageError
from arkdev.faas_emulator.functions import function_of
from arkdev.flows.faas_plan import PlannedFunction
from arkdev.flows.named_plugins import plugin_of_job
from arkdev.flows.plugin_references import reference_of
from arkdev.job.job import Job, PluginReference
from arkdev.job.workspace import Workspace
from arkdev.plugin.loading import LoadedPlugin, load_plugin

_NOT_IN_A_NAME = re.compile(r"[^\w.-]+")


def envs_of(reference: str, job: Job | None, *, root: Path) -> Mapping[str, str]:
    """Return the variables that the job gives a plugin; none when it does not name it."""
    named = _named_in(job, reference, root=root)
    return named.envs if named else {}


def loaded_function(reference: str, *, workspace: Workspace, job: Job | None) -> PlannedFunction:
    """Return a plugin, loaded, as a function; what the job says of it counts.

    Raises `PluginLoadError`, and `JobError` for limits of the job that are none.
    """
    root = workspace.root
    named = _named_in(job, reference, root=root)
    if job is None or named is None:
        loaded = load_plugin(reference, root=root)
        return _planned(loaded, name=loaded.plugin.name, envs={}, root=root)
    return _of_job(named, root=root, is_rollout=named is job.rollout)


def functions_of_job(job: Job, *, workspace: Workspace) -> tuple[PlannedFunction, ...]:
    """Return all plugins of a job as functions, the rollout first; the built-in one is none.

    Raises what `loaded_function` raises, and `UsageError` when there are none.
    """
    named = [(job.rollout, True)] if job.rollout else []
    named += [(grader, False) for grader in job.graders]
    if not named:
        raise UsageError(f"{job.source} names no plugin", hint="name one: --fn module:function")
    return with_names_for_urls(
        [_of_job(each, root=workspace.root, is_rollout=kind) for each, kind in named]
    )


def with_names_for_urls(functions: Sequence[PlannedFunction]) -> tuple[PlannedFunction, ...]:
    """Give each function a name of its own that can stand in a URL's path."""
    taken: set[str] = set()
    named = []
    for function in functions:
        plain = _NOT_IN_A_NAME.sub("-", function.spec.name)
        name, count = plain, 1
        while name in taken:
            count += 1
            name = f"{plain}-{count}"
        taken.add(name)
        named.append(replace(function, spec=replace(function.spec, name=name)))
    return tuple(named)


def _named_in(job: Job | None, reference: str, *, root: Path) -> PluginReference | None:
    if job is None:
        return None
    named = [*([job.rollout] if job.rollout else []), *job.graders]
    return next((each for each in named if _reference(each, root=root) == reference), None)


def _reference(named: PluginReference, *, root: Path) -> str:
    if isinstance(named.reference, str):
        return named.reference
    return reference_of(named.reference, root=root)


def _of_job(named: PluginReference, *, root: Path, is_rollout: bool) -> PlannedFunction:
    loaded = plugin_of_job(named, root=root, is_rollout=is_rollout)
    loaded = replace(loaded, reference=_reference(named, root=root))
    return _planned(loaded, name=named.name, envs=named.envs, root=root)


def _planned(
    loaded: LoadedPlugin, *, name: str, envs: Mapping[str, str], root: Path
) -> PlannedFunction:
    return PlannedFunction(loaded, function_of(loaded, root=root, envs=envs, name=name))
