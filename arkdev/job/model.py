"""The root of the job models: strict about keys, quiet about values, helpful about spelling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    ValidationError,
    model_validator,
)
from pydantic.functional_validators import ModelWrapValidatorHandler
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from arkdev.job.hyperparameters import KNOWN_NAMES
from arkdev.job.spelling import unknown_name

_KEYS_OF_PLACES = {
    "data": ("training_set", "validation_set", "validation_percentage"),
    "data.training_set": ("local_files", "tos_bucket", "tos_paths", "datasets"),
    "custom_rl_pipeline": ("pipeline_type", "rollout", "graders", "teachers"),
    "model_reference": ("foundation_model", "custom_model_id"),
    "model_reference.foundation_model": ("model_version",),
    "debug_config": ("apikey", "endpoint_id"),
    "a plugin, beside its name": ("python_func",),
    "hyperparameters": tuple(sorted(KNOWN_NAMES)),
    "the top level of the job": (
        "customization_type",
        "model_reference",
        "data",
        "custom_rl_pipeline",
        "enable_trajectory",
        "hyperparameters",
        "save_model_limit",
        "debug_config",
        "resource_group",
    ),
}
_PLACE_OF_KEY = {key: place for place, keys in _KEYS_OF_PLACES.items() for key in keys}


class JobModel(BaseModel):
    """A part of the job. An unknown key is an error that names the key that was meant.

    Errors never show the values, because one of them may be an API key.
    """

    model_config = ConfigDict(
        extra="forbid",
        hide_input_in_errors=True,
        protected_namespaces=(),  # fields such as model_reference, under pydantic before 2.10
        revalidate_instances="always",
    )

    @model_validator(mode="wrap")
    @classmethod
    def _explain_errors(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return handler(value)
        except ValidationError as error:
            found = [
                _line_error(cls._sentence(details), details["loc"])
                for details in error.errors(include_url=False, include_input=False)
            ]
            raise ValidationError.from_exception_data(cls.__name__, found) from None

    @classmethod
    def _sentence(cls, details: ErrorDetails) -> str:
        if details["type"] in ("model_type", "model_attributes_type", "dict_type"):
            return "a mapping of keys and values is expected here"
        if details["type"] != "extra_forbidden":
            return details["msg"].removeprefix("Value error, ")
        key = str(details["loc"][-1])
        place = _PLACE_OF_KEY.get(key)
        if place:
            return f"misplaced key {key!r}; it belongs in {place}"
        return unknown_name("key", key, known=cls.model_fields)


def _line_error(sentence: str, place: tuple[str | int, ...]) -> InitErrorDetails:
    problem = PydanticCustomError("job", sentence)
    return InitErrorDetails(type=problem, loc=place, input=None)


def located_errors(problems: Mapping[str, str]) -> ValidationError:
    """Return the error of a mapping's validator, with the problem of each of its keys."""
    found = [_line_error(sentence, (key,)) for key, sentence in problems.items()]
    return ValidationError.from_exception_data("mapping", found)


def describe_errors(error: ValidationError) -> list[tuple[tuple[str | int, ...], str]]:
    """Return the place (a path of keys and indexes) and the sentence of each problem found."""
    return [
        (details["loc"], details["msg"])
        for details in error.errors(include_url=False, include_input=False)
    ]


def dotted(place: tuple[str | int, ...]) -> str:
    """Write a path of keys and indexes as it is spoken: ``graders[0].plugin.name``."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return "".join(parts).removeprefix(".")
