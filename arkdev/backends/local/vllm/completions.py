"""vLLM's completions: requests as it wants them, answers as the engine's seam wants them.

Field case 4.1: the logprob of a sampled token is that of the distribution it was really sampled
from. vLLM gives it with ``--logprobs-mode processed_logprobs`` (`vllm.v1.sample.sampler`: after
penalties, temperature, top-k and top-p, normalised again; at temperature 0 those at temperature 1).
Its default, ``raw_logprobs``, is the model's own distribution, before all of these.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from arkdev.backends.local.engine import Generation, GenerationRequest
from arkdev.errors import PolicyEngineError

_MASKED = -9999.0
"""What vLLM writes for minus infinity, which JSON does not have."""
_TOKEN = "token_id:"


def generation_body(request: GenerationRequest, *, limit: int, model: str) -> dict[str, Any]:
    """Return the body of a completion that samples what `request` asks for and nothing else.

    `limit`: how many tokens the context has room for, `max_new_tokens` at most.
    """
    sampling = request.sampling
    body = {
        "model": model,
        "prompt": list(request.prompt_token_ids),
        "max_tokens": limit,
        "temperature": sampling.temperature,
        "logprobs": sampling.num_top_logprobs,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
        # only the tokens that the request names end an answer, not those of the model's files
        "ignore_eos": True,
        "stop_token_ids": sorted(sampling.stop_token_ids),
        "repetition_penalty": sampling.repetition_penalty,
        # at temperature 0 they change no token, and vLLM would let them change the logprobs
        "top_p": sampling.top_p if sampling.temperature > 0 else 1.0,
        "top_k": sampling.top_k if sampling.temperature > 0 else 0,
    }
    if sampling.seed is not None:
        body["seed"] = sampling.seed
    return body


@dataclass
class Sampled:
    """What has been sampled of an answer, put together from one choice or from many pieces."""

    num_top_logprobs: int
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    top_logprobs: list[tuple[tuple[int, float], ...]] = field(default_factory=list)
    finish_reason: str | None = None

    def add(self, choice: Mapping[str, Any]) -> Sequence[int]:
        """Append a choice; return its token ids. Raises `PolicyEngineError`."""
        try:
            token_ids: list[int] = choice["token_ids"] or []
            logprobs = choice["logprobs"] or {"token_logprobs": [], "top_logprobs": []}
            self.finish_reason = choice["finish_reason"]
            values, tops = logprobs["token_logprobs"], logprobs["top_logprobs"]
        except (KeyError, TypeError) as error:
            raise PolicyEngineError(
                f"vLLM's answer has no {error}",
                hint="arkdev is tested with vLLM 0.32",
            ) from error
        if len(values) != len(token_ids):
            raise PolicyEngineError(f"vLLM gave {len(values)} logprobs to {len(token_ids)} tokens")
        self.token_ids.extend(token_ids)
        self.logprobs.extend(values)
        if self.num_top_logprobs:
            self.top_logprobs.extend(self._top(pairs) for pairs in tops)
        return token_ids

    def _top(self, pairs: Mapping[str, float]) -> tuple[tuple[int, float], ...]:
        """The most probable first; vLLM begins with the sampled token, whatever its rank."""
        possible = [
            (int(token.removeprefix(_TOKEN)), logprob)
            for token, logprob in pairs.items()
            if logprob > _MASKED
        ]
        possible.sort(key=lambda pair: -pair[1])
        return tuple(possible[: self.num_top_logprobs])

    def stop_after(self, num_tokens: int) -> None:
        """End the answer there, as it was asked to end."""
        for values in (self.token_ids, self.logprobs, self.top_logprobs):
            del values[num_tokens:]
        self.finish_reason = "stop"

    def finished(self, *, policy_version: int) -> Generation:
        """Return the answer. Raises `PolicyEngineError` when it was not sampled to its end."""
        if self.finish_reason not in ("stop", "length"):
            raise PolicyEngineError(
                f"vLLM ended an answer early: {self.finish_reason or 'its stream broke off'}"
            )
        return Generation(
            tuple(self.token_ids),
            tuple(self.logprobs),
            "stop" if self.finish_reason == "stop" else "length",
            policy_version,
            tuple(self.top_logprobs),
        )


def scoring_bodies(
    token_ids: Sequence[int], *, temperature: float, model: str
) -> list[dict[str, Any]]:
    """Return the completions whose answers hold the logprob of each token but the first.

    At temperature 1 one is enough: vLLM gives those of the prompt as the model has them, and the
    last token is asked for as the one that would follow. At another temperature each is asked for
    as the one that follows what stands before it.
    """
    body = {
        "model": model,
        "max_tokens": 1,
        "temperature": temperature,
        "ignore_eos": True,
        "logprobs": 1,
        "return_tokens_as_token_ids": True,
    }
    if temperature == 1.0:
        last = {"prompt": list(token_ids[:-1]), "logprob_token_ids": [token_ids[-1]]}
        return [{**body, **last, "prompt_logprobs": 0}]
    return [
        {**body, "prompt": list(token_ids[:end]), "logprob_token_ids": [token_ids[end]]}
        for end in range(1, len(token_ids))
    ]


def score_of(token_ids: Sequence[int], answers: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return the logprobs that the answers to `scoring_bodies` hold."""
    scored: list[float] = []
    for body in answers:
        (choice,) = body["choices"]
        for token, pairs in zip(token_ids[1:], (choice["prompt_logprobs"] or ())[1:], strict=False):
            scored.append(float(pairs[str(token)]["logprob"]))
        (asked,) = choice["logprobs"]["top_logprobs"]
        scored.append(float(asked[f"{_TOKEN}{token_ids[len(scored) + 1]}"]))
    return scored


def event_in(line: bytes) -> dict[str, Any] | None:
    """Return what a line of an event stream brings, None when it brings nothing."""
    text = line.decode("utf-8").strip()
    if not text.startswith("data:") or text.endswith("[DONE]"):
        return None
    event: dict[str, Any] = json.loads(text.removeprefix("data:"))
    return event
