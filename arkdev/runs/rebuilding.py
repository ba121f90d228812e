"""Records out of the JSON of a run folder's lines, and what a line must not say."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from arkdev.errors import RunError
from arkdev.runs.records import (
    SCHEMA_VERSION,
    Attempt,
    FailedGrading,
    FaultRecord,
    FaultSide,
    GraderRecord,
    GroupRecord,
    HandledBy,
    TrajectoryRecord,
    TurnRecord,
    Verdict,
)

T = TypeVar("T")

NOT_A_RECORD = (TypeError, ValueError, KeyError, AttributeError)
"""What `built` raises."""


def no_record(kind: type, error: Exception, *, where: str) -> RunError:
    """Return the error for a line that `built` could not read."""
    return RunError(
        f"not a {kind.__name__} of schema version {SCHEMA_VERSION}: {error}",
        where=where,
        hint="the line was changed by something other than arkdev",
    )


_NESTED: dict[tuple[type, str], type] = {
    (TrajectoryRecord, "attempts"): Attempt,
    (TrajectoryRecord, "turns"): TurnRecord,
    (GroupRecord, "graders"): GraderRecord,
    (Attempt, "faults"): FaultRecord,
    (GraderRecord, "faults"): FaultRecord,
    (GraderRecord, "failed_attempts"): FailedGrading,
}


_WORDS: dict[str, type[StrEnum]] = {
    "verdict": Verdict,
    "side": FaultSide,
    "handled_by": HandledBy,
}


@dataclass(frozen=True)
class _Form:
    """How records of one kind are read."""

    readings: dict[str, Callable[[Any], Any] | None]
    """Each field, with what turns its JSON value into the record's own."""
    required: frozenset[str]
    defaults: dict[str, Any]


@functools.cache
def _form(kind: type) -> _Form:
    def reading(name: str) -> Callable[[Any], Any] | None:
        nested = _NESTED.get((kind, name))
        if nested is not None:
            return lambda value: tuple([built(nested, item) for item in value])
        numbers = _NUMBERS.get(name) if kind in (GraderRecord, GroupRecord) else None
        return numbers or _WORDS.get(name)

    fields = dataclasses.fields(kind)
    missing = dataclasses.MISSING
    return _Form(
        readings={field.name: reading(field.name) for field in fields},
        required=frozenset(
            f.name for f in fields if f.default is missing and f.default_factory is missing
        ),
        defaults={field.name: field.default for field in fields if field.default is not missing},
    )


def _number(value: Any) -> float:
    """JSON has no NaN and no infinity, but Python's reader takes them."""
    if isinstance(value, (int, float)) and abs(value) <= sys.float_info.max:
        return value
    raise ValueError(f"{value!r} is no finite number")


def _number_or_none(value: Any) -> float | None:
    return None if value is None else _number(value)


def _numbers(value: list[Any] | None) -> tuple[float | None, ...] | None:
    return None if value is None else tuple(map(_number_or_none, value))


def _lists_of_numbers(value: list[Any] | None) -> tuple[Any, ...] | None:
    return None if value is None else tuple(map(_numbers, value))


def _numbers_by_name(value: dict[str, Any]) -> dict[str, float]:
    return {name: _number(number) for name, number in value.items()}


def _metrics_of_calls(value: list[dict[str, Any]]) -> tuple[dict[str, float], ...]:
    return tuple(map(_numbers_by_name, value))


_NUMBERS: dict[str, Callable[[Any], Any]] = {
    "weight": _number,
    "rewards": _numbers,
    "metrics": _numbers_by_name,
    "call_metrics": _metrics_of_calls,
    "seq_advantages": _numbers,
    "tok_advantages": _lists_of_numbers,
}
"""Fields of gradings: what is computed with."""


def built(kind: type[T], document: dict[str, Any]) -> T:
    """Rebuild a record: lists become tuples, words verdicts; fields unknown here are left out.

    Raises `TypeError` for a missing field, `ValueError` for a group whose lists do not fit, and
    what a value of another kind brings.
    """
    form = _form(kind)  # type: ignore[arg-type]  # mypy sees no hash
    readings = form.readings
    values = form.defaults.copy()
    for name, value in document.items():
        if name not in readings:
            continue
        read = readings[name]
        if read is not None:
            value = read(value)
        elif type(value) is list:
            value = tuple(value)
        values[name] = value
    if not form.required <= values.keys() or len(values) < len(readings):
        record = kind(**values)  # fills in what is made anew for each, or says what is missing
    else:
        record = object.__new__(kind)
        record.__dict__.update(values)  # as __init__ does it field by field, in half the time
    if isinstance(record, GroupRecord):
        _check_lengths(record)
    return record


def _check_lengths(group: GroupRecord) -> None:
    """Whoever reads a group goes through its lists side by side."""
    number = len(group.trajectory_ids)
    lists: list[tuple[str, Sequence[Any] | None]] = [("rewards", group.rewards)]
    for grader in group.graders:
        lists += [
            (f"rewards of {grader.name}", grader.rewards),
            (f"seq_advantages of {grader.name}", grader.seq_advantages),
            (f"tok_advantages of {grader.name}", grader.tok_advantages),
        ]
    for name, values in lists:
        if values is not None and len(values) != number:
            raise ValueError(f"{len(values)} {name} for {number} trajectory_ids")
