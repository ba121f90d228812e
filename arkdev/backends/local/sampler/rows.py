"""One request under way, and what is checked of it before."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import torch

from arkdev.backends.local.engine import (
    Generation,
    GenerationRequest,
    OnToken,
    SamplingParameters,
)
from arkdev.backends.local.sampler.distribution import TopLogprobs, uniform_numbers
from arkdev.errors import ConfigurationError, PolicyEngineError


@dataclass
class Row:
    """An answer that is being sampled."""

    request: GenerationRequest
    limit: int
    """Of tokens of the answer: as wanted, or as the context leaves room for."""
    future: Future[Generation]
    on_token: OnToken | None
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    top_logprobs: list[TopLogprobs] = field(default_factory=list)
    uniforms: list[float] = field(default_factory=list)
    seen: torch.Tensor | None = None
    num_reused: int = 0
    """Tokens of the prompt that were not computed again."""

    def start(self, *, vocabulary_size: int, device: torch.device) -> None:
        """Prepare what sampling needs."""
        sampling = self.request.sampling
        self.uniforms = uniform_numbers(sampling.seed, num_tokens=self.limit)
        if sampling.repetition_penalty != 1:
            self.seen = torch.zeros(vocabulary_size, dtype=torch.bool, device=device)
            self.seen[list(self.request.prompt_token_ids)] = True

    @property
    def next_uniform(self) -> float:
        """The number that decides the next token."""
        return self.uniforms[len(self.token_ids)]

    @property
    def position(self) -> int:
        """Of the token that was sampled last."""
        return len(self.request.prompt_token_ids) + len(self.token_ids) - 1

    def take(self, token_id: int, logprob: float, top: TopLogprobs, *, policy_version: int) -> bool:
        """Take a sampled token. Returns whether the answer has ended, with its future done."""
        if not logprob > float("-inf"):
            self.fail(
                PolicyEngineError(
                    f"the policy gives no probabilities after {self.position + 1} tokens: its "
                    f"logits are not numbers (policy version {policy_version})",
                    hint="Training has diverged: lower the learning rate, or clip gradients.",
                )
            )
            return True
        self.token_ids.append(token_id)
        self.logprobs.append(logprob)
        sampling = self.request.sampling
        if sampling.num_top_logprobs:
            self.top_logprobs.append(top)
        if self.seen is not None:
            self.seen[token_id] = True
        is_stopped = token_id in sampling.stop_token_ids
        if self.on_token is not None:
            try:
                is_stopped = not self.on_token(token_id) or is_stopped
            except Exception as error:  # noqa: BLE001 (the caller's own, and no other's concern)
                self.fail(error)
                return True
        if is_stopped or len(self.token_ids) >= self.limit:
            self._finish(is_stopped=is_stopped, policy_version=policy_version)
            return True
        return False

    def _finish(self, *, is_stopped: bool, policy_version: int) -> None:
        done = Generation(
            token_ids=tuple(self.token_ids),
            logprobs=tuple(self.logprobs),
            finish_reason="stop" if is_stopped else "length",
            policy_version=policy_version,
            top_logprobs=tuple(self.top_logprobs),
            num_cached_tokens=self.num_reused,
        )
        if self.future.set_running_or_notify_cancel():
            self.future.set_result(done)

    def fail(self, error: BaseException) -> None:
        """The answer failed."""
        if self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)


@dataclass
class Scoring:
    """Logprobs that are wanted of tokens that are there."""

    token_ids: tuple[int, ...]
    temperature: float
    future: Future[list[float]]


def answer_limit(
    request: GenerationRequest, *, max_context_tokens: int, vocabulary_size: int
) -> int:
    """Return how many tokens the answer may have.

    Raises `ConfigurationError` for a request that cannot be met.
    """
    sampling = request.sampling
    check_tokens(
        request.prompt_token_ids,
        max_context_tokens=max_context_tokens - 1,
        vocabulary_size=vocabulary_size,
    )
    check_sampling(sampling)
    return min(sampling.max_new_tokens, max_context_tokens - len(request.prompt_token_ids))


def check_tokens(
    token_ids: Sequence[int], *, max_context_tokens: int, vocabulary_size: int
) -> None:
    """Raise `ConfigurationError` for an empty or too long sequence, or ids that are none."""
    if not token_ids:
        raise ConfigurationError("there are no tokens to go on from: the prompt is empty")
    if len(token_ids) > max_context_tokens:
        raise ConfigurationError(
            f"{len(token_ids):,} tokens do not fit: the engine's context leaves room for "
            f"{max_context_tokens:,}",
            hint="Shorten the conversation, or give the engine a longer context.",
        )
    if min(token_ids) < 0 or max(token_ids) >= vocabulary_size:
        raise ConfigurationError(
            f"the model has {vocabulary_size:,} tokens; {min(token_ids)} to {max(token_ids)} "
            "were given",
            hint="The tokenizer is not the model's.",
        )


def check_sampling(sampling: SamplingParameters) -> None:
    """Raise `ConfigurationError` for parameters that no distribution has."""
    wrong = {
        "max_new_tokens": sampling.max_new_tokens < 1,
        "temperature": not 0 <= sampling.temperature < float("inf"),
        "top_p": not 0 < sampling.top_p <= 1,
        "top_k": sampling.top_k < 0,
        "repetition_penalty": not 0 < sampling.repetition_penalty < float("inf"),
        "num_top_logprobs": sampling.num_top_logprobs < 0,
    }
    for name, is_wrong in wrong.items():
        if is_wrong:
            raise ConfigurationError(f"{name} cannot be {getattr(sampling, name)}")
