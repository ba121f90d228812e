"""The engine seam: what samples tokens from the policy, with the weights that training last gave.

An engine knows token ids only. Messages are turned into ids, and ids into messages, by what stands
before it (`arkdev.backends.local.endpoint`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol


@dataclass(frozen=True)
class SamplingParameters:
    """How one answer is sampled. The order of effects is the field's: repetition penalty,
    temperature, top-k, top-p; then the rest is renormalised and sampled from."""

    max_new_tokens: int
    temperature: float = 1.0
    """0: the most probable token."""
    top_p: float = 1.0
    top_k: int = 0
    """0: all tokens."""
    repetition_penalty: float = 1.0
    seed: int | None = None
    stop_token_ids: frozenset[int] = frozenset()
    """Sampling one of them ends the answer; it is part of the answer (field case 1.5)."""
    num_top_logprobs: int = 0


@dataclass(frozen=True)
class GenerationRequest:
    """One answer that is wanted."""

    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParameters


@dataclass(frozen=True)
class Generation:
    """What was sampled.

    `logprobs` are natural logarithms of the probabilities of the sampled tokens in the distribution
    that they were really sampled from: after repetition penalty, temperature, top-k and top-p, and
    renormalised (field case 4.1). At temperature 0 they are those at temperature 1.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: Literal["stop", "length"]
    policy_version: int
    """Of the weights that sampled it."""
    top_logprobs: tuple[tuple[tuple[int, float], ...], ...] = ()
    """Of each position the most probable tokens, with `num_top_logprobs` above 0."""
    num_cached_tokens: int = 0
    """Of the prompt, those whose keys and values were there already."""


OnToken = Callable[[int], bool]
"""Is told of each sampled token, in the engine's own thread; False ends the answer there."""


@dataclass(frozen=True)
class EngineCapabilities:
    """What an engine can do."""

    is_deterministic: bool
    """The same request with the same seed and weights has the same answer, whatever runs beside."""
    max_context_tokens: int
    """Of prompt and answer together."""


class GenerationEngine(Protocol):
    """Samples answers; implementations: ``torch``, in this process, and ``vllm``, in its own.

    `generate` and `score` may be called from several event loops and threads at once. They raise

    * `ConfigurationError` when prompt and answer cannot fit the model's context,
    * `PolicyEngineError` when the engine has died or fails; it says what it printed last.
    """

    name: str
    policy_version: int
    capabilities: EngineCapabilities

    async def generate(
        self, request: GenerationRequest, *, on_token: OnToken | None = None
    ) -> Generation:
        """Sample one answer. Cancelling the call ends the sampling."""
        ...

    async def score(self, token_ids: Sequence[int], *, temperature: float = 1.0) -> list[float]:
        """Return the logprob of each token but the first, by the weights that sample now."""
        ...

    async def update_weights(self, source: Any, *, version: int) -> None:
        """Sample with new weights from now on; requests under way are finished first.

        `source` is the policy's model (engine ``torch``) or the folder of its files (``vllm``).
        Cached prefixes of the old weights are forgotten.
        """
        ...

    async def sleep(self) -> None:
        """Release what training on the same device could use. Idempotent."""
        ...

    async def wake(self) -> None:
        """Be ready again. Idempotent."""
        ...

    async def close(self) -> None:
        """End. Idempotent."""
        ...
