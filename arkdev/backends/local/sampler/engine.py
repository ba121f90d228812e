"""`TorchEngine`: the engine ``torch`` of `arkdev.backends.local.engine.GenerationEngine`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import torch

from arkdev.backends.local.engine import (
    EngineCapabilities,
    Generation,
    GenerationRequest,
    OnToken,
)
from arkdev.backends.local.sampler.engine_thread import Change, EngineThread, Progress
from arkdev.backends.local.sampler.kv_cache import KeyValueCache
from arkdev.backends.local.sampler.model_forward import (
    Forward,
    check,
    choose_forward,
    is_row_invariant,
)
from arkdev.backends.local.sampler.model_weights import weights
from arkdev.backends.local.sampler.rows import Row, Scoring, answer_limit, check_tokens
from arkdev.backends.local.sampler.slots import Slots
from arkdev.errors import ConfigurationError, PolicyEngineError

MAX_RUNNING = 64
CACHE_BYTES = 2 * 2**30


class TorchEngine:
    """Samples from a Hugging Face causal LM in this process, float32 on a CPU, bfloat16 on CUDA.

    The weights are copied (fused, for the Llama family), so the model may be trained meanwhile;
    they change by `update_weights` alone. Memory beside that: at most `cache_bytes` for keys and
    values.
    """

    name = "torch"

    def __init__(
        self,
        model: Any,
        *,
        device: torch.device | str = "cpu",
        max_context_tokens: int,
        deterministic: bool = False,
        max_running: int = MAX_RUNNING,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        """`max_running`: requests that decode together; more of them wait.

        Slots for what has finished, whose prefixes are found again, are added to as many, as far as
        `cache_bytes` go. Raises `ConfigurationError` when the model cannot be sampled from, has
        fewer positions than `max_context_tokens`, or not even one context fits in `cache_bytes`.
        """
        device = torch.device(device)
        dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
        forward = choose_forward(
            model, max_context_tokens=max_context_tokens, device=device, dtype=dtype
        )
        check(forward, model, max_context_tokens=max_context_tokens)
        num_slots = _num_slots(forward, max_context_tokens, max_running, cache_bytes)
        max_running = min(max_running, num_slots)
        if deterministic and not is_row_invariant(forward, max_rows=max_running):
            max_running = 1
        self.max_running = max_running
        self.forward_name = forward.name
        self.policy_version = 0
        self.capabilities = EngineCapabilities(
            is_deterministic=deterministic, max_context_tokens=max_context_tokens
        )
        cache = KeyValueCache(
            forward.cache_shape,
            num_slots=num_slots,
            num_tokens=max_context_tokens,
            device=device,
            dtype=dtype,
        )
        self._forward = forward
        slots = Slots(cache, max_running=max_running, reuses_decoded=not deterministic)
        self._is_asleep = False
        self._thread = EngineThread(forward, cache, slots, is_deterministic=deterministic)

    @property
    def progress(self) -> Progress:
        """Counts of what it has done so far."""
        return self._thread.progress

    async def generate(
        self, request: GenerationRequest, *, on_token: OnToken | None = None
    ) -> Generation:
        """See `GenerationEngine`. An answer that reaches the context's end finishes by ``length``.

        Raises `ConfigurationError` when the context has no room for one token after the prompt.
        """
        limit = answer_limit(
            request,
            max_context_tokens=self.capabilities.max_context_tokens,
            vocabulary_size=self._forward.vocabulary_size,
        )
        future: Future[Generation] = Future()
        self._submit(Row(request, limit, future, on_token))
        return await asyncio.wrap_future(future)

    async def score(self, token_ids: Sequence[int], *, temperature: float = 1.0) -> list[float]:
        """See `GenerationEngine`. At temperature 0 logprobs are those at temperature 1."""
        check_tokens(
            token_ids,
            max_context_tokens=self.capabilities.max_context_tokens,
            vocabulary_size=self._forward.vocabulary_size,
        )
        future: Future[list[float]] = Future()
        self._submit(Scoring(tuple(token_ids), temperature, future))
        return await asyncio.wrap_future(future)

    async def update_weights(self, source: Any, *, version: int) -> None:
        """See `GenerationEngine`; `source` is a model like the one that it was made with.

        Raises `ConfigurationError` when it is another one; the old weights stay then.
        """

        def update() -> None:
            self._forward.load(weights(source))
            self._thread.forget(releases=False)
            self.policy_version = self._thread.policy_version = version

        await self._change(update)

    async def sleep(self) -> None:
        """Wait for requests under way; off the CPU, give the cache's memory back."""
        if self._is_asleep:
            return

        def release() -> None:
            if self._forward.device.type != "cpu":
                self._thread.forget(releases=True)

        await self._change(release)
        self._is_asleep = True

    async def wake(self) -> None:
        """Take requests again; the cache takes its memory with the first of them."""
        self._is_asleep = False

    async def close(self) -> None:
        """End the engine's thread. Requests under way fail."""
        await asyncio.to_thread(self._thread.close)

    async def _change(self, work: Callable[[], None]) -> None:
        future: Future[None] = Future()
        self._thread.submit(Change(work, future))
        await asyncio.wrap_future(future)

    def _submit(self, work: Row | Scoring) -> None:
        if self._is_asleep:
            raise PolicyEngineError("the policy engine sleeps", hint="Wake it first.")
        self._thread.submit(work)


def _num_slots(
    forward: Forward, max_context_tokens: int, max_running: int, cache_bytes: int
) -> int:
    of_one = forward.cache_shape.num_bytes(max_context_tokens, dtype=forward.dtype)
    if max_running < 1:
        raise ConfigurationError(f"max_running cannot be {max_running}")
    if of_one > cache_bytes:
        raise ConfigurationError(
            f"one context of {max_context_tokens:,} tokens takes {of_one / 2**20:,.0f} MiB, more "
            f"than the {cache_bytes / 2**20:,.0f} MiB for keys and values",
            hint="Ask for a shorter context, or give the engine more memory.",
        )
    return min(2 * max_running, cache_bytes // of_one)
