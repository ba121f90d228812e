"""Which forward pass samples from a model, the passes of one sequence, and what is checked
first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from arkdev.backends.local.sampler.attention import (
    ROW_PADDING,
    AttentionStep,
    DecodeStep,
    PrefillChunk,
    padded_rows,
)
from arkdev.backends.local.sampler.kv_cache import PADDING, CacheShape, KeyValueCache, padded
from arkdev.backends.local.sampler.llama_forward import LlamaForward, is_fast
from arkdev.backends.local.sampler.model_weights import plain_model, weights
from arkdev.backends.local.sampler.module_forward import ModuleForward
from arkdev.errors import ConfigurationError

LARGEST_CHUNK = 256
"""Rows of a prefill chunk; of a deterministic one, `PADDING`."""
_CHECKED_TOKENS = 24
_TOLERANCES = {torch.float32: 1e-3, torch.bfloat16: 0.3, torch.float16: 0.1}
"""Of logprobs, between the model and the engine's pass in that type. Rounding stays well below;
a part of the model that is left out does not."""


class Forward(Protocol):
    """One pass of the model over the rows of a step."""

    name: str
    device: torch.device
    dtype: torch.dtype
    vocabulary_size: int
    cache_shape: CacheShape

    def load(self, named: Any) -> None:
        """Copy new weights, pairs of a name and a tensor.

        Raises `ConfigurationError`, with nothing changed, when they are another model's.
        """
        ...

    def logits(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        step: AttentionStep,
        *,
        keep: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the logits of the rows `keep` (None: of all), float32 ``[rows, vocabulary]``."""
        ...


def choose_forward(
    model: Any, *, max_context_tokens: int, device: torch.device, dtype: torch.dtype
) -> Forward:
    """Return the pass for this model, with its weights.

    Raises `ConfigurationError` when the model has fewer positions, or cannot be sampled from.
    """
    base = plain_model(model)
    _check_positions(base.config, max_context_tokens)
    if not is_fast(base):
        return ModuleForward(model, device=device, dtype=dtype)
    forward = LlamaForward(base, num_positions=max_context_tokens, device=device, dtype=dtype)
    forward.load(weights(model))
    return forward


def _check_positions(config: Any, max_context_tokens: int) -> None:
    known = getattr(config, "max_position_embeddings", None)
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") in {"dynamic", "longrope"}:
        # beyond these the rotation of every position depends on the longest sequence in the batch
        known = rope.get("original_max_position_embeddings") or known
    if known is not None and max_context_tokens > known:
        raise ConfigurationError(
            f"the model has {known:,} positions, fewer than the context of "
            f"{max_context_tokens:,} tokens that is wanted",
            hint=f"Ask for at most {known:,} tokens.",
        )


def decode(
    forward: Forward,
    cache: KeyValueCache,
    *,
    token_ids: Sequence[int],
    positions: Sequence[int],
    own_lengths: bool = False,
) -> torch.Tensor:
    """Return the logits ``[rows, vocabulary]`` after one more token of each of the first rows."""
    num_rows = len(token_ids)
    padding = [0] * (padded_rows(num_rows) - num_rows)
    step = DecodeStep(cache, positions, own_lengths=own_lengths)
    logits = forward.logits(
        torch.tensor([*token_ids, *padding], device=forward.device),
        torch.tensor([*positions, *padding], device=forward.device),
        step,
    )
    return logits[:num_rows]


def prefill_chunks(start: int, end: int, *, is_aligned: bool) -> list[tuple[int, int]]:
    """Return the chunks, each with its start and end, in which these positions are computed."""
    if not is_aligned:
        starts = range(start, end, LARGEST_CHUNK)
        return [(one, min(one + LARGEST_CHUNK, end)) for one in starts]
    starts = range(start - start % PADDING, end, PADDING)
    return [(one, min(one + PADDING, end)) for one in starts]


def prefill(
    forward: Forward,
    cache: KeyValueCache,
    slot: int,
    *,
    token_ids: Sequence[int],
    chunk: tuple[int, int],
    is_aligned: bool,
) -> torch.Tensor:
    """Compute a chunk's keys and values; `token_ids` are the whole sequence's.

    Returns the logits after its last token, ``[vocabulary]``.
    """
    last = chunk[1] - chunk[0] - 1
    keep = torch.full((ROW_PADDING,), last, device=forward.device)
    arguments = _chunk_arguments(forward, cache, slot, token_ids, chunk, is_aligned)
    return forward.logits(*arguments, keep=keep)[0]


def prefill_all_logits(
    forward: Forward,
    cache: KeyValueCache,
    slot: int,
    *,
    token_ids: Sequence[int],
    chunk: tuple[int, int],
    is_aligned: bool,
) -> torch.Tensor:
    """As `prefill`; returns the logits after each token of the chunk."""
    arguments = _chunk_arguments(forward, cache, slot, token_ids, chunk, is_aligned)
    return forward.logits(*arguments)[: chunk[1] - chunk[0]]


def _chunk_arguments(
    forward: Forward,
    cache: KeyValueCache,
    slot: int,
    token_ids: Sequence[int],
    chunk: tuple[int, int],
    is_aligned: bool,
) -> tuple[torch.Tensor, torch.Tensor, PrefillChunk]:
    start, end = chunk
    num_rows = end - start
    rows = PADDING if is_aligned else padded_rows(num_rows)
    num_keys = padded(start + PADDING if is_aligned else end)
    padding = rows - num_rows
    ids = torch.tensor([*token_ids[start:end], *([0] * padding)], device=forward.device)
    positions = torch.arange(start, start + rows, device=forward.device).clamp_(max=end - 1)
    step = PrefillChunk(cache, slot, start=start, num_rows=num_rows, shape=(rows, num_keys))
    return ids, positions, step


def check(forward: Forward, model: Any, *, max_context_tokens: int) -> None:
    """Compare the pass with the model itself, on a few tokens, prefilled and decoded.

    Raises `ConfigurationError` when they differ by more than rounding, and when the model's own are
    no numbers.
    """
    base = plain_model(model)
    count = min(_CHECKED_TOKENS, forward.vocabulary_size, max_context_tokens)
    token_ids = [(7 * index + 3) % forward.vocabulary_size for index in range(count)]
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            expected = model(torch.tensor([token_ids], device=base.device)).logits[0].float()
    finally:
        model.train(was_training)
    if expected.isnan().any():
        raise ConfigurationError(
            f"the weights of {type(base).__name__} are damaged: the model's own answers are no "
            "numbers",
            hint="fetch its files again, or train from another checkpoint",
        )
    cache = KeyValueCache(
        forward.cache_shape,
        num_slots=1,
        num_tokens=count,
        device=forward.device,
        dtype=forward.dtype,
    )
    cache.allocate()
    half = count // 2
    with torch.inference_mode():
        rows = [
            prefill_all_logits(
                forward, cache, 0, token_ids=token_ids, chunk=(0, half), is_aligned=False
            )
        ]
        for position in range(half, count):
            rows.append(
                decode(forward, cache, token_ids=[token_ids[position]], positions=[position])
            )
        found = torch.cat(rows).log_softmax(-1).cpu()
    gap = (found - expected.log_softmax(-1).cpu()).abs().max().item()
    if not gap <= _TOLERANCES[forward.dtype]:
        raise ConfigurationError(
            f"the engine torch cannot sample from {type(base).__name__}: its logprobs differ from "
            f"the model's own by up to {gap:.3g}",
            hint="The model mixes tokens in a way that the engine does not know; take the engine "
            "vllm.",
        )


def is_row_invariant(forward: Forward, *, max_rows: int) -> bool:
    """Whether a row of a decode step has the same bits whatever the number of rows and its place.

    Tried with the same token in every row, for each number of rows that steps are padded to.
    """
    sizes = range(ROW_PADDING, padded_rows(max_rows) + 1, ROW_PADDING)
    cache = KeyValueCache(
        forward.cache_shape,
        num_slots=sizes[-1],
        num_tokens=1,
        device=forward.device,
        dtype=forward.dtype,
    )
    cache.allocate()
    first: torch.Tensor | None = None
    with torch.inference_mode():
        for size in sizes:
            logits = decode(
                forward,
                cache,
                token_ids=[1 % forward.vocabulary_size] * size,
                positions=[0] * size,
                own_lengths=True,
            )
            first = logits[0].clone() if first is None else first
            if not bool((logits == first).all()):
                return False
    return True
