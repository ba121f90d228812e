"""Tell a model's answer from an error, also from one that hides in a 200 (field case 2.5).

Every endpoint passes what it received through `check_answer`, so that a rate limit looks the same
whether a remote server, the scripted server or the in-process scripted model sent it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

from arkdev.errors import EndpointResponseError, TranslationError
from arkdev.plugin.responses import answer_of_response

MAX_TEXT_CHARS = 200
"""How much of a body that is not JSON an error keeps."""

_PAGE_STARTS = ("<!doctype html", "<html")
_PAGE_HINT = (
    "This is a web page and no model's answer. Check the URL (the base URL of many servers ends "
    "in /v1), and whether a login page or a proxy lies before the endpoint."
)
_TRANSIENT_STATUSES = frozenset({408, 409, 429})

_HINTS = {
    401: "The API key is missing or wrong; check the environment variable that holds it.",
    403: "The key may not use this model or endpoint; check its permissions and balance.",
    404: "No such model or URL; check --model and --endpoint.",
    429: "The endpoint is limiting requests; lower --concurrency or try again later.",
}


def check_answer(body: object, *, status: int, headers: Mapping[str, str]) -> dict[str, Any]:
    """Return `body` when it is a Chat Completions answer with at least one choice.

    `body` is the decoded JSON, or a str with the raw text when the body was not JSON. Raises
    `EndpointResponseError`, whose message holds the status, the server's code and its message, for
    a status outside 200..299, for an ``error`` in the body, for ``choices`` that are missing, null
    or empty, and for anything that is not a Chat Completions object. It is transient for 408, 409,
    429, 5xx and for every error inside a success answer, except a web page: that is what a wrong
    URL, a login page or a proxy answers, and it will answer the same again.
    """
    if _is_unblemished(body, status) and has_choices(body):
        return body
    raise _refusal(body, status=status, headers=headers)


def check_response(body: object, *, status: int, headers: Mapping[str, str]) -> dict[str, Any]:
    """Return `body`, a finished Response, as a Chat Completions answer.

    The counterpart of `check_answer` for the Responses API: also a Response that failed, was
    cancelled or is not finished, one without output, and one whose output Chat Completions cannot
    hold raise `EndpointResponseError`.
    """
    if not _is_unblemished(body, status) or not _has_output(body):
        raise _refusal(body, status=status, headers=headers)
    try:
        return answer_of_response(body)
    except TranslationError as error:
        raise EndpointResponseError(
            f"the endpoint answered {status}: {error.message}", status=status, body=body
        ) from error


def _is_unblemished(body: object, status: int) -> TypeGuard[dict[str, Any]]:
    return 200 <= status < 300 and isinstance(body, dict) and not body.get("error")


def _refusal(body: object, *, status: int, headers: Mapping[str, str]) -> EndpointResponseError:
    is_success = 200 <= status < 300
    kept = body[:MAX_TEXT_CHARS] if isinstance(body, str) else body
    lower = {name.lower(): value for name, value in headers.items()}
    is_page = is_success and is_web_page(body, content_type=lower.get("content-type", ""))
    return EndpointResponseError(
        f"the endpoint answered {status}: {server_sentence(kept)}",
        status=status,
        body=kept,
        headers=lower,
        hint=_PAGE_HINT if is_page else _HINTS.get(status, ""),
        is_transient=(is_success and not is_page) or status in _TRANSIENT_STATUSES or status >= 500,
    )


def is_web_page(body: object, *, content_type: str = "") -> bool:
    """Whether `body` is a text that is labelled as HTML or begins as it does."""
    return isinstance(body, str) and (
        content_type.startswith("text/html") or body.lstrip()[:14].lower().startswith(_PAGE_STARTS)
    )


def has_choices(body: Mapping[str, Any]) -> bool:
    """Whether `body` has at least one choice, and each of them a message."""
    choices = body.get("choices")
    return (
        isinstance(choices, list)
        and bool(choices)
        and all(isinstance(c, dict) and isinstance(c.get("message"), dict) for c in choices)
    )


def _has_output(body: dict[str, Any]) -> bool:
    output, status = body.get("output"), body.get("status") or "completed"
    return (
        isinstance(output, list)
        and all(isinstance(item, dict) for item in output)
        # a model may spend all of its tokens before it has said anything
        and (status == "incomplete" or (status == "completed" and bool(output)))
    )


def server_sentence(body: object) -> str:
    """Return what the server said, as one line; its code first when it gave one."""
    if is_web_page(body):
        return f"a web page: {' '.join(str(body).split())}"
    if isinstance(body, str):
        return f"not JSON: {' '.join(body.split())}" if body.strip() else "an empty body"
    if not isinstance(body, dict):
        return f"not a JSON object: {_clip(body)}"
    error = body.get("error")
    if error:
        return _error_sentence(error)
    if body.get("object") == "response":
        state = f"its status is {body.get('status')!r}, its output {_clip(body.get('output'))}"
        return f"no usable response: {state}"
    if "choices" in body:
        return f"no usable choice: choices is {_clip(body['choices'])}"
    for key in ("message", "detail"):  # servers that do not use the error envelope
        if body.get(key):
            return str(body[key])
    return f"no choices: {_clip(body)}"


def _error_sentence(error: object) -> str:
    if not isinstance(error, dict):
        return str(error)
    code = error.get("code")
    if not isinstance(code, str):  # a number repeats the status
        code = error.get("type") or code
    message = error.get("message") or _clip(error)
    return f"{code}: {message}" if code else str(message)


def _clip(value: object) -> str:
    text = repr(value)
    return text if len(text) <= MAX_TEXT_CHARS else text[: MAX_TEXT_CHARS - 1] + "…"
