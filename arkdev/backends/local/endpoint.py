"""The policy as an endpoint: messages in, an answer with its token evidence out.

An engine samples token ids; a rendering turns messages into ids and back; what was sampled is
remembered, so that a following turn extends it and renders only what is new. `PolicyEndpoint` is
what sessions call in process; `arkdev.backends.local.server` puts it behind HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import uuid4

from arkdev.backends.local.answer_deltas import AnswerDeltas
from arkdev.backends.local.answer_requests import AnswerRequest, read_request
from arkdev.backends.local.answers import AnswerWriter, Sampled, usage_of
from arkdev.backends.local.conversations import Conversations, Prompt
from arkdev.backends.local.engine import (
    Generation,
    GenerationEngine,
    GenerationRequest,
    OnToken,
    SamplingParameters,
)
from arkdev.backends.local.rendering import ParsedAnswer, Rendering
from arkdev.backends.local.stop_texts import StopTexts, cut_at
from arkdev.endpoints.answers import check_answer
from arkdev.endpoints.endpoint import EndpointCapabilities, ModelRequest
from arkdev.endpoints.serving.requests import RequestError, error_body, invalid
from arkdev.errors import ConfigurationError, EndpointUnreachableError, PolicyEngineError

CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"
"""The ``code`` of the error for a prompt that leaves no room for an answer, as OpenAI calls it."""


class PolicyEndpoint:
    """An `Endpoint` whose answers carry token evidence, always. Safe to call from any event loop.

    `complete` is for sessions; `answer` and `stream` are for a server, whose requests say what
    they want to have. Closing it closes the engine.
    """

    def __init__(self, engine: GenerationEngine, rendering: Rendering, *, model_name: str) -> None:
        self.name = "local"
        self.model = model_name
        self.capabilities = EndpointCapabilities(has_token_evidence=True)
        self.engine = engine
        self.conversations = Conversations(rendering)
        self._rendering = rendering
        self._writer = AnswerWriter(rendering, model_name=model_name)

    async def complete(self, request: ModelRequest) -> dict[str, Any]:
        """Answer one request; see `Endpoint` for what it raises.

        A request that the policy cannot answer is an `EndpointResponseError` with status 400, one
        whose prompt is too long has the code `CONTEXT_LENGTH_EXCEEDED`. An engine that has died is
        an `EndpointUnreachableError`.
        """
        try:
            asked = read_request({**request.body, **request.sampling}, seed=request.seed)
            asked = replace(asked, scope=request.scope or asked.scope)
            return await self.answer(
                asked,
                answer_id=new_answer_id(),
                has_evidence=True,
                previous_response_id=request.previous_response_id,
            )
        except RequestError as error:
            body = error_body(error, request_id=uuid4().hex)
            return check_answer(body, status=error.status, headers={})
        except PolicyEngineError as error:
            raise EndpointUnreachableError(error.message, hint=error.hint) from error

    async def answer(
        self,
        asked: AnswerRequest,
        *,
        answer_id: str,
        has_evidence: bool = False,
        previous_response_id: str | None = None,
    ) -> dict[str, Any]:
        """Return the whole answer. Raises `RequestError`, and `PolicyEngineError`."""
        prompt = self._prompt(asked, previous_response_id)
        sampled = await self._sample(asked, prompt, answer_id=answer_id)
        return self._writer.answer(sampled, asked, has_evidence=has_evidence)

    async def stream(
        self, asked: AnswerRequest, *, answer_id: str, previous_response_id: str | None = None
    ) -> AsyncGenerator[dict[str, Any]]:
        """Return the answer's chunks as its tokens are sampled.

        Raises `RequestError` before there is a stream. Closing the stream ends the sampling.
        """
        prompt = self._prompt(asked, previous_response_id)
        return self._chunks(asked, prompt, answer_id=answer_id)

    async def check_reachable(self) -> None:
        """It is in this process."""

    async def close(self) -> None:
        """Close the engine. Idempotent."""
        await self.engine.close()

    def _prompt(self, asked: AnswerRequest, previous_response_id: str | None) -> Prompt:
        try:
            prompt = self._rendered(asked, previous_response_id)
        except ConfigurationError as error:
            raise _cannot_be_met(error) from error
        most = self.engine.capabilities.max_context_tokens
        if len(prompt.token_ids) >= most:
            raise RequestError(
                f"This model's context has {most} tokens and the prompt has "
                f"{len(prompt.token_ids)}: there is no room for an answer.",
                code=CONTEXT_LENGTH_EXCEEDED,
                param="messages",
            )
        return prompt

    def _rendered(self, asked: AnswerRequest, previous_response_id: str | None) -> Prompt:
        thinking = asked.thinking
        if not self._rendering.has_thinking_switch:
            if thinking:
                raise invalid("thinking", "this model's template has no switch for it.")
            thinking = None
        shown = asked.messages[:-1] if asked.ends_with_answer else asked.messages
        prompt = self.conversations.prompt(
            shown,
            tools=asked.tools,
            thinking=thinking,
            scope=asked.scope,
            previous_response_id=previous_response_id,
        )
        if not asked.ends_with_answer:
            return prompt
        said = self._rendering.answer_ids(asked.messages, tools=asked.tools, thinking=thinking)
        return replace(prompt, token_ids=(*prompt.token_ids, *said))

    async def _sample(
        self,
        asked: AnswerRequest,
        prompt: Prompt,
        *,
        answer_id: str,
        on_token: OnToken | None = None,
    ) -> Sampled:
        stops = StopTexts(asked.stop, decode=self._rendering.decode) if asked.stop else None
        request = GenerationRequest(prompt.token_ids, self._sampling(asked, prompt))
        try:
            logprobs = None
            if asked.has_prompt_logprobs:
                logprobs = await self.engine.score(prompt.token_ids)
            generation = await self.engine.generate(request, on_token=_joined(on_token, stops))
        except ConfigurationError as error:
            raise _cannot_be_met(error) from error
        parsed = self._parsed(asked, prompt, generation.token_ids)
        if stops is not None and stops.found is not None:
            parsed = cut_at(parsed, stops.found)
        sampled = Sampled(
            answer_id,
            prompt.token_ids,
            generation,
            parsed,
            is_stopped_by_text=stops is not None and stops.found is not None,
            prompt_logprobs=logprobs,
        )
        if not asked.ends_with_answer:
            self._remember(sampled, prompt, generation)
        return sampled

    def _remember(self, sampled: Sampled, prompt: Prompt, generation: Generation) -> None:
        self.conversations.remember(
            sampled.answer_id,
            prompt=prompt,
            message=sampled.parsed.message,
            token_ids=generation.token_ids,
            logprobs=generation.logprobs,
        )

    def _sampling(self, asked: AnswerRequest, prompt: Prompt) -> SamplingParameters:
        room = self.engine.capabilities.max_context_tokens - len(prompt.token_ids)
        return SamplingParameters(
            max_new_tokens=min(room, asked.max_new_tokens or room),
            temperature=asked.temperature,
            top_p=asked.top_p,
            top_k=asked.top_k,
            repetition_penalty=asked.repetition_penalty,
            seed=asked.seed,
            stop_token_ids=self._rendering.stop_token_ids | asked.stop_token_ids,
            num_top_logprobs=asked.num_top_logprobs,
        )

    def _parsed(
        self, asked: AnswerRequest, prompt: Prompt, token_ids: tuple[int, ...]
    ) -> ParsedAnswer:
        """Read an answer; where no tool was to be called, a call is text like any other."""
        said = self._said(asked, token_ids)
        parsed = self._rendering.parse(said, prompt_token_ids=prompt.token_ids)
        if not parsed.tool_calls or asked.tools is not None:
            return parsed
        is_ended = bool(said) and said[-1] in self._rendering.stop_token_ids
        text = self._rendering.decode(said[:-1] if is_ended else said)
        if parsed.reasoning:
            text = text.partition(parsed.reasoning)[2].partition(">")[2].lstrip("\n")
        return replace(parsed, content=text, tool_calls=())

    def _said(self, asked: AnswerRequest, token_ids: tuple[int, ...]) -> tuple[int, ...]:
        """The tokens that say something: not the request's own stop token."""
        own = asked.stop_token_ids - self._rendering.stop_token_ids
        return token_ids[:-1] if token_ids and token_ids[-1] in own else token_ids

    async def _chunks(
        self, asked: AnswerRequest, prompt: Prompt, *, answer_id: str
    ) -> AsyncGenerator[dict[str, Any]]:
        chunk = {**self._writer.envelope(answer_id), "object": "chat.completion.chunk"}
        loop = asyncio.get_running_loop()
        arrived: asyncio.Queue[int | None] = asyncio.Queue()

        def on_token(token_id: int) -> bool:
            try:
                loop.call_soon_threadsafe(arrived.put_nowait, token_id)
            except RuntimeError:  # nobody is there any more
                return False
            return True

        sampling = asyncio.ensure_future(
            self._sample(asked, prompt, answer_id=answer_id, on_token=on_token)
        )
        sampling.add_done_callback(lambda _: arrived.put_nowait(None))
        deltas = AnswerDeltas(has_tools=asked.tools is not None, stop=asked.stop)
        try:
            yield {**chunk, "choices": [_part({"role": "assistant", "content": ""})]}
            token_ids: tuple[int, ...] = ()
            while (taken := await _all_of(arrived)) is not None:
                token_ids += taken
                said = self._said(asked, token_ids)
                parsed = self._rendering.parse(said, prompt_token_ids=prompt.token_ids)
                for delta in deltas.push(parsed):
                    yield {**chunk, "choices": [_part(delta)]}
            sampled = await sampling
        finally:
            if not sampling.done():
                sampling.cancel()
                with suppress(asyncio.CancelledError):
                    await sampling
        for delta in deltas.finish(sampled.parsed):
            yield {**chunk, "choices": [_part(delta)]}
        extras = self._writer.of_answer(sampled, asked, has_evidence=False)
        last = {**_part({}), **self._writer.of_choice(sampled, asked, has_evidence=False)}
        yield {**chunk, **extras, "choices": [last]}
        if asked.has_usage:
            yield {**chunk, "choices": [], "usage": usage_of(sampled)}


def new_answer_id() -> str:
    """Return the id of a Chat Completions answer."""
    return f"chatcmpl-{uuid4().hex}"


def _cannot_be_met(error: ConfigurationError) -> RequestError:
    hint = f"; {error.hint}" if error.hint else ""
    return invalid("messages", f"{error.message}{hint}")


def _part(delta: dict[str, Any]) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "finish_reason": None}


def _joined(on_token: OnToken | None, stops: StopTexts | None) -> OnToken | None:
    """Tell `on_token` of each token, and end the answer where a stop text is reached."""
    if stops is None:
        return on_token

    def both(token_id: int) -> bool:
        goes_on = on_token is None or on_token(token_id)
        return not stops.is_reached(token_id) and goes_on

    return both


async def _all_of(arrived: asyncio.Queue[int | None]) -> tuple[int, ...] | None:
    """Wait for tokens and return all that are there; None once there are no more."""
    token = await arrived.get()
    taken = []
    while token is not None:
        taken.append(token)
        if arrived.empty():
            return tuple(taken)
        token = arrived.get_nowait()
    return None
