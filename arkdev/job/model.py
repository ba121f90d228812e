"""The root of the job models: strict about keys, quiet about values, helpful about spelling."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    ValidationError,
    model_validator,
)
from pydantic.functional_validators import ModelWrapValidatorHandler
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from arkdev.job.capture import current_capture
from arkdev.job.catalogue import catalogue
from arkdev.job.invalid_objects import InvalidObject, unvalidated
from arkdev.job.problems import KeyPath
from arkdev.job.spelling import unknown_name
from arkdev.plugin.source import callers_place

_KEYS_OF_PLACES = {
    "data": (
        "training_set",
        "validation_set",
        "validation_percentage",
        "preset_dataset",
        "max_invalid_records_ratio",
        "max_invalid_records_number",
    ),
    "data.training_set": ("local_files", "tos_bucket", "tos_paths", "datasets"),
    "an entry of data.training_set.datasets": ("dataset_id", "multiplier", "sample_count"),
    "data.preset_dataset": ("inject_multiplier", "inject_sample_count"),
    "custom_rl_pipeline": ("pipeline_type", "rollout", "graders", "teachers"),
    "model_reference": ("foundation_model", "custom_model_id"),
    "model_reference.foundation_model": ("model_version",),
    "debug_config": ("apikey", "endpoint_id"),
    "a plugin, beside its name": ("python_func", "runtime"),
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
        "tags",
    ),
}


@cache
def _place_of_key() -> dict[str, str]:
    places = {key: place for place, keys in _KEYS_OF_PLACES.items() for key in keys}
    return {**dict.fromkeys(catalogue(), "hyperparameters"), **places}


def _no_boolean(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("a number is expected, not a boolean")
    return value


NoBoolean = BeforeValidator(_no_boolean)
"""For numbers: Python would take True for 1."""


if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)


class _KeptWhileRead(ModelMetaclass):
    """Lets invalid objects be made while a job.py is read (`arkdev.job.invalid_objects`)."""

    def __call__(cls, *args: Any, **given: Any) -> Any:
        """Make an object. Raises `ValidationError` for an invalid one, unless it is kept."""
        try:
            return super().__call__(*args, **given)
        except ValidationError as error:
            capture = current_capture()
            if capture is None:
                raise
            value = unvalidated(cast(type[BaseModel], cls), given)
            capture.invalid.append(InvalidObject(value, error, callers_place()))
            return value


NO_CHARACTER = "half a surrogate pair (a \\uD8.. or \\uDC.. alone) is no character"


class JobModel(BaseModel, metaclass=_KeptWhileRead):
    """A part of the job. An unknown key is an error that names the key that was meant.

    Errors never show the values, because one of them may be an API key. What keys say to each other
    is checked whatever else is wrong, so that all of it is told at once.
    """

    excluding: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """Keys of which only one may be given."""
    required_one: ClassVar[tuple[str, ...]] = ()
    """Keys of which exactly one has to be given."""

    model_config = ConfigDict(
        extra="forbid",
        hide_input_in_errors=True,
        protected_namespaces=(),  # fields such as model_reference, under pydantic before 2.10
        revalidate_instances="always",
    )

    @model_validator(mode="wrap")
    @classmethod
    def _explain_errors(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        found: list[InitErrorDetails] = []
        model = None
        try:
            model = handler(value)
        except ValidationError as error:
            found += [
                _line_error(cls._sentence(details), details["loc"])
                for details in error.errors(include_url=False, include_input=False)
            ]
        given = _given(value)
        if given is not None:
            told = {details["loc"][0] for details in found if details["loc"]}
            found += [
                _line_error(NO_CHARACTER, (name,))
                for name, item in given.items()
                if name not in told and isinstance(item, str) and not is_encodable(item)
            ]
            found += [_line_error(text, place) for place, text in cls.conflicts(given).items()]
        if found or model is None:
            raise ValidationError.from_exception_data(cls.__name__, found)
        return model

    @classmethod
    def conflicts(cls, given: Mapping[str, Any]) -> dict[KeyPath, str]:
        """Return what is wrong between the keys that were `given` (not None), by its place.

        Their values are as they were written: objects or plain dicts, valid or not.
        """
        problems: dict[KeyPath, str] = {}
        for names in (*cls.excluding, cls.required_one):
            there = [name for name in names if name in given]
            if len(there) > 1:
                problems[(there[-1],)] = f"{' and '.join(there)} exclude each other; give one"
        if cls.required_one and not any(name in given for name in cls.required_one):
            problems[()] = f"one of {' and '.join(cls.required_one)} is missing"
        return problems

    @classmethod
    def _sentence(cls, details: ErrorDetails) -> str:
        if details["type"] in ("model_type", "model_attributes_type", "dict_type"):
            return "a mapping of keys and values is expected here"
        if details["type"] != "extra_forbidden":
            return details["msg"].removeprefix("Value error, ")
        key = str(details["loc"][-1])
        place = _place_of_key().get(key)
        if place:
            return f"misplaced key {key!r}; it belongs in {place}"
        return unknown_name("key", key, known=cls.model_fields)


def is_encodable(text: str) -> bool:
    """Tell whether files and requests can hold a text: not when it has half a surrogate pair."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _given(value: Any) -> Mapping[str, Any] | None:
    if isinstance(value, JobModel):
        value = vars(value)
    if not isinstance(value, dict):
        return None
    return {name: item for name, item in value.items() if item is not None}


def part_of(whole: Any, name: str) -> Any:
    """Return the value of `name` in an object or a plain dict of the job; None when it has none."""
    return whole.get(name) if isinstance(whole, dict) else getattr(whole, name, None)


def _line_error(sentence: str, place: KeyPath) -> InitErrorDetails:
    problem = PydanticCustomError("job", sentence)
    return InitErrorDetails(type=problem, loc=place, input=None)


def located_errors(problems: Mapping[str, str]) -> ValidationError:
    """Return the error of a mapping's validator, with the problem of each of its keys."""
    found = [_line_error(sentence, (key,)) for key, sentence in problems.items()]
    return ValidationError.from_exception_data("mapping", found)
