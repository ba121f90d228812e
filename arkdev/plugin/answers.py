"""Answers and errors in the classes of the client that a plugin uses.

A plugin checks ``isinstance(completion, ChatCompletion)`` and catches ``RateLimitError`` of its
own client library (PROXY-31, DEMO-28, DEMO-43). The library is found by the client's class; it is
already imported by the plugin.
"""

from __future__ import annotations

import functools
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from pydantic import ValidationError

from arkdev.errors import EndpointError, EndpointResponseError, EndpointUnreachableError
from arkdev.types import ChatCompletionResponse

_ERROR_NAMES = {
    400: "BadRequestError",
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    409: "ConflictError",
    422: "UnprocessableEntityError",
    429: "RateLimitError",
}
_LIBRARIES = {
    "openai": ("openai.types.chat", "openai", ""),
    "volcenginesdkarkruntime": (
        "volcenginesdkarkruntime.types.chat",
        "volcenginesdkarkruntime._exceptions",
        "Ark",
    ),
}


def library_of(client: Any) -> str | None:
    """Return the name of the library that `client` comes from, of those that are known."""
    for base in type(client).__mro__:
        top = base.__module__.partition(".")[0]
        if top == "arkitect":
            return "volcenginesdkarkruntime"
        if top in _LIBRARIES:
            return top
    return None


def convert_answer(answer: dict[str, Any], *, client: Any) -> Any:
    """Return Chat Completions JSON as the client library's own ChatCompletion."""
    return _converted(answer, _completion_class(library_of(client)))


def convert_response(response: dict[str, Any], *, client: Any) -> Any:
    """Return Response JSON as the client library's own Response, else as openai's."""
    return _converted(response, _response_class(library_of(client) or "openai"))


def _converted(document: dict[str, Any], record: Any) -> Any:
    try:
        return record.model_validate(document)
    except ValidationError:
        # servers leave fields out; this is the library's own lenient constructor, ten times slower
        return record.construct(**document)


@functools.cache
def _completion_class(library: str | None) -> Any:
    if library is None:
        return ChatCompletionResponse
    return import_module(_LIBRARIES[library][0]).ChatCompletion


@functools.cache
def _response_class(library: str) -> Any:
    return import_module(f"{library}.types.responses").Response


def translated_error(error: Exception, *, client: Any) -> Exception:
    """Return an endpoint's error as the exception that the client library itself would raise."""
    library = library_of(client)
    if not isinstance(error, EndpointError) or library is None:
        return error
    module = import_module(_LIBRARIES[library][1])
    prefix = _LIBRARIES[library][2]
    request: Any = SimpleNamespace(method="POST", url="chat/completions", headers={})
    keywords: dict[str, Any] = {"request_id": None} if prefix else {}
    if isinstance(error, EndpointUnreachableError):
        name = "APITimeoutError" if error.is_timeout else "APIConnectionError"
        return _connection_error(getattr(module, prefix + name), error, request, keywords)
    if isinstance(error, EndpointResponseError):
        other = "APIStatusError" if 400 <= error.status < 500 else "InternalServerError"
        name = _ERROR_NAMES.get(error.status, other)
        response: Any = SimpleNamespace(
            request=request, status_code=error.status, headers=error.headers
        )
        body = error.body.get("error", error.body) if isinstance(error.body, dict) else error.body
        return getattr(module, prefix + name)(  # type: ignore[no-any-return]
            error.message, response=response, body=body, **keywords
        )
    return error


def _connection_error(
    exception: Any, error: EndpointUnreachableError, request: Any, keywords: dict[str, Any]
) -> Exception:
    if error.is_timeout:
        raised = exception(request=request, **keywords)
        raised.args = (error.message,)  # its own text is always the same
        raised.message = error.message
        return raised  # type: ignore[no-any-return]
    return exception(message=error.message, request=request, **keywords)  # type: ignore[no-any-return]
