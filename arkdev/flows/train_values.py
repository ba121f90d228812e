"""Values that a training on this machine cannot run with: `arkdev plan` tells of them too."""

from __future__ import annotations

from arkdev.backends.local.answer_requests import MIN_TEMPERATURE
from arkdev.backends.local.settings import UpdateSettings
from arkdev.errors import ConfigurationError
from arkdev.flows.debug_records import loss_mode
from arkdev.harness.loss_weights import LossAggMode
from arkdev.job.local_values import LocalJob
from arkdev.job.problems import Problem


def value_problems(local: LocalJob) -> list[Problem]:
    """Return what is wrong with the values of a job on this machine, each with its place."""
    values = local.job.hyperparameters
    found = []
    if loss_mode(local.job) is None:
        message = (
            f"loss_agg_mode {values['loss_agg_mode']!r}: arkdev knows {', '.join(LossAggMode)}"
        )
        found.append(Problem(place_of_value(local, "loss_agg_mode"), message))
    temperature = values.get("temperature")
    if isinstance(temperature, int | float) and temperature < MIN_TEMPERATURE:
        message = (
            "temperature is 0: the answers of a group would all be the same, and of no "
            "distribution that can be trained; --set temperature=1, or another one above 0"
            if temperature == 0
            else f"temperature is {temperature:g}: the sampler takes {MIN_TEMPERATURE:g} or more; "
            "--set temperature=1"
        )
        found.append(Problem(place_of_value(local, "temperature"), message))
    if values.get("thinking") == {"type": "custom"}:
        message = "thinking is custom: a model on this machine has enabled, disabled and auto"
        found.append(Problem(place_of_value(local, "thinking"), message))
    try:
        UpdateSettings.from_hyperparameters(values)
    except ConfigurationError as error:
        told = f"{error.message}; {error.hint}" if error.hint else error.message
        for text in error.problems or (told,):
            found.append(Problem(place_of_value(local, _named(text)), text))
    return found


def place_of_value(local: LocalJob, name: str) -> str:
    """Return where the value of a hyperparameter stands."""
    value = local.values.get(name)
    return value.place if value is not None else local.job.place(("hyperparameters", name))


def _named(text: str) -> str:
    """Return the value that a problem of `UpdateSettings` begins with."""
    return text.partition("=")[0].partition(" ")[0]
