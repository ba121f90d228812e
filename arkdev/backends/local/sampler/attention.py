"""Attention over the cache: of a decode step, one token for each row, and of a prefill chunk, some
tokens of one row.

Both are called once for each layer, with the queries ``[rows, heads, size]`` and the new keys and
values ``[rows, 2 × key/value heads, size]`` (keys first), write the latter to the cache, and return
``[rows, heads × size]``. Rows beyond those that count are padding: they are computed and not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
import torch.nn.functional as F

from arkdev.backends.local.sampler.kv_cache import KeyValueCache

ROW_PADDING = 8
"""Steps have a multiple of this many rows, so that a row has the same bits in any of them."""
SMALLEST_BUCKET = 256
_KEY_PADDING = 16
"""Decode steps attend to a multiple of so many keys; most shapes have the same bits for any of
them, and what is masked is read for nothing."""


class AttentionStep(Protocol):
    """One step's attention, for all layers."""

    def attend(
        self,
        layer: int,
        queries: torch.Tensor,
        keys_values: torch.Tensor,
        *,
        scale: float | None = None,
        window: int | None = None,
    ) -> torch.Tensor:
        """Write the new keys and values of `layer`; return what its queries attend to."""
        ...


def padded_rows(num_rows: int) -> int:
    """Return the number of rows that a step of so many has."""
    return -(-num_rows // ROW_PADDING) * ROW_PADDING


def bucket(num_tokens: int) -> int:
    """Return the padded length that follows from a row's own length: 256, 512, 1024, ..."""
    size = SMALLEST_BUCKET
    while size < num_tokens:
        size *= 2
    return size


class DecodeStep:
    """One new token for each of the first rows of the cache, at its position."""

    def __init__(
        self,
        cache: KeyValueCache,
        positions: Sequence[int],
        *,
        own_lengths: bool = False,
    ) -> None:
        """`own_lengths`: each row's padding follows from its own length alone."""
        self._cache = cache
        self._num_rows = len(positions)
        self._positions = torch.tensor(positions, device=cache.device)[:, None]
        self._lines = (cache.first_lines[: self._num_rows] + self._positions).view(-1)
        self._groups = self._by_length(positions, own_lengths=own_lengths)
        self._masks: dict[tuple[int, int | None], torch.Tensor] = {}

    def _by_length(
        self, positions: Sequence[int], *, own_lengths: bool
    ) -> list[tuple[int, torch.Tensor | None]]:
        """Return padded lengths, each with its rows; None for all."""
        most = self._cache.num_tokens
        if not own_lengths:
            longest = -(-(max(positions) + 1) // _KEY_PADDING) * _KEY_PADDING
            return [(longest, None)]
        lengths = [min(bucket(position + 1), most) for position in positions]
        if len(set(lengths)) == 1:
            return [(lengths[0], None)]
        return [
            (
                length,
                torch.tensor(
                    [row for row, own in enumerate(lengths) if own == length],
                    device=self._cache.device,
                ),
            )
            for length in sorted(set(lengths))
        ]

    def attend(
        self,
        layer: int,
        queries: torch.Tensor,
        keys_values: torch.Tensor,
        *,
        scale: float | None = None,
        window: int | None = None,
    ) -> torch.Tensor:
        """See the module."""
        cache, rows = self._cache, self._num_rows
        num_kv, size = cache.shape.num_key_value_heads, cache.shape.head_size
        cache.lines[layer].index_copy_(0, self._lines, keys_values[:rows].reshape(-1, size))
        num_queries = queries.shape[1] // num_kv
        # the queries that share keys become one matrix; a single one would be computed by another
        # routine, whose bits depend on the thread
        grouped = queries[:rows].view(rows, num_kv, num_queries, size)
        if num_queries == 1:
            grouped = grouped.expand(-1, -1, 2, -1)
        attended = self._attended(layer, grouped, scale=scale, window=window)
        out = attended[:, :, :num_queries].reshape(rows, -1)
        num_padding = queries.shape[0] - rows
        return F.pad(out, (0, 0, 0, num_padding)) if num_padding else out

    def _attended(
        self, layer: int, grouped: torch.Tensor, *, scale: float | None, window: int | None
    ) -> torch.Tensor:
        rows = self._num_rows
        keys, values = self._cache.keys[layer][:rows], self._cache.values[layer][:rows]
        out: torch.Tensor | None = None
        for length, members in self._groups:
            mask = self._mask(length, window)
            own_keys, own_values = keys[:, :, :length], values[:, :, :length]
            if members is None:
                return _attention(grouped, own_keys, own_values, mask, scale=scale)
            own = (each.index_select(0, members) for each in (grouped, own_keys, own_values, mask))
            out = torch.empty_like(grouped) if out is None else out
            out.index_copy_(0, members, _attention(*own, scale=scale))
        assert out is not None
        return out

    def _mask(self, length: int, window: int | None) -> torch.Tensor:
        def make() -> torch.Tensor:
            places = self._cache.places[None, :length]
            mask = _additive(places, self._positions, window, self._cache.dtype)
            return mask[:, None, None]

        return _made_once(self._masks, (length, window), make)


class PrefillChunk:
    """Tokens of one row, from position `start` on; `num_rows` of them count."""

    def __init__(
        self, cache: KeyValueCache, slot: int, *, start: int, num_rows: int, shape: tuple[int, int]
    ) -> None:
        """`shape`: the number of rows with padding, and of keys with padding."""
        self._cache = cache
        self._slot = slot
        self._start = start
        self._num_rows = num_rows
        self._shape = shape
        self._masks: dict[tuple[int, int | None], torch.Tensor] = {}

    def attend(
        self,
        layer: int,
        queries: torch.Tensor,
        keys_values: torch.Tensor,
        *,
        scale: float | None = None,
        window: int | None = None,
    ) -> torch.Tensor:
        """See the module."""
        cache, slot, rows = self._cache, self._slot, self._num_rows
        num_kv, size = cache.shape.num_key_value_heads, cache.shape.head_size
        end = self._start + rows
        new = keys_values[:rows].view(rows, 2, num_kv, size)
        cache.keys[layer][slot, :, self._start : end] = new[:, 0].transpose(0, 1)
        cache.values[layer][slot, :, self._start : end] = new[:, 1].transpose(0, 1)
        length = self._shape[1]
        attended = F.scaled_dot_product_attention(
            queries.transpose(0, 1)[None],
            cache.keys[layer][slot : slot + 1, :, :length],
            cache.values[layer][slot : slot + 1, :, :length],
            attn_mask=self._mask(window),
            scale=scale,
            enable_gqa=queries.shape[1] != num_kv,
        )
        return attended[0].transpose(0, 1).reshape(queries.shape[0], -1)

    def _mask(self, window: int | None) -> torch.Tensor:
        def make() -> torch.Tensor:
            places = self._cache.places[None, : self._shape[1]]
            last = self._start + self._num_rows - 1
            own = torch.arange(self._start, self._start + self._shape[0], device=places.device)
            return _additive(places, own.clamp(max=last)[:, None], window, self._cache.dtype)

        return _made_once(self._masks, (self._shape[1], window), make)


def _attention(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor,
    *,
    scale: float | None,
) -> torch.Tensor:
    return F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, scale=scale)


def _additive(
    places: torch.Tensor, own: torch.Tensor, window: int | None, dtype: torch.dtype
) -> torch.Tensor:
    """Return 0 where a position may look, −inf elsewhere; `window` counts its own position."""
    hidden = places > own
    if window is not None:
        hidden = hidden | (places <= own - window)
    mask = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device)
    return mask.masked_fill_(hidden, float("-inf"))


def _made_once(
    masks: dict[tuple[int, int | None], torch.Tensor],
    key: tuple[int, int | None],
    make: Callable[[], torch.Tensor],
) -> torch.Tensor:
    if key not in masks:
        masks[key] = make()
    return masks[key]
