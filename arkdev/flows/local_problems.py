"""What training on this machine refuses of a job's values, for `arkdev train` and `arkdev plan`."""

from __future__ import annotations

from collections.abc import Iterator

from arkdev.backends.local.answer_requests import MIN_TEMPERATURE
from arkdev.backends.local.settings import Correction, UpdateSettings
from arkdev.errors import ConfigurationError
from arkdev.flows.debug_records import loss_mode
from arkdev.harness.loss_weights import LossAggMode
from arkdev.job.local_values import LocalJob
from arkdev.job.problems import Problem


def local_problems(local: LocalJob) -> list[Problem]:
    """Return a problem for each value that cannot be meant, or would have no effect."""
    job = local.job
    problems = [*_of_temperature(local)]
    if loss_mode(job) is None:
        known = ", ".join(LossAggMode)
        given = job.hyperparameters["loss_agg_mode"]
        problems.append(
            Problem(
                place_of(local, "loss_agg_mode"),
                f"loss_agg_mode {given!r}: arkdev knows {known}",
            )
        )
    try:
        update = UpdateSettings.from_hyperparameters(job.hyperparameters)
    except ConfigurationError as error:
        texts = error.problems or (error.message,)
        return [*problems, *(Problem(place_of(local, _named(text)), text) for text in texts)]
    return [*problems, *_without_effect(local, update)]


def place_of(local: LocalJob, name: str) -> str:
    """Return where a value stands."""
    value = local.values.get(name)
    return value.place if value is not None else local.job.place(("hyperparameters", name))


def _of_temperature(local: LocalJob) -> Iterator[Problem]:
    given = local.job.hyperparameters.get("temperature")
    if not isinstance(given, (int, float)) or given >= MIN_TEMPERATURE:
        return
    text = f"temperature is {given:g}: the sampler takes {MIN_TEMPERATURE:g} or more"
    if given == 0:
        text = (
            "temperature is 0: the answers of a group would all be the same, and of no "
            "distribution that can be trained"
        )
    yield Problem(place_of(local, "temperature"), text)


def _named(text: str) -> str:
    """Return the value that a problem of `UpdateSettings` begins with."""
    return text.partition("=")[0].partition(" ")[0]


def _without_effect(local: LocalJob, update: UpdateSettings) -> Iterator[Problem]:
    """Yield settings of a part of the loss that is off."""
    off: dict[str, str] = {}
    if not update.kl_coefficient:
        off |= dict.fromkeys(("kl_estimator", "kl_place"), "kl_coefficient is 0")
    if update.correction is Correction.NONE:
        off |= dict.fromkeys(("correction_cap", "correction_floor"), "correction is none")
    for name, why in off.items():
        if name in local.values:
            yield Problem(place_of(local, name), f"{name} has no effect: {why}")
