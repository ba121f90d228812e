"""The Responses API of a served model, by translation to Chat, with the last answers stored.

So ``previous_response_id`` works. A Response's id is new for each answer; all else is the same for
the same request, as in Chat.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from arkdev.endpoints.serving.requests import RequestError, check_nesting
from arkdev.errors import TranslationError
from arkdev.plugin.responses import chat_body_of_responses, response_of_answer

MAX_STORED_RESPONSES = 1024
"""Of more, the oldest are forgotten."""


_NAMES = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
}
"""What the translation renames."""


@dataclass(frozen=True)
class OpenedRequest:
    """A Responses request that has been understood, and its translation."""

    request: dict[str, Any]
    chat: dict[str, Any]
    """The body of the Chat Completions request, with the stored history."""
    response_id: str

    @property
    def previous_response_id(self) -> str | None:
        """The response that it follows."""
        return self.request.get("previous_response_id")

    def refused(self, error: RequestError) -> RequestError:
        """Return the error about the Chat request with the name that the client gave instead."""
        name = error.param.partition(".")[0].partition("[")[0]
        theirs = _NAMES.get(name)
        if theirs is None or name in self.request:
            return error
        message = error.message.replace(f"`{error.param}`", f"`{theirs}`")
        return RequestError(message, code=error.code, param=theirs, status=error.status)

    @property
    def is_stream(self) -> bool:
        """Whether events are to come, and no whole answer."""
        return bool(self.request.get("stream"))

    def response_of(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Return a Chat Completions answer as the Response that was asked for."""
        return response_of_answer(
            answer,
            response_id=self.response_id,
            previous_response_id=self.previous_response_id,
            request=self.request,
        )


class StoredResponses:
    """The last responses that were given, with their histories."""

    def __init__(self) -> None:
        self._histories: OrderedDict[str, list[dict[str, Any]]] = OrderedDict()

    def open(self, body: object) -> OpenedRequest:
        """Translate a Responses request. Raises `RequestError`."""
        request = _stated(body)
        history = self._history(request.get("previous_response_id"))
        try:
            chat = chat_body_of_responses(request, history=history)
        except TranslationError as error:
            raise _request_error(error) from error
        return OpenedRequest(request, chat, response_id=f"resp_{uuid4().hex}")

    def close(self, opened: OpenedRequest, answer: dict[str, Any]) -> dict[str, Any]:
        """Return the Response of an answer that has choices; it is stored unless told otherwise."""
        request, messages = opened.request, opened.chat["messages"]
        if request.get("store") is not False:
            said = messages[1:] if request.get("instructions") else messages
            self._store(opened.response_id, [*said, answer["choices"][0]["message"]])
        return opened.response_of(answer)

    def _history(self, previous_id: object) -> list[dict[str, Any]]:
        if previous_id is None:
            return []
        history = self._histories.get(str(previous_id))
        if history is None:
            raise RequestError(
                f"The parameter `previous_response_id` is not valid: no response {previous_id!r} "
                "is stored here.",
                code="InvalidParameter",
                param="previous_response_id",
            )
        return history

    def _store(self, response_id: str, messages: list[dict[str, Any]]) -> None:
        self._histories[response_id] = messages
        if len(self._histories) > MAX_STORED_RESPONSES:
            self._histories.popitem(last=False)


def _stated(body: object) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise RequestError("the request body is not a JSON object.", code="InvalidParameter")
    stated = {key: value for key, value in body.items() if value is not None}
    check_nesting(stated)
    if "input" not in stated:
        raise RequestError(
            "The required parameter `input` is missing.", code="MissingParameter", param="input"
        )
    return stated


def _request_error(error: TranslationError) -> RequestError:
    hint = f" ({error.hint})" if error.hint else ""
    return RequestError(f"{error.message}{hint}.", code="InvalidParameter", param=error.param)
