"""The scripted model as a real HTTP server on the OpenAI and the Ark path.

The routes are those of `arkdev.endpoints.serving.server`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from arkdev.endpoints.answers import has_choices
from arkdev.endpoints.scripted.model import ScriptedModel
from arkdev.endpoints.scripted.policy import DEFAULT_SKILL
from arkdev.endpoints.scripted.script import Script
from arkdev.endpoints.serving.replies import Reply, refusal
from arkdev.endpoints.serving.requests import RequestError
from arkdev.endpoints.serving.server import ModelServer
from arkdev.endpoints.serving.stored_responses import StoredResponses


class ScriptedServer(ModelServer):
    """Serves a `ScriptedModel`, whose settings it takes; without an `api_key` any key will do."""

    def __init__(
        self,
        *,
        skill: float = DEFAULT_SKILL,
        script: Script | None = None,
        latency_s: float = 0.0,
        model: str = "scripted",
        api_key: str | None = None,
    ) -> None:
        scripted = ScriptedModel(skill=skill, script=script, latency_s=latency_s, model=model)
        super().__init__(_ServedScript(scripted), api_key=api_key)


class _ServedScript:
    """Both APIs of a `ScriptedModel`: the same script and policy."""

    def __init__(self, model: ScriptedModel) -> None:
        self.name = model.model
        self._model = model
        self._stored = StoredResponses()

    async def chat(self, body: object, *, seed: int | None) -> Reply:
        return self._model.reply(body, seed=seed)

    async def responses(self, body: object, *, seed: int | None) -> Reply:
        """An error, or what a script sends as it is, stays as it is."""
        try:
            opened = self._stored.open(body)
        except RequestError as error:
            return refusal(error)
        reply = self._model.reply(opened.chat, seed=seed)
        return (
            replace(reply, body=self._stored.close(opened, reply.body))
            if _is_answer(reply)
            else reply
        )


def _is_answer(reply: Reply) -> bool:
    body: Any = reply.body
    return reply.status == 200 and isinstance(body, dict) and has_choices(body)
