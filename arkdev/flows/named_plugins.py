"""The plugins of a test by their names, in flags or in the job: loaded, of the right kind."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from arkdev.errors import ConfigurationError, JobError, UsageError
from arkdev.flows.environment import environment
from arkdev.flows.test_request import PluginTestRequest
from arkdev.harness.grading import Grader
from arkdev.job.job import Job, PluginReference
from arkdev.plugin.loading import LoadedPlugin, load_plugin, require_kind
from arkdev.plugin.runtime import Runtime

DEFAULT_ROLLOUT = "arkdev.plugin.default_rollout:single_turn"


def named_rollout(
    request: PluginTestRequest, job: Job | None, *, root: Path
) -> tuple[LoadedPlugin, Mapping[str, str]]:
    """Return the rollout of the flags, of the job, or the built-in one; and its variables."""
    if request.rollout is not None:
        return require_kind(load_plugin(request.rollout, root=root), is_rollout=True), {}
    if job is not None and job.rollout is not None:
        return plugin_of_job(job.rollout, root=root, is_rollout=True), job.rollout.envs
    if job is None and not request.graders:
        raise UsageError(
            f"no job.yaml or job.py in {root}, and neither --rollout nor --grader",
            hint="run `arkdev init DIR` for a workspace, or name the plugins: "
            "--rollout plugins.my_rollout:f --grader plugins.my_grader:g --data FILE",
        )
    return load_plugin(DEFAULT_ROLLOUT, root=root), {}


def named_graders(
    request: PluginTestRequest, job: Job | None, *, root: Path
) -> list[tuple[Grader, Mapping[str, str]]]:
    """Return the graders of the flags or of the job, each with its variables."""
    graders: list[tuple[Grader, Mapping[str, str]]]
    if request.graders:
        graders = [(_grader_of_flag(text, root=root), {}) for text in request.graders]
    elif job is not None and job.graders:
        graders = [
            (_grader_of_job(reference, root=root), reference.envs) for reference in job.graders
        ]
    else:
        raise UsageError(
            "no grader: a test needs at least one", hint="name it with --grader module:function"
        )
    if all(grader.weight == 0 for grader, _ in graders):
        raise JobError(
            "every grader has weight 0, so there is no final reward",
            where=str(job.source) if job and not request.graders else "",
            hint="give one grader a weight",
        )
    if not math.isfinite(sum(abs(grader.weight) for grader, _ in graders)):
        raise UsageError("the weights of the graders add up to more than the largest float")
    distinct = with_distinct_names([grader for grader, _ in graders])
    return [(grader, envs) for grader, (_, envs) in zip(distinct, graders, strict=True)]


def _grader_of_flag(text: str, *, root: Path) -> Grader:
    reference, separator, weight = text.partition("=")
    try:
        number = float(weight) if separator else 1.0
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UsageError(
            f"--grader {text}: {weight!r} is not a weight; a finite number is expected",
            hint="write --grader module:function=0.5",
        )
    loaded = require_kind(load_plugin(reference, root=root), is_rollout=False)
    return Grader(loaded, name=loaded.plugin.name, weight=number)


def _grader_of_job(reference: PluginReference, *, root: Path) -> Grader:
    loaded = plugin_of_job(reference, root=root, is_rollout=False)
    return Grader(loaded, name=reference.name, weight=reference.weight)


def plugin_of_job(reference: PluginReference, *, root: Path, is_rollout: bool) -> LoadedPlugin:
    """Load a plugin that the job names; what is wrong with it is also at the job's line.

    Its variables are set while its module is imported, as they are in a function.
    """
    try:
        with environment(reference.envs):
            loaded = load_plugin(reference.reference, root=root)
        return _with_runtime(require_kind(loaded, is_rollout=is_rollout), reference)
    except ConfigurationError as error:
        places = [error.where, f"named in {reference.where}" if reference.where else ""]
        error.where = ", ".join(place for place in places if place).removeprefix("named in ")
        raise


def _with_runtime(loaded: LoadedPlugin, reference: PluginReference) -> LoadedPlugin:
    """Let the limits that the job sets win over the decorator's (X-20)."""
    if not reference.runtime:
        return loaded
    runtime = Runtime(**{**loaded.plugin.runtime.model_dump(), **reference.runtime})
    return replace(loaded, plugin=replace(loaded.plugin, runtime=runtime))


def with_distinct_names(graders: Sequence[Grader]) -> list[Grader]:
    """Number graders that share a name, so that the report keeps them apart."""
    seen: dict[str, int] = {}
    named = []
    for grader in graders:
        seen[grader.name] = seen.get(grader.name, 0) + 1
        again = seen[grader.name]
        named.append(replace(grader, name=f"{grader.name}#{again}") if again > 1 else grader)
    return named
