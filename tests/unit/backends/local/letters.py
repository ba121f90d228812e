"""A policy without weights: one token for each letter, and answers that are told beforehand.

Everything but the sampling is real: rendering and parsing go through ids, tokens come one at a time
from a thread of their own, as an engine's do.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from arkdev.backends.local.answer_text import split_calls, split_reasoning, tool_call_documents
from arkdev.backends.local.endpoint import PolicyEndpoint
from arkdev.backends.local.engine import EngineCapabilities, Generation, GenerationRequest
from arkdev.backends.local.rendering import ParsedAnswer

BEGIN, END = "\x02", "\x03"
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
QUESTION = {"role": "user", "content": "How is the weather in Oslo?"}
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'


def ids_of(text: str) -> list[int]:
    return [ord(letter) for letter in text]


class LetterRendering:
    """Messages as ``BEGIN role newline text END newline``; a letter's code point is its id."""

    name = "letters"
    stop_token_ids = frozenset({ord(END)})

    def __init__(self, *, has_thinking_switch: bool = True) -> None:
        self.has_thinking_switch = has_thinking_switch

    def render(self, messages, *, tools=None, thinking=None):
        head = f"{BEGIN}tools\n{json.dumps(list(tools))}{END}\n" if tools else ""
        return ids_of(head + "".join(map(_written, messages)) + _opening(thinking))

    def extend(self, messages, *, after, tools=None, thinking=None):
        is_ended = after.token_ids and after.token_ids[-1] in self.stop_token_ids
        rest = "".join(map(_written, messages[after.num_messages :]))
        return ids_of(("" if is_ended else END) + "\n" + rest + _opening(thinking))

    def answer_ids(self, messages, *, tools=None, thinking=None):
        return ids_of(_said(messages[-1]) + END)

    def parse(self, token_ids, *, prompt_token_ids=()):
        text = self.decode(token_ids).removesuffix(END)
        reasoning, rest = split_reasoning(text, has_begun=False)
        content, calls = split_calls(rest)
        documents = tool_call_documents(
            calls, token_ids=token_ids, prompt_token_ids=prompt_token_ids
        )
        return ParsedAnswer(content, reasoning, documents)

    def decode(self, token_ids):
        return "".join(map(chr, token_ids))


def _opening(thinking: bool | None) -> str:
    return f"{BEGIN}assistant\n" + ("<think>\n\n</think>\n\n" if thinking is False else "")


def _written(message: dict[str, Any]) -> str:
    return f"{BEGIN}{message['role']}\n{_said(message)}{END}\n"


def _said(message: dict[str, Any]) -> str:
    calls = [
        json.dumps({"name": c["function"]["name"], "arguments": c["function"]["arguments"]})
        for c in message.get("tool_calls") or ()
    ]
    return (message.get("content") or "") + "".join(calls)


class ToldEngine:
    """Samples what it is told, a letter at a time, `pause_s` apart, in a thread."""

    name = "told"

    def __init__(
        self,
        *answers: str | Callable[[GenerationRequest], str],
        pause_s: float = 0.0,
        max_context_tokens: int = 1000,
    ) -> None:
        self.policy_version = 7
        self.capabilities = EngineCapabilities(True, max_context_tokens)
        self.requests: list[GenerationRequest] = []
        self.num_sampled = 0
        self.has_begun = threading.Event()
        self.was_cancelled = threading.Event()
        self.is_closed = False
        self.fails: Exception | None = None
        self._answers = answers
        self._pause_s = pause_s

    async def generate(self, request, *, on_token=None):
        self.requests.append(request)
        told = self._answers[min(len(self.requests), len(self._answers)) - 1]
        text = told if isinstance(told, str) else told(request)
        ids = ids_of(text + END)
        ended = threading.Event()
        work = asyncio.to_thread(self._sample, request, ids, on_token, ended)
        try:
            return await work
        except asyncio.CancelledError:
            self.was_cancelled.set()
            ended.set()
            raise

    def _sample(self, request, ids, on_token, ended):
        sampling, sampled, reason = request.sampling, [], "length"
        for token in ids[: sampling.max_new_tokens]:
            if ended.is_set():
                break
            if self._pause_s:
                time.sleep(self._pause_s)
            if self.fails is not None:
                raise self.fails
            sampled.append(token)
            self.num_sampled += 1
            self.has_begun.set()
            goes_on = on_token is None or on_token(token)
            if token in sampling.stop_token_ids:
                reason = "stop"
                break
            if not goes_on:
                break
        tops = ((sampled[0], -0.5), (ord("?"), float("-inf"))) if sampled else ()
        return Generation(
            tuple(sampled),
            tuple(-0.5 for _ in sampled),
            reason,
            self.policy_version,
            top_logprobs=(tops,) * len(sampled) if sampling.num_top_logprobs else (),
            num_cached_tokens=3,
        )

    async def score(self, token_ids: Sequence[int], *, temperature: float = 1.0) -> list[float]:
        return [-0.25] * (len(token_ids) - 1)

    async def update_weights(self, source, *, version):
        self.policy_version = version

    async def sleep(self):
        pass

    async def wake(self):
        pass

    async def close(self):
        self.is_closed = True


def policy(*answers: str | Callable[[GenerationRequest], str], **settings: Any) -> PolicyEndpoint:
    """A policy that answers so, the last again and again."""
    return PolicyEndpoint(ToldEngine(*answers, **settings), LetterRendering(), model_name="told")
