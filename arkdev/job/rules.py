"""What the keys of a job say to each other: method, pipeline, data, hyperparameters.

The rules look at a job as it was written, objects or plain dicts, so that they hold also while
other keys of it are wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from arkdev.job.hyperparameters import misused_names
from arkdev.job.methods import DEFAULT_PIPELINE, METHOD_OF_PIPELINE, RL_METHODS, CustomizationType
from arkdev.job.model import part_of
from arkdev.job.problems import KeyPath

_TOLERANCE = ("max_invalid_records_ratio", "max_invalid_records_number")


def job_conflicts(given: Mapping[str, Any]) -> dict[KeyPath, str]:
    """Return a sentence for each conflict between the keys of a job, by its place."""
    method = method_of(given)
    if method is None:
        is_silent = "customization_type" not in given and "custom_rl_pipeline" not in given
        return {(): "customization_type is missing, and no pipeline says it"} if is_silent else {}
    problems = _pipeline_conflicts(given, method=method)
    if not method.is_rl:
        problems |= _rl_only(given, method=method)
    values = given.get("hyperparameters")
    if isinstance(values, dict):
        misused = misused_names(values, method=method)
        problems |= {("hyperparameters", name): text for name, text in misused.items()}
    return problems


def method_of(given: Mapping[str, Any]) -> CustomizationType | None:
    """Return the method, given or said by the pipeline; None when it cannot be told."""
    named = given.get("customization_type")
    if named is not None:
        return CustomizationType.__members__.get(str(named))
    if "custom_rl_pipeline" not in given:
        return None
    kind = part_of(given["custom_rl_pipeline"], "pipeline_type") or DEFAULT_PIPELINE
    return METHOD_OF_PIPELINE.get(str(kind))


def _pipeline_conflicts(
    given: Mapping[str, Any], *, method: CustomizationType
) -> dict[KeyPath, str]:
    pipeline = given.get("custom_rl_pipeline")
    if pipeline is None:
        sentence = f"{method} needs a custom_rl_pipeline with at least one grader"
        return {(): sentence} if method.is_rl else {}
    place = ("custom_rl_pipeline",)
    if method.pipeline is None:
        names = ", ".join(RL_METHODS)
        return {place: f"{method} takes no custom_rl_pipeline; the methods that do are {names}"}
    kind = part_of(pipeline, "pipeline_type")
    if kind in METHOD_OF_PIPELINE and kind != method.pipeline:
        return {place: f"{method} takes a {method.pipeline}, not a {kind}"}
    return {}


def _rl_only(given: Mapping[str, Any], *, method: CustomizationType) -> dict[KeyPath, str]:
    """Keys that mean something in RL only (JOB-28, JOB-33, DBG-01)."""
    problems: dict[KeyPath, str] = {
        (name,): f"{method} has no {what}; take it out"
        for name, what in (
            ("enable_trajectory", "trajectories"),
            ("debug_config", "debug jobs"),
        )
        if name in given
    }
    data = given.get("data")
    for name in _TOLERANCE:
        if part_of(data, name) is not None:
            sentence = "only RL of models that see images can leave out invalid records"
            problems[("data", name)] = f"{sentence}; {method} cannot"
    return problems
