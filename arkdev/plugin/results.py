"""What a plugin returned, read by the contract (SURFACE ROLL-05..10, GRADE-04..13, Y-01..06).

Whatever the contract does not allow is a `PluginResultError`; nothing is ever replaced by 0.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from pydantic import BaseModel, ValidationError

from arkdev.errors import PluginResultError
from arkdev.plugin.decorators import Plugin, PluginKind
from arkdev.types import (
    GroupGraderResult,
    GroupRolloutResult,
    PluginStatus,
    Record,
    RolloutResult,
    SingleGraderResult,
)


def read_rollout_result(value: Any, *, plugin: Plugin) -> RolloutResult:
    """Return what a single rollout said: None means success, dicts and records are read."""
    if value is None:
        return RolloutResult()
    fields = _fields(value)
    if fields is None:
        raise PluginResultError(
            f"{plugin.name} returned {_kind_of(value)}",
            where=plugin.place,
            hint="a rollout returns RolloutResult(status=..., extra=...), a dict like it, or None",
        )
    return _validate(RolloutResult, fields, plugin=plugin)  # type: ignore[return-value]


def read_group_rollout_result(value: Any, *, plugin: Plugin, n_sample: int) -> GroupRolloutResult:
    """Return what a group rollout said: with status success, `n_sample` responses (GROUP-10)."""
    fields = _fields(value) if value is not None else None
    if fields is None:
        raise PluginResultError(
            f"{plugin.name} returned {_kind_of(value)}",
            where=plugin.place,
            hint="a group rollout returns GroupRolloutResult(responses=[SingleResponse(id=...)])",
        )
    result: GroupRolloutResult = _validate(GroupRolloutResult, fields, plugin=plugin)  # type: ignore[assignment]
    if result.status is PluginStatus.SUCCESS and len(result.responses) != n_sample:
        raise PluginResultError(
            f"{plugin.name} returned {len(result.responses)} responses for n_sample={n_sample}",
            where=plugin.place,
            hint="return one SingleResponse for each of the n_sample trajectories",
        )
    return result


def read_grader_result(
    value: Any, *, plugin: Plugin, num_trajectories: int, num_tokens: list[int] | None = None
) -> GroupGraderResult:
    """Return what a grader said of `num_trajectories` trajectories, as the group form.

    A single grader (one trajectory) may return a bare number, a group grader a list of numbers.
    With status success there is one finite reward for each trajectory. `num_tokens` gives the
    length of `total_token_ids` of each trajectory, when known, to check `tok_advantages` against.
    """
    result = _as_group_result(value, plugin=plugin)
    if result.status is not PluginStatus.SUCCESS:
        return result
    _check_length("rewards", result.rewards, num_trajectories, plugin=plugin)
    for index, reward in enumerate(result.rewards):
        _check_finite(f"rewards[{index}]", reward, plugin=plugin)
    _check_advantages(result, num_trajectories, num_tokens, plugin=plugin)
    return result


def _as_group_result(value: Any, *, plugin: Plugin) -> GroupGraderResult:
    is_single = plugin.kind is PluginKind.SINGLE_GRADER
    fields: dict[str, Any] | None
    if is_single and _is_number(value):
        fields = {"rewards": [float(value)]}
    elif not is_single and isinstance(value, (list, tuple)):
        fields = {"rewards": [float(item) if _is_number(item) else item for item in value]}
    else:
        fields = _fields(value)
    if fields is None:
        expected = "SingleGraderResult or a number" if is_single else "GroupGraderResult or a list"
        raise PluginResultError(
            f"{plugin.name} returned {_kind_of(value)}, so there is no reward",
            where=plugin.place,
            hint=f"a {plugin.kind.value} returns {expected}",
        )
    if is_single and "rewards" not in fields:
        single = _validate(SingleGraderResult, fields, plugin=plugin)
        rewards = [] if single["reward"] is None else [single["reward"]]
        fields = {**fields, "rewards": rewards}
        fields.pop("reward", None)
    elif "rewards" not in fields and fields.get("status", "success") == PluginStatus.SUCCESS:
        raise PluginResultError(
            f"{plugin.name} returned a result without rewards (it has {', '.join(fields)})",
            where=plugin.place,
            hint="a group grader returns rewards=[...], one for each trajectory",
        )
    return _validate(GroupGraderResult, fields, plugin=plugin)  # type: ignore[return-value]


def _fields(value: Any) -> dict[str, Any] | None:
    """Return the fields of a result, to be read afresh: a record may change after it was made.

    Any pydantic model will do: with ``--real-ark-sdk`` the classes are not ours.
    """
    if isinstance(value, dict):
        return value
    if isinstance(value, BaseModel):
        return dict(BaseModel.__iter__(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return None


def _validate(record: type[Record], fields: dict[str, Any], *, plugin: Plugin) -> Record:
    try:
        return record(**fields)
    except ValidationError as error:
        problem = error.errors()[0]
        name = ".".join(str(part) for part in problem["loc"])
        raise PluginResultError(
            f"{plugin.name} returned {name}={problem['input']!r}: {problem['msg']}",
            where=plugin.place,
            hint=f"{record.__name__} has " + ", ".join(record.model_fields),
        ) from None


def _check_length(name: str, values: list[Any], expected: int, *, plugin: Plugin) -> None:
    if len(values) != expected:
        raise PluginResultError(
            f"{plugin.name} returned {len(values)} {name} for {expected} trajectories",
            where=plugin.place,
            hint="return one for each trajectory, in order",
        )


def _check_finite(name: str, value: float, *, plugin: Plugin) -> None:
    if not math.isfinite(value):
        raise PluginResultError(
            f"{plugin.name} returned {name}={value}, which is not a finite number",
            where=plugin.place,
            hint="return status=PluginStatus.DISCARD or FAILURE when there is no reward",
        )


def _check_advantages(
    result: GroupGraderResult, expected: int, num_tokens: list[int] | None, *, plugin: Plugin
) -> None:
    if result.seq_advantages is not None and result.tok_advantages is not None:
        raise PluginResultError(
            f"{plugin.name} returned both seq_advantages and tok_advantages",
            where=plugin.place,
            hint="return one kind (the contract allows no mixture in one call)",
        )
    if result.seq_advantages is not None:
        _check_length("seq_advantages", result.seq_advantages, expected, plugin=plugin)
        for index, advantage in enumerate(result.seq_advantages):
            _check_finite(f"seq_advantages[{index}]", advantage, plugin=plugin)
    if result.tok_advantages is not None:
        _check_length("tok_advantages", result.tok_advantages, expected, plugin=plugin)
        for index, row in enumerate(result.tok_advantages):
            if num_tokens is not None and len(row) != num_tokens[index]:
                raise PluginResultError(
                    f"{plugin.name} returned {len(row)} tok_advantages for trajectory {index}, "
                    f"which has {num_tokens[index]} tokens",
                    where=plugin.place,
                )
            for position, advantage in enumerate(row):
                _check_finite(f"tok_advantages[{index}][{position}]", advantage, plugin=plugin)


def _is_number(value: Any) -> bool:
    # numpy scalars and 0-d arrays answer __float__ as well; text does not
    return hasattr(type(value), "__float__") and not _is_array(value)


def _is_array(value: Any) -> bool:
    return bool(getattr(value, "shape", ()))


def _kind_of(value: Any) -> str:
    return "nothing (None)" if value is None else f"{value!r} ({type(value).__name__})"
