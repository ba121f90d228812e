"""The policy behind HTTP: Chat Completions and Responses, with streams of tokens as they come."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from hashlib import blake2b
from itertools import count
from typing import Any
from uuid import uuid4

from arkdev.backends.local.answer_requests import AnswerRequest, read_request
from arkdev.backends.local.endpoint import PolicyEndpoint, new_answer_id
from arkdev.endpoints.serving.live_responses import live_response
from arkdev.endpoints.serving.replies import Reply, refusal
from arkdev.endpoints.serving.requests import RequestError, error_body
from arkdev.endpoints.serving.server import ModelServer
from arkdev.endpoints.serving.stored_responses import StoredResponses
from arkdev.errors import PolicyEngineError


class PolicyServer(ModelServer):
    """Serves a policy. It does not close the endpoint, which training may use beside it.

    With a `seed` the n-th request that brings no seed of its own gets one that follows from it, so
    that requests which come one after the other can be repeated. Without an `api_key` any key will
    do.
    """

    def __init__(
        self, endpoint: PolicyEndpoint, *, seed: int | None = None, api_key: str | None = None
    ) -> None:
        super().__init__(_ServedPolicy(endpoint, seed=seed), api_key=api_key)


class _ServedPolicy:
    """Both APIs of a policy."""

    def __init__(self, endpoint: PolicyEndpoint, *, seed: int | None) -> None:
        self.name = endpoint.model
        self._endpoint = endpoint
        self._seed = seed
        self._numbers = count()
        self._stored = StoredResponses()

    async def chat(self, body: object, *, seed: int | None) -> Reply:
        try:
            asked = self._read(body, seed=seed)
            answer_id = new_answer_id()
            if not asked.is_stream:
                return Reply(await self._endpoint.answer(asked, answer_id=answer_id))
            chunks = await self._endpoint.stream(asked, answer_id=answer_id)
        except RequestError as error:
            return refusal(error)
        except PolicyEngineError as error:
            return refusal(_engine_error(error))
        return Reply(None, events=_told_of_failure(chunks))

    async def responses(self, body: object, *, seed: int | None) -> Reply:
        try:
            opened = self._stored.open(body)
        except RequestError as error:
            return refusal(error)
        try:
            asked = self._read(opened.chat, seed=seed)
            answer_id, follows = opened.response_id, opened.previous_response_id
            if not opened.is_stream:
                answer = await self._endpoint.answer(
                    asked, answer_id=answer_id, previous_response_id=follows
                )
                return Reply(self._stored.close(opened, answer))
            chunks = await self._endpoint.stream(
                replace(asked, has_usage=True), answer_id=answer_id, previous_response_id=follows
            )
        except RequestError as error:
            return refusal(opened.refused(error))
        except PolicyEngineError as error:
            return refusal(_engine_error(error))
        events = live_response(
            chunks, opened, close=lambda answer: self._stored.close(opened, answer)
        )
        return Reply(None, events=_told_of_failure(events))

    def _read(self, body: object, *, seed: int | None) -> AnswerRequest:
        asked = read_request(body, seed=seed)
        if asked.seed is not None or self._seed is None:
            return asked
        text = f"{self._seed} {next(self._numbers)}"
        return replace(
            asked, seed=int.from_bytes(blake2b(text.encode(), digest_size=6).digest(), "big")
        )


async def _told_of_failure(
    events: AsyncGenerator[dict[str, Any]],
) -> AsyncGenerator[dict[str, Any]]:
    """End a stream whose engine fails with an error, as the platform does."""
    async with aclosing(events):
        try:
            async for event in events:
                yield event
        except RequestError as error:
            yield error_body(error, request_id=uuid4().hex)
        except PolicyEngineError as error:
            yield error_body(_engine_error(error), request_id=uuid4().hex)


def _engine_error(error: PolicyEngineError) -> RequestError:
    return RequestError(str(error), code="InternalServiceError", status=503)
