"""What the docker package raises, as errors of arkdev (a part of the leaf: imports docker)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import docker.errors  # noqa: TID253 (a part of the leaf)
import requests
from urllib3.exceptions import HTTPError

from arkdev.errors import EngineError

_CONFLICT = 409
_T = TypeVar("_T")
FAILURES = (docker.errors.DockerException, requests.RequestException, HTTPError, OSError)
"""All that a call of the client raises when the engine refuses or does not answer."""


class MissingObjectError(EngineError):
    """What a call is about is not there, or is going away."""


class ConflictError(EngineError):
    """What a call is about is not in the state for it, or is in use."""


def translated(method: Callable[..., _T], *args: Any, **kwargs: Any) -> _T:
    """Call a method of the client. Raises `EngineError`, one of the two above where it is told."""
    try:
        return method(*args, **kwargs)
    except FAILURES as error:
        raise engine_error(error) from error


def engine_error(error: BaseException) -> EngineError:
    """Return one of `FAILURES` as our own."""
    if isinstance(error, docker.errors.APIError):
        text = f"the container engine refuses: {str(error.explanation or error).strip()}"
        if isinstance(error, docker.errors.NotFound):
            return MissingObjectError(text)
        return ConflictError(text) if error.status_code == _CONFLICT else EngineError(text)
    return EngineError(
        f"the container engine does not answer any more: {root_cause(error)}",
        hint="docker info says how it is",
    )


def root_cause(error: BaseException) -> str:
    """Return the reason beneath what requests and urllib3 wrap around it."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return str(error) or type(error).__name__
