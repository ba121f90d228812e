"""The Responses API of the scripted server: the same model, script and policy, by translation.

The server remembers its last answers, so that ``previous_response_id`` works. A Response's id is
new for each answer; all else is the same for the same request, as in Chat.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import Any
from uuid import uuid4

from arkdev.endpoints.answers import has_choices
from arkdev.endpoints.scripted.model import Reply, ScriptedModel
from arkdev.endpoints.scripted.requests import RequestError
from arkdev.errors import TranslationError
from arkdev.plugin.responses import chat_body_of_responses, response_of_answer

MAX_STORED_RESPONSES = 1024
"""Of more, the oldest are forgotten."""


class ScriptedResponses:
    """Answers Responses requests with the answers of a `ScriptedModel`."""

    def __init__(self, model: ScriptedModel) -> None:
        self._model = model
        self._histories: OrderedDict[str, list[dict[str, Any]]] = OrderedDict()

    def reply(self, body: object, *, seed: int | None = None) -> Reply:
        """Answer a request body; an error, or what a script sends as it is, stays as it is."""
        try:
            request = _stated(body)
            previous_id = request.get("previous_response_id")
            history = self._history(previous_id)
            chat = chat_body_of_responses(request, history=history)
        except TranslationError as error:
            return self._model.refuse(_request_error(error))
        except RequestError as error:
            return self._model.refuse(error)
        reply = self._model.reply(chat, seed=seed)
        if not _is_answer(reply):
            return reply
        response_id = f"resp_{uuid4().hex}"
        if request.get("store") is not False:
            said = chat["messages"][1:] if request.get("instructions") else chat["messages"]
            self._store(response_id, [*said, reply.body["choices"][0]["message"]])
        response = response_of_answer(
            reply.body, response_id=response_id, previous_response_id=previous_id, request=request
        )
        return replace(reply, body=response)

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
    if "input" not in stated:
        raise RequestError(
            "The required parameter `input` is missing.", code="MissingParameter", param="input"
        )
    return stated


def _request_error(error: TranslationError) -> RequestError:
    hint = f" ({error.hint})" if error.hint else ""
    return RequestError(f"{error.message}{hint}.", code="InvalidParameter", param=error.param)


def _is_answer(reply: Reply) -> bool:
    return reply.status == 200 and isinstance(reply.body, dict) and has_choices(reply.body)
