"""The scripted model in process: an `Endpoint` that needs no server, key or model."""

from __future__ import annotations

import asyncio
from typing import Any

from arkdev.endpoints.answers import check_answer
from arkdev.endpoints.endpoint import EndpointCapabilities, ModelRequest
from arkdev.endpoints.normal_form import normalize_completion
from arkdev.endpoints.scripted.model import ScriptedModel
from arkdev.endpoints.scripted.policy import DEFAULT_SKILL
from arkdev.endpoints.scripted.script import Script


class ScriptedEndpoint:
    """Answers by `ScriptedModel`, errors included, after `latency_s` seconds.

    `skill` in 0..1 is how often a decision is right. Sampling parameters that have no meaning for
    a scripted model (temperature, top_p, top_k, repetition_penalty) are checked and change nothing.
    """

    def __init__(
        self,
        *,
        skill: float = DEFAULT_SKILL,
        script: Script | None = None,
        latency_s: float = 0.0,
        model: str = "scripted",
    ) -> None:
        self.name = "scripted"
        self.model = model
        self._scripted = ScriptedModel(skill=skill, script=script, latency_s=latency_s, model=model)
        self.capabilities = EndpointCapabilities(
            has_token_evidence=self._scripted.script.has_token_evidence
        )

    async def complete(self, request: ModelRequest) -> dict[str, Any]:
        """Answer one request; raise `EndpointResponseError` for an error (see `Endpoint`)."""
        reply = self._scripted.reply({**request.body, **request.sampling}, seed=request.seed)
        if reply.latency_s:
            await asyncio.sleep(reply.latency_s)
        answer = check_answer(reply.body, status=reply.status, headers=reply.headers)
        normalize_completion(answer, model=self.model)
        return answer

    async def check_reachable(self) -> None:
        """It is in this process."""

    async def close(self) -> None:
        """Nothing to release."""
