"""Objects of a job.py that are wrong, kept while it is read so that all of them can be told.

Python stops at the first error. While arkdev reads a job.py, an object that is no valid part of a
job comes into being all the same, and the script goes on; what is wrong is told at the end, and no
job comes of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from arkdev.job.paths import shown_path
from arkdev.job.problems import KeyPath, Problem, dotted


@dataclass(frozen=True)
class InvalidObject:
    """One of them."""

    value: BaseModel
    error: ValidationError
    where: str
    """file:line of the call that made it."""


def unvalidated(cls: type[BaseModel], given: Mapping[str, Any]) -> BaseModel:
    """Make an object of whatever was given, unknown names included; defaults for the rest."""
    value: BaseModel = object.__new__(cls)
    fields = cls.model_fields.items()
    known = {name: field.get_default(call_default_factory=True) for name, field in fields}
    defaults = {name: known[name] for name, field in fields if not field.is_required()}
    private = {
        name: attribute.get_default() for name, attribute in cls.__private_attributes__.items()
    }
    for name, content in (
        ("__dict__", {**defaults, **given}),
        ("__pydantic_fields_set__", set(given)),
        ("__pydantic_extra__", None),
        ("__pydantic_private__", private or None),
    ):
        object.__setattr__(value, name, content)
    value.model_post_init(None)
    return value


def problems_of_objects(
    invalid: Sequence[InvalidObject],
    job: BaseModel | None,
    *,
    path: Path,
    lines: Mapping[KeyPath, int],
) -> list[Problem]:
    """Return all that is wrong with a job made of invalid objects, and with those beside it.

    A problem has the line of its key, where `lines` (of the script's text) has it, else that of the
    call that made the innermost invalid object around it.
    """
    places = {id(each.value): each.where for each in invalid}
    told: set[int] = set()
    problems = []
    for key, message in _errors_of(job) if job is not None else ():
        around = {
            depth: places[id(each)]
            for depth, each in enumerate(_objects_along(job, key))
            if id(each) in places
        }
        told.update(id(each) for each in _objects_along(job, key))
        depth = max(around, default=-1)
        num_known = max((end for end in range(1, len(key) + 1) if key[:end] in lines), default=0)
        if num_known > depth:
            where = (
                f"{shown_path(path)}:{lines[key[:num_known]]}" if num_known else shown_path(path)
            )
        else:
            where = _shown(around[depth])
        problems.append(_problem(where, key, message))
    for each in invalid:
        if id(each.value) not in told:
            found = describe_errors(each.error)
            problems += [_problem(_shown(each.where), key, message) for key, message in found]
    return problems


def _problem(where: str, key: KeyPath, message: str) -> Problem:
    return Problem(where, f"{dotted(key)}: {message}" if key else message)


def _shown(place: str) -> str:
    file, _, line = place.rpartition(":")
    return f"{shown_path(Path(file))}:{line}"


def describe_errors(error: ValidationError) -> list[tuple[KeyPath, str]]:
    """Return the place (a path of keys and indexes) and the sentence of each problem found."""
    return [
        (details["loc"], details["msg"])
        for details in error.errors(include_url=False, include_input=False)
    ]


def _errors_of(job: BaseModel) -> list[tuple[KeyPath, str]]:
    try:
        type(job).model_validate(job)
    except ValidationError as error:
        return describe_errors(error)
    return []


def _objects_along(job: Any, key: KeyPath) -> list[Any]:
    """Return the job and what stands on the way to a key, as far as it goes."""
    found, value = [job], job
    for part in key:
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list | tuple) and isinstance(part, int) and part < len(value):
            value = value[part]
        else:
            value = getattr(value, str(part), None)
        found.append(value)
    return found
