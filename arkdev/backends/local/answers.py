"""What was sampled, written as a Chat Completions answer with its token evidence.

Token ids stand where vLLM puts them: ``prompt_token_ids`` at the top, ``token_ids`` and logprobs in
the choice, the stop token included. ``policy_version`` is of the weights that sampled.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from arkdev.backends.local.answer_requests import AnswerRequest
from arkdev.backends.local.engine import Generation
from arkdev.backends.local.rendering import ParsedAnswer, Rendering

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_MAX_KNOWN_TOKENS = 65_536


@dataclass(frozen=True)
class Sampled:
    """One answer, before it is written down."""

    answer_id: str
    prompt_token_ids: Sequence[int]
    generation: Generation
    parsed: ParsedAnswer
    is_stopped_by_text: bool
    prompt_logprobs: Sequence[float] | None = None
    """Of each token of the prompt but the first."""

    @property
    def finish_reason(self) -> str:
        """``length`` whenever the answer was cut: its last call may be half of one."""
        if self.generation.finish_reason == "length" and not self.is_stopped_by_text:
            return "length"
        return "tool_calls" if self.parsed.tool_calls else "stop"


class AnswerWriter:
    """Writes the answers of one model."""

    def __init__(self, rendering: Rendering, *, model_name: str) -> None:
        self._model_name = model_name

        @lru_cache(maxsize=_MAX_KNOWN_TOKENS)
        def token(token_id: int) -> tuple[str, list[int] | None]:
            text = rendering.decode([token_id])
            return text, None if _REPLACEMENT in text else list(text.encode())

        self._token: Callable[[int], tuple[str, list[int] | None]] = token

    def envelope(self, answer_id: str) -> dict[str, Any]:
        """Return what an answer and each chunk of it begin with."""
        return {"id": answer_id, "created": int(time.time()), "model": self._model_name}

    def answer(
        self, sampled: Sampled, request: AnswerRequest, *, has_evidence: bool
    ) -> dict[str, Any]:
        """Return the answer. With evidence it has token ids and logprobs, asked for or not."""
        return {
            **self.envelope(sampled.answer_id),
            "object": "chat.completion",
            **self.of_answer(sampled, request, has_evidence=has_evidence),
            "choices": [
                {
                    "index": 0,
                    "message": sampled.parsed.message,
                    **self.of_choice(sampled, request, has_evidence=has_evidence),
                }
            ],
            "usage": usage_of(sampled),
        }

    def of_answer(
        self, sampled: Sampled, request: AnswerRequest, *, has_evidence: bool
    ) -> dict[str, Any]:
        """Return the fields at the top of an answer that are not the API's own."""
        fields: dict[str, Any] = {"policy_version": sampled.generation.policy_version}
        if has_evidence or request.has_token_ids:
            fields["prompt_token_ids"] = list(sampled.prompt_token_ids)
        if sampled.prompt_logprobs is not None:
            fields["prompt_logprobs"] = self._of_prompt(sampled)
        return fields

    def of_choice(
        self, sampled: Sampled, request: AnswerRequest, *, has_evidence: bool
    ) -> dict[str, Any]:
        """Return the fields of a choice beside its message."""
        fields: dict[str, Any] = {"finish_reason": sampled.finish_reason, "logprobs": None}
        if has_evidence or request.has_logprobs:
            fields["logprobs"] = {"content": self._logprobs(sampled.generation)}
        if has_evidence or request.has_token_ids:
            fields["token_ids"] = list(sampled.generation.token_ids)
        return fields

    def _logprobs(self, generation: Generation) -> list[dict[str, Any]]:
        tops = generation.top_logprobs or ((),) * len(generation.token_ids)
        pairs = zip(generation.token_ids, generation.logprobs, tops, strict=True)
        return [
            {
                **self._logprob(token_id, logprob),
                # of what top-k and top-p cut off there is nothing to say
                "top_logprobs": [self._logprob(*of_top) for of_top in top if _is_real(of_top[1])],
            }
            for token_id, logprob, top in pairs
        ]

    def _logprob(self, token_id: int, logprob: float) -> dict[str, Any]:
        text, as_bytes = self._token(token_id)
        return {"token": text, "logprob": logprob, "bytes": as_bytes}

    def _of_prompt(self, sampled: Sampled) -> list[dict[str, Any] | None]:
        pairs = zip(sampled.prompt_token_ids[1:], sampled.prompt_logprobs or (), strict=True)
        entries = [
            {str(token_id): {"logprob": logprob, "decoded_token": self._token(token_id)[0]}}
            for token_id, logprob in pairs
        ]
        return [None, *entries]


def usage_of(sampled: Sampled) -> dict[str, Any]:
    """Return the usage object: tokens read, those of them that were cached, and sampled."""
    prompt, completion = len(sampled.prompt_token_ids), len(sampled.generation.token_ids)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": sampled.generation.num_cached_tokens},
    }


def _is_real(logprob: float) -> bool:
    return math.isfinite(logprob)
