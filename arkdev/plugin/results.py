"""What a plugin returned, read by the contract (SURFACE ROLL-05..10, GRADE-04..13, Y-01..06).

Whatever the contract does not allow is a `PluginResultError`; nothing is ever replaced by 0.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import math
import reprlib
from typing import Any

from pydantic import BaseModel, ValidationError

from arkdev.errors import PluginResultError
from arkdev.plugin.decorators import Plugin, PluginKind
from arkdev.plugin.plain import frozen_copy
from arkdev.types import (
    GroupGraderResult,
    GroupRolloutResult,
    PluginStatus,
    Record,
    RolloutResult,
    SingleGraderResult,
    SingleResponse,
)

_CLOSE_ENOUGH = 0.8
_NO_NUMBERS = ("bool", "complex", "object")
"""In the dtype of a numpy or torch scalar that is no real number."""
_ADVANTAGES = ("seq_advantages", "tok_advantages")
_MAX_ADVANTAGE = 3.4028235e38
"""What 32 bits hold, in which the training engine works."""
_REPR = reprlib.Repr()  # it survives objects whose __repr__ raises
_REPR.maxstring = _REPR.maxother = 200


def read_rollout_result(value: Any, *, plugin: Plugin) -> RolloutResult:
    """Return what a single rollout said: None means success, dicts and records are read.

    `extra` and `config` are copies: what the plugin changes in its own afterwards changes nothing.
    """
    if value is None:
        return RolloutResult()
    fields = _fields(value, RolloutResult)
    if fields is not None:
        _check_keys(value, fields, RolloutResult, plugin=plugin)
    if fields is None or not fields.keys() & {"status", "extra", "config"}:
        raise PluginResultError(
            f"{plugin.name} returned {_kind_of(value)}",
            where=plugin.place,
            hint=_what_it_lacks(value)
            or "a rollout returns RolloutResult(status=..., extra=...), a dict like it, or None",
        )
    _check_error_has_status(value, fields, plugin=plugin)
    kept: dict[str, Any] = {
        key: frozen_copy(fields[key]) for key in ("extra", "config") if key in fields
    }
    return _validate(RolloutResult, {**fields, **kept}, plugin=plugin)  # type: ignore[return-value]


def read_group_rollout_result(value: Any, *, plugin: Plugin, n_sample: int) -> GroupRolloutResult:
    """Return what a group rollout said: with status success, `n_sample` responses (GROUP-10)."""
    fields = _fields(value, GroupRolloutResult)
    if fields is None:
        raise PluginResultError(
            f"{plugin.name} returned {_kind_of(value)}",
            where=plugin.place,
            hint=_what_it_lacks(value)
            or "a group rollout returns GroupRolloutResult(responses=[SingleResponse(id=...)])",
        )
    _check_keys(value, fields, GroupRolloutResult, plugin=plugin)
    _check_error_has_status(value, fields, plugin=plugin)
    result: GroupRolloutResult = _validate(GroupRolloutResult, fields, plugin=plugin)  # type: ignore[assignment]
    if result.status is PluginStatus.SUCCESS and len(result.responses) != n_sample:
        raise PluginResultError(
            f"{plugin.name} returned {len(result.responses)} responses for n_sample={n_sample}",
            where=plugin.place,
            hint="return one SingleResponse for each of the n_sample trajectories",
        )
    responses = []
    for response in result.responses:
        _check_keys({}, dict(response.items()), SingleResponse, plugin=plugin)
        responses.append(response.model_copy(update={"extra": frozen_copy(response.extra)}))
    return result.model_copy(update={"responses": responses})


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
    record: type[Record] = SingleGraderResult if is_single else GroupGraderResult
    fields: dict[str, Any] | None
    if is_single and not isinstance(value, bool) and _is_number(value):
        fields = {"rewards": [value]}
    elif not is_single and _is_list(value):
        fields = {"rewards": list(value)}
    else:
        fields = _fields(value, record, GroupGraderResult)
        if fields is not None:
            _check_keys(value, fields, record, plugin=plugin)
    if fields is None:
        expected = "SingleGraderResult or a number" if is_single else "GroupGraderResult or a list"
        raise PluginResultError(
            f"{plugin.name} returned {_kind_of(value)}, so there is no reward",
            where=plugin.place,
            hint=_what_it_lacks(value) or f"a {plugin.kind.value} returns {expected}",
        )
    if "reward" in fields and "rewards" in fields:
        raise PluginResultError(
            f"{plugin.name} returned both reward and rewards",
            where=plugin.place,
            hint="return " + ("reward" if is_single else "rewards") + " alone",
        )
    if is_single and any(fields.get(key) is not None for key in _ADVANTAGES):
        raise PluginResultError(
            f"{plugin.name} returned advantages",
            where=plugin.place,
            hint="only a group_grader, which sees all trajectories of the group, may give them",
        )
    if is_single and "rewards" not in fields:
        reward = fields.get("reward")
        fields = {key: item for key, item in fields.items() if key != "reward"}
        fields["rewards"] = [] if reward is None else [reward]
    elif "rewards" not in fields and fields.get("status", "success") == PluginStatus.SUCCESS:
        raise PluginResultError(
            f"{plugin.name} returned a result without rewards (it has {', '.join(fields)})",
            where=plugin.place,
            hint="a group grader returns rewards, one for each trajectory",
        )
    return _validate(GroupGraderResult, _with_numbers(fields, plugin=plugin), plugin=plugin)  # type: ignore[return-value]


def _with_numbers(fields: dict[str, Any], *, plugin: Plugin) -> dict[str, Any]:
    """Return `fields` with all numbers as floats; text is never read as a number."""
    metrics = fields.get("metrics")
    read: dict[str, Any] = {}
    for key in ("rewards", "seq_advantages"):
        if _is_list(fields.get(key)):
            read[key] = _numbers(key, fields[key], plugin=plugin)
    rows: Any = fields.get("tok_advantages")
    if isinstance(rows, (list, tuple)) or _shape(rows):
        read["tok_advantages"] = [
            _numbers(f"tok_advantages[{index}]", row, plugin=plugin) if _is_list(row) else row
            for index, row in enumerate(rows)
        ]
    if isinstance(metrics, dict):
        read["metrics"] = {
            str(key): float(item)
            if isinstance(item, bool)
            else _number(f"metrics.{key}", item, plugin=plugin)
            for key, item in metrics.items()
        }
    return {**fields, **read}


def _numbers(name: str, values: Any, *, plugin: Plugin) -> list[float]:
    return [
        item if type(item) is float else _number(f"{name}[{index}]", item, plugin=plugin)
        for index, item in enumerate(values)
    ]


def _fields(value: Any, *records: type[Record]) -> dict[str, Any] | None:
    """Return the fields of a result, to be read afresh: a record may change after it was made.

    Any other pydantic model with a status will do as well: with ``--real-ark-sdk`` the classes are
    not ours. None for what is no result: another record of the contract, a model's answer.
    """
    if isinstance(value, dict):
        return value
    if isinstance(value, Record):
        return dict(BaseModel.__iter__(value)) if isinstance(value, records) else None
    if isinstance(value, BaseModel):
        fields = dict(BaseModel.__iter__(value))
        return fields if "status" in fields else None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return None


def _check_keys(
    value: Any, fields: dict[str, Any], record: type[Record], *, plugin: Plugin
) -> None:
    """Refuse a key that has no effect: in a dict any unknown one, in a record a misspelt one."""
    known = [*record.model_fields]
    if record is SingleGraderResult:
        known.append("rewards")  # the group form with one reward is read too
    for key in fields:
        near = difflib.get_close_matches(str(key), known, n=1, cutoff=_CLOSE_ENOUGH)
        if key in known or not (near or (isinstance(value, dict) and value)):
            continue
        raise PluginResultError(
            f"{plugin.name} returned a result with the unknown key {key!r}",
            where=plugin.place,
            hint=f"did you mean {near[0]!r}?" if near else f"its keys are {', '.join(known)}",
        )


def _check_error_has_status(value: Any, fields: dict[str, Any], *, plugin: Plugin) -> None:
    """Refuse an error text in a result that would count as success for want of a status."""
    given = value.model_fields_set if isinstance(value, BaseModel) else fields
    if fields.get("error") and "status" not in given:
        raise PluginResultError(
            f"{plugin.name} returned the error {fields['error']!r} without a status",
            where=plugin.place,
            hint="add status=PluginStatus.FAILURE (or DISCARD, RETRY)",
        )


def _validate(record: type[Record], fields: dict[str, Any], *, plugin: Plugin) -> Record:
    try:
        return record(**fields)
    except ValidationError as error:
        problem = error.errors()[0]
        name = ".".join(str(part) for part in problem["loc"])
        if plugin.kind is PluginKind.SINGLE_GRADER:  # what it returns is read as the group form
            record = SingleGraderResult
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
        _check_range("seq_advantages", result.seq_advantages, plugin=plugin)
    if result.tok_advantages is not None:
        _check_length("tok_advantages", result.tok_advantages, expected, plugin=plugin)
        for index, row in enumerate(result.tok_advantages):
            if num_tokens is not None and len(row) != num_tokens[index]:
                raise PluginResultError(
                    f"{plugin.name} returned {len(row)} tok_advantages for trajectory {index}, "
                    f"which has {num_tokens[index]} tokens",
                    where=plugin.place,
                    hint="return one for each of its total_token_ids",
                )
            _check_range(f"tok_advantages[{index}]", row, plugin=plugin)


def _check_range(name: str, values: list[float], *, plugin: Plugin) -> None:
    for index, value in enumerate(values):
        if not abs(value) <= _MAX_ADVANTAGE:  # nor is NaN
            raise PluginResultError(
                f"{plugin.name} returned {name}[{index}]={value}, which is not a finite number of "
                "32 bits",
                where=plugin.place,
                hint="return status=PluginStatus.DISCARD or FAILURE when there is no advantage",
            )


def _number(name: str, value: Any, *, plugin: Plugin) -> float:
    problem = "which is not a number"
    if _is_number(value):
        try:
            return float(value)
        except (TypeError, ValueError, ArithmeticError, RuntimeError) as error:
            problem = str(error)
    raise PluginResultError(
        f"{plugin.name} returned {name}={_shown(value)}, {problem}",
        where=plugin.place,
        hint=_what_it_lacks(value)
        or "a number is an int or a float; write float(...) where it is meant",
    )


def _is_number(value: Any) -> bool:
    """Whether `value` is one real number; numpy scalars and 0-d arrays are, truth values not."""
    if isinstance(value, (str, bytes, bool, complex)) or _shape(value):
        return False
    kind = str(getattr(value, "dtype", ""))
    return hasattr(type(value), "__float__") and not any(word in kind for word in _NO_NUMBERS)


def _is_list(value: Any) -> bool:
    """Whether `value` is a list, a tuple or an array of one dimension."""
    return isinstance(value, (list, tuple)) or len(_shape(value)) == 1


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(getattr(value, "shape", ()))


def _kind_of(value: Any) -> str:
    return "nothing (None)" if value is None else f"{_shown(value)} ({type(value).__name__})"


def _shown(value: Any) -> str:
    return _REPR.repr(value)


def _what_it_lacks(value: Any) -> str:
    """Return the hint for a coroutine in place of a result, else ""."""
    return "did you forget await?" if inspect.isawaitable(value) else ""
