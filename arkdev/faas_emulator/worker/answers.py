"""The answer of a call, both ways: what a plugin returned or raised, as JSON and back.

`answer_document` runs in the instance: it reads the result by the contract, so that the place of
what the contract does not allow is known there. `answer_of` runs at the caller's: it returns what
the plugin returned, as a record, or raises what the plugin raised.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_jsonable_python

from arkdev.errors import InstanceError, PluginResultError
from arkdev.plugin.decorators import Plugin, PluginKind
from arkdev.plugin.error_documents import error_of
from arkdev.plugin.results import (
    read_grader_result,
    read_group_rollout_result,
    read_rollout_result,
)
from arkdev.types import (
    GroupGraderResult,
    GroupRolloutResult,
    Record,
    RolloutResult,
    SingleGraderResult,
)

_RECORDS: dict[PluginKind, type[Record]] = {
    PluginKind.SINGLE_ROLLOUT: RolloutResult,
    PluginKind.GROUP_ROLLOUT: GroupRolloutResult,
    PluginKind.SINGLE_GRADER: SingleGraderResult,
    PluginKind.GROUP_GRADER: GroupGraderResult,
}


def read_result(value: Any, *, plugin: Plugin, rest: tuple[Any, ...]) -> Record:
    """Return what a plugin returned, by the contract; `rest` as in `PluginRequest`.

    Raises `PluginResultError`.
    """
    if plugin.kind is PluginKind.SINGLE_ROLLOUT:
        return read_rollout_result(value, plugin=plugin)
    if plugin.kind is PluginKind.GROUP_ROLLOUT:
        return read_group_rollout_result(value, plugin=plugin, n_sample=rest[0])
    trajectories = rest[0] if plugin.kind is PluginKind.GROUP_GRADER else [rest[0]]
    counts = [
        len(trajectory.total_token_ids)
        for trajectory in trajectories
        if trajectory.total_token_ids is not None
    ]
    result = read_grader_result(
        value,
        plugin=plugin,
        num_trajectories=len(trajectories),
        num_tokens=counts if len(counts) == len(trajectories) else None,
    )
    if plugin.kind is PluginKind.GROUP_GRADER:
        return result
    fields = {name: result[name] for name in result.model_fields_set if name != "rewards"}
    return SingleGraderResult(reward=result.rewards[0] if result.rewards else None, **fields)


def answer_text(result: Record, *, plugin: Plugin) -> str:
    """Return the JSON of a good answer. Numbers that are not finite are kept, as Python has them.

    The status is always there, other fields where the plugin set them.

    Raises `PluginResultError` for a result with something in it that is not JSON: in the cloud it
    leaves the function as JSON too.
    """
    told = {"status", *result.model_fields_set}
    fields = {name: value for name, value in result.items() if name in told}
    try:
        return json.dumps({"result": fields}, default=_dumped)
    except (TypeError, ValueError, RecursionError, PydanticSerializationError) as error:
        raise PluginResultError(
            f"{plugin.name} returned what cannot leave its function as JSON: {error}",
            where=plugin.place,
            hint="return texts, numbers, lists and dicts",
        ) from error


def _dumped(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump()
    return to_jsonable_python(value)


def answer_of(document: Any, *, plugin: Plugin, root: Path) -> Record:
    """Return what the plugin returned, or raise what it raised.

    `document` is the decoded body of an answer with status 200, 400 or 500; `root` is where the
    plugin's package is on this side. Raises the plugin's own error (`error_documents.error_of`),
    and `InstanceError` for a document that is no answer.
    """
    given: Mapping[str, Any] = document if isinstance(document, dict) else {}
    result, error = given.get("result"), given.get("error")
    if isinstance(result, dict):
        return _RECORDS[plugin.kind].model_validate(result)
    if isinstance(error, dict) and "where" in error:
        raise error_of(error, root=root)
    text = error.get("message") if isinstance(error, dict) else f"{document!r:.200}"
    raise InstanceError(f"{plugin.name}: its instance answered: {text}", where=plugin.place)
