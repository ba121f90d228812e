"""Errors as JSON, so that one raised in an instance of a function reads as one raised here.

An error of arkdev's own comes back as the same class with the same message, hint and place. What a
plugin raised of its own, whose class may exist on the other side alone, comes back as
`RaisedElsewhere`, which knows its type, text, place and traceback::

    {"code": "PluginError", "type": "ValueError", "message": "no such town",
     "where": "plugins/weather.py:12", "hint": "", "traceback": "Traceback (most recent ..."}

Places of files below `root` are relative in the document, and below the reader's root again.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from arkdev import errors
from arkdev.errors import (
    ArkdevError,
    EndpointError,
    EndpointResponseError,
    EndpointUnreachableError,
    TranslationError,
)
from arkdev.plugin.exceptions import RolloutRetryException
from arkdev.plugin.source import (
    RaisedElsewhere,
    place_of_exception,
    text_of_exception,
    users_traceback,
)

PLUGIN_ERROR = "PluginError"
"""The code of all of them."""

_FILE_IN_TRACEBACK = re.compile(r'^(\s*(?:[|+] ?)*File ")([^"]*)"', re.MULTILINE)


class RetryRaisedElsewhere(RaisedElsewhere, RolloutRetryException):
    """A `RolloutRetryException` that a plugin raised in an instance."""


def error_document(error: BaseException, *, root: Path | None = None) -> dict[str, Any]:
    """Return an error as JSON; `root` is the folder of the plugin's package."""
    type_name, _, text = text_of_exception(error).partition(": ")
    if isinstance(error, ArkdevError):
        return {
            "code": PLUGIN_ERROR,
            "type": type(error).__name__,
            "message": error.message,
            "where": _relative(error.where or place_of_exception(error), root),
            "hint": error.hint,
            "arkdev": _fields(error),
        }
    return {
        "code": PLUGIN_ERROR,
        "type": type_name,
        "message": text,
        "where": _relative(place_of_exception(error), root),
        "hint": "",
        "traceback": _moved(users_traceback(error), lambda place: _relative(place, root)),
        "retry": isinstance(error, RolloutRetryException),
    }


def error_of(document: dict[str, Any], *, root: Path | None = None) -> Exception:
    """Return the error of a document; `root` is where the plugin's package is on this side."""
    where = _absolute(str(document.get("where") or ""), root)
    fields = document.get("arkdev")
    message = str(document.get("message", ""))
    if isinstance(fields, dict):
        error = _arkdev_error(str(document.get("type")), message, document, fields)
        error.where = where
        return error
    raised = RetryRaisedElsewhere if document.get("retry") else RaisedElsewhere
    return raised(
        f"{document.get('type', 'Exception')}: {message}",
        where=where,
        traceback=_moved(
            str(document.get("traceback") or ""), lambda place: _absolute(place, root)
        ),
    )


def _fields(error: ArkdevError) -> dict[str, Any]:
    """Return what the class of an error has besides message, hint and place."""
    fields: dict[str, Any] = {}
    if isinstance(error, EndpointError):
        fields["is_transient"] = error.is_transient
    if isinstance(error, EndpointResponseError):
        fields |= {"status": error.status, "body": error.body, "headers": error.headers}
    if isinstance(error, EndpointUnreachableError):
        fields["is_timeout"] = error.is_timeout
    if isinstance(error, TranslationError):
        fields["param"] = error.param
    return fields


def _arkdev_error(
    type_name: str, message: str, document: dict[str, Any], fields: dict[str, Any]
) -> ArkdevError:
    found = getattr(errors, type_name, None)
    is_ours = isinstance(found, type) and issubclass(found, ArkdevError)
    cls: type[ArkdevError] = found if is_ours else errors.PluginError  # type: ignore[assignment]
    if issubclass(cls, EndpointUnreachableError):
        fields = {key: value for key, value in fields.items() if key != "is_transient"}
    return cls(message, hint=str(document.get("hint") or ""), **fields)


def _relative(place: str, root: Path | None) -> str:
    return place.removeprefix(f"{root}/") if root is not None else place


def _absolute(place: str, root: Path | None) -> str:
    if root is None or not place or place.startswith(("/", "<")):
        return place
    return f"{root}/{place}"


def _moved(traceback: str, move: Any) -> str:
    """Return a traceback with the name of each file changed."""
    return _FILE_IN_TRACEBACK.sub(lambda match: f'{match[1]}{move(match[2])}"', traceback)
