"""The options that a test gives a run, checked: no command line has read them before."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from arkdev.errors import UsageError
from arkdev.flows.test_request import PluginTestRequest

_OPTIONS = tuple(each.name for each in fields(PluginTestRequest) if each.name != "start")
_REQUEST = TypeAdapter(PluginTestRequest)


def request_of(root: Path, options: Mapping[str, Any]) -> PluginTestRequest:
    """Return the request that `options` of the workspace at `root` are.

    Raises `UsageError` for a name that is none, and for a value of another kind.
    """
    for name in options:
        if name not in _OPTIONS:
            close = difflib.get_close_matches(name, _OPTIONS, n=1)
            raise UsageError(
                f"there is no option {name!r}",
                hint=f"did you mean {close[0]}?" if close else f"there are {', '.join(_OPTIONS)}",
            )
    if options.get("record") is not None:
        raise UsageError(
            "code that a test has imported cannot be recorded any more",
            hint="arkdev_tape(PATH) records in a process of its own, and replays",
        )
    try:
        return _REQUEST.validate_python({"start": root, **options})
    except ValidationError as error:
        problem = error.errors()[0]
        name = str(problem["loc"][0])
        message = f"{problem['msg'][:1].lower()}{problem['msg'][1:]}"
        raise UsageError(
            f"{name}={options[name]!r}: {message}", hint=_HINTS.get(name, "")
        ) from None


_HINTS = {
    "graders": 'a tuple of texts: graders=("plugins.grader:score",)',
    "data": 'a tuple of paths: data=("data/train.jsonl",)',
    "sample": 'the index of a sample as text, sample="3", or a sample as JSON',
}
