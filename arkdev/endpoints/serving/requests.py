"""Check a request as a server does, and write errors in Ark's envelope (ark-runtime docs 1299023).

::

    {"error": {"code": "MissingParameter", "message": "... Request id: 0217...",
               "param": "messages", "type": "BadRequest"}}
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from arkdev.job.json_line import is_deeper

LIMIT_NAMES = ("max_new_tokens", "max_tokens", "max_completion_tokens")
"""What the length limit of an answer may be called."""

ROLES = ("system", "developer", "user", "assistant", "tool")

MAX_NESTING = 100
"""Of objects and lists in a parameter: deeper ones are more than a chat template can write."""

_TYPES = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    429: "TooManyRequests",
}


class RequestError(Exception):
    """A request that is answered with an error. `status` is the HTTP status."""

    def __init__(self, message: str, *, code: str, param: str = "", status: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.param = param
        self.status = status


def error_type(status: int) -> str:
    """Return the envelope's ``type`` for an HTTP status."""
    return _TYPES.get(status, "InternalServerError" if status >= 500 else "BadRequest")


def error_body(error: RequestError, *, request_id: str) -> dict[str, Any]:
    """Return `error` in Ark's envelope, with the request id in its message."""
    return {
        "error": {
            "code": error.code,
            "message": f"{error.message} Request id: {request_id}",
            "param": error.param,
            "type": error_type(error.status),
        }
    }


def function_of(definition: dict[str, Any]) -> dict[str, Any]:
    """Return the function part of a tool; it may also be flat (SURFACE: Responses form)."""
    function = definition.get("function")
    return function if isinstance(function, dict) else definition


def invalid(param: str, message: str) -> RequestError:
    """Return the error for a parameter's value."""
    return RequestError(
        f"The parameter `{param}` is not valid: {message}", code="InvalidParameter", param=param
    )


def check_request(body: object) -> dict[str, Any]:
    """Return the body without its null parameters; raise `RequestError` when it is not valid."""
    if not isinstance(body, dict):
        raise RequestError("the request body is not a JSON object.", code="InvalidParameter")
    stated = {key: value for key, value in body.items() if value is not None}
    check_nesting(stated)
    _check_messages(stated)
    _check_tools(stated)
    _check_response_format(stated.get("response_format"))
    for name, (is_valid, expected) in _PARAMETERS.items():
        if name in stated and not is_valid(stated[name]):
            raise invalid(name, f"expected {expected}, got {stated[name]!r}.")
    return stated


def check_nesting(stated: dict[str, Any]) -> None:
    """Raise `RequestError` for a parameter that is nested deeper than `MAX_NESTING`."""
    for name, value in stated.items():
        if is_deeper(value, MAX_NESTING):
            raise invalid(name, f"it is nested deeper than {MAX_NESTING} levels.")


def _check_messages(body: dict[str, Any]) -> None:
    if "messages" not in body:
        raise RequestError(
            "The required parameter `messages` is missing.",
            code="MissingParameter",
            param="messages",
        )
    messages = body["messages"]
    if not isinstance(messages, list) or not messages:
        raise invalid("messages", "expected a list with at least one message.")
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        if not isinstance(message, dict):
            raise invalid(where, "expected an object.")
        if message.get("role") not in ROLES:
            known = ", ".join(ROLES)
            raise invalid(f"{where}.role", f"{message.get('role')!r} is not one of {known}.")
        if not isinstance(message.get("content"), (str, list, dict, type(None))):
            raise invalid(f"{where}.content", "expected a string or a list of parts.")
        _check_tool_calls(message.get("tool_calls"), where)


def _check_tool_calls(calls: object, where: str) -> None:
    if calls is None:
        return
    if not isinstance(calls, list) or not all(
        isinstance(call, dict) and isinstance(call.get("function"), (dict, type(None)))
        for call in calls
    ):
        raise invalid(f"{where}.tool_calls", "expected a list of calls with a function each.")


def _check_tools(body: dict[str, Any]) -> None:
    tools = body.get("tools", [])
    if not isinstance(tools, list):
        raise invalid("tools", "expected a list.")
    for index, tool in enumerate(tools):
        name = function_of(tool).get("name") if isinstance(tool, dict) else None
        if not isinstance(name, str) or not name:
            raise invalid(f"tools[{index}].function.name", "expected a name.")
        parameters = function_of(tool).get("parameters")
        if not isinstance(parameters, (dict, type(None))):
            raise invalid(f"tools[{index}].function.parameters", "expected a JSON Schema.")
    _check_tool_choice(body.get("tool_choice", "auto"), [function_of(t)["name"] for t in tools])


def _check_tool_choice(choice: object, names: list[str]) -> None:
    if isinstance(choice, dict):
        name = function_of(choice).get("name")
        if name not in names:
            raise invalid("tool_choice", f"{name!r} is not one of the request's tools.")
    elif choice not in ("auto", "none", "required"):
        raise invalid("tool_choice", "expected auto, none, required or a named function.")
    elif choice == "required" and not names:
        raise invalid("tool_choice", "`required` needs tools.")


def _check_response_format(value: object) -> None:
    if value is None:
        return
    kind = value.get("type") if isinstance(value, dict) else None
    if kind not in ("text", "json_object", "json_schema"):
        raise invalid("response_format.type", "expected text, json_object or json_schema.")
    if isinstance(value, dict) and kind == "json_schema":
        described = value.get("json_schema")
        if not isinstance(described, dict) or not isinstance(described.get("schema"), dict):
            raise invalid("response_format.json_schema.schema", "expected a JSON Schema.")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_stop(value: object) -> bool:
    words = [value] if isinstance(value, str) else value
    return isinstance(words, list) and all(isinstance(word, str) for word in words)


_PARAMETERS: dict[str, tuple[Callable[[Any], bool], str]] = {
    **{name: (lambda v: _is_whole(v) and v >= 1, "a number from 1") for name in LIMIT_NAMES},
    "n": (lambda v: v == 1, "1, since one choice is given"),
    "seed": (_is_whole, "a whole number"),
    "stream": (lambda v: isinstance(v, bool), "true or false"),
    "temperature": (lambda v: _is_number(v) and 0 <= v <= 2, "a number in 0..2"),
    "top_p": (lambda v: _is_number(v) and 0 <= v <= 1, "a number in 0..1"),
    "top_k": (_is_whole, "a whole number"),
    "stop": (_is_stop, "a string or a list of strings"),
    "thinking": (lambda v: isinstance(v, dict), 'an object such as {"type": "enabled"}'),
}
