"""Attention over a tree of branches that lie behind each other in one row of tokens.

A model of transformers calls the function that is registered here in each layer, with the queries,
keys and values of all tokens of a forward pass, ``[1, heads, tokens, size]``. A token sees the
tokens of the branches that its own stands behind, and of its own those up to itself: exactly what
it would see alone in a row (`arkdev.backends.local.prefix_tree`).

Branches of about the same size are padded to one size for a call of the kernel, so that few calls
are needed. Only attention is padded, no other layer. Roots see nothing before them and take the
kernel's causal path, without a mask. Short branches behind the same path are put in one row, so
that the keys of the path are not copied for each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "arkdev_tree"
"""The attention implementation's name in transformers."""

_WASTE = 1.25
"""The padded size of a call, over the size that is needed, at most."""
_SMALL_CALL = 16_384
"""Query and key pairs that cost about as much as a call of the kernel in itself."""
_LARGEST_CALL = 1 << 26
"""Pairs of one call: its mask has as many numbers."""

_UNSUPPORTED = ("softcap", "s_aux", "position_bias")


@dataclass(frozen=True)
class Row:
    """Branches behind one path: tokens are given by their places in the row of all tokens."""

    path: tuple[range, ...]
    own: tuple[range, ...]

    @property
    def num_path(self) -> int:
        """The tokens of the path."""
        return sum(map(len, self.path))

    @property
    def num_own(self) -> int:
        """The tokens of the branches."""
        return sum(map(len, self.own))


@dataclass(frozen=True)
class Call:
    """One call of the kernel, for several rows padded to one size."""

    queries: Tensor
    """Places of the queries, ``[rows, queries]``."""
    keys: Tensor
    """Places of the keys, ``[rows, keys]``: of the path, then those of the queries."""
    runs: Tensor
    """Of each query the number of its branch in the row; −1: padding. ``[rows, queries]``"""
    num_path: Tensor
    """Keys of the path, ``[rows]``."""
    is_causal: bool
    """Whether each row is one branch without a path, so that no mask is needed."""


@dataclass(frozen=True)
class AttentionPlan:
    """The calls of each layer in a forward pass."""

    calls: tuple[Call, ...]
    outputs: Tensor
    """Of each token its place in the outputs of all calls, ``[tokens]``."""
    positions: Tensor
    """Of each token its position in its sequence, ``[tokens]``."""


class PassAttention:
    """A plan and its masks, for the time of one forward pass: layers share the masks.

    They are made when they are needed and go with the pass, since those of a whole step could take
    more memory than the model.
    """

    def __init__(self, plan: AttentionPlan) -> None:
        self.plan = plan
        self._longest = int(plan.positions.max()) + 1
        self._masks: dict[tuple[int | None, torch.dtype], tuple[Tensor | None, ...]] = {}

    def masks(self, window: int | None, dtype: torch.dtype) -> tuple[Tensor | None, ...]:
        """Return the mask of each call, where a token may only see the last `window` ones."""
        if window is not None and self._longest <= window:
            window = None
        if (window, dtype) not in self._masks:
            self._masks[window, dtype] = tuple(
                None if call.is_causal and window is None else self._mask(call, window, dtype)
                for call in self.plan.calls
            )
        return self._masks[window, dtype]

    def _mask(self, call: Call, window: int | None, dtype: torch.dtype) -> Tensor:
        """Return what is added to the scores, ``[rows, 1, queries, keys]``: 0 or −inf.

        Padded queries see padded keys, since a query that sees nothing has no number as output.
        """
        num_queries = call.queries.shape[1]
        depth = call.keys.shape[1] - num_queries
        order = torch.arange(max(depth, num_queries), device=call.queries.device)
        own = (call.runs[:, :, None] == call.runs[:, None, :]) & (
            order[:num_queries, None] >= order[None, :num_queries]
        )
        path = (order[:depth] < call.num_path[:, None])[:, None, :].expand(-1, num_queries, -1)
        is_seen = torch.cat([path, own], dim=2)
        if window is not None:
            positions = self.plan.positions
            distance = positions[call.queries][:, :, None] - positions[call.keys][:, None, :]
            is_seen = is_seen & (distance < window)
        mask = torch.zeros(is_seen.shape, dtype=dtype, device=is_seen.device)
        return mask.masked_fill_(~is_seen, float("-inf"))[:, None]


def plan_attention(rows: Iterable[Row], *, positions: Tensor) -> AttentionPlan:
    """Plan the calls for the rows of a forward pass; `positions` is ``[tokens]``."""
    device = positions.device
    outputs = torch.empty(len(positions), dtype=torch.long)
    calls, done = [], 0
    for of_call in _calls_of(list(rows)):
        size = max(row.num_own for row in of_call)
        for index, row in enumerate(of_call):
            places = torch.cat([torch.arange(own.start, own.stop) for own in row.own])
            outputs[places] = done + index * size + torch.arange(len(places))
        done += size * len(of_call)
        calls.append(_call(of_call, device=device))
    return AttentionPlan(tuple(calls), outputs.to(device), positions)


def _calls_of(rows: Sequence[Row]) -> list[list[Row]]:
    """Put rows together that are padded to one size, as long as the padding is small."""
    calls: list[list[Row]] = []
    needed, most_path, most_own = 0, 0, 0
    for _, of_kind in groupby(
        sorted(rows, key=lambda row: (bool(row.path), row.num_own, row.num_path), reverse=True),
        key=lambda row: not row.path,
    ):
        calls.append([])
        for row in of_kind:
            own, path = row.num_own, row.num_path
            num = len(calls[-1]) + 1
            longest, deepest = max(own, most_own), max(path, most_path)
            size = num * longest * (longest + deepest)
            exact = needed + own * (own + path)
            if calls[-1] and (size > _WASTE * exact + _SMALL_CALL or size > _LARGEST_CALL):
                calls.append([])
                longest, deepest, exact = own, path, own * (own + path)
            calls[-1].append(row)
            needed, most_own, most_path = exact, longest, deepest
        needed = most_own = most_path = 0
    return [call for call in calls if call]


def _call(rows: Sequence[Row], *, device: torch.device) -> Call:
    size = max(row.num_own for row in rows)
    depth = max(row.num_path for row in rows)
    queries = torch.zeros(len(rows), size, dtype=torch.long)
    keys = torch.zeros(len(rows), depth + size, dtype=torch.long)
    runs = torch.full((len(rows), size), -1)
    for index, row in enumerate(rows):
        own = torch.cat([torch.arange(run.start, run.stop) for run in row.own])
        queries[index, : len(own)] = own
        keys[index, depth : depth + len(own)] = own
        runs[index, : len(own)] = torch.repeat_interleave(torch.tensor([len(r) for r in row.own]))
        if row.path:
            path = torch.cat([torch.arange(run.start, run.stop) for run in row.path])
            keys[index, : len(path)] = path
    return Call(
        queries=queries.to(device),
        keys=keys.to(device),
        runs=runs.to(device),
        num_path=torch.tensor([row.num_path for row in rows], device=device),
        is_causal=all(not row.path and len(row.own) == 1 for row in rows),
    )


def tree_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend as the pass's plan says; without a plan this is the usual attention of torch.

    Raises `NotImplementedError` for what changes attention and is not built here.
    """
    attending: PassAttention | None = kwargs.pop("pass_attention", None)
    if attending is None:
        output, _ = sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
        return output, None
    for name in _UNSUPPORTED:
        if kwargs.get(name) is not None:
            raise NotImplementedError(f"attention with {name}")
    plan = attending.plan
    masks = attending.masks(kwargs.get("sliding_window"), value.dtype)
    # [1, heads, tokens, size] -> [tokens, heads, size]
    queries, keys, values = (x[0].transpose(0, 1) for x in (query.to(value.dtype), key, value))
    keys = keys.to(value.dtype)
    outputs = []
    for call, mask in zip(plan.calls, masks, strict=True):
        output = _attend(
            _rows_of(queries, call.queries),
            _rows_of(keys, call.keys),
            _rows_of(values, call.keys),
            mask,
            kwargs.get("scaling"),
        )
        outputs.append(output.flatten(0, 1))
    return torch.cat(outputs).index_select(0, plan.outputs)[None], None


def _rows_of(tokens: Tensor, places: Tensor) -> Tensor:
    """Return the tokens at some places: `tokens[places]` with a faster backward pass."""
    return tokens.index_select(0, places.flatten()).unflatten(0, places.shape)


def _attend(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, scaling: float | None
) -> Tensor:
    """Return ``[rows, queries, heads, size]``; the arguments are laid out in that way too."""
    groups = queries.shape[2] // keys.shape[2]
    has_shared_heads = groups > 1
    if has_shared_heads and mask is not None and queries.device.type != "cpu":
        # elsewhere than on a CPU the fast kernels take no mask together with shared key heads
        keys, values = (x.repeat_interleave(groups, dim=2) for x in (keys, values))
        has_shared_heads = False
    output = scaled_dot_product_attention(
        queries.transpose(1, 2),
        keys.transpose(1, 2),
        values.transpose(1, 2),
        attn_mask=mask,
        is_causal=mask is None,
        scale=scaling,
        enable_gqa=has_shared_heads,
    )
    return output.transpose(1, 2)


AttentionInterface.register(NAME, tree_attention)
AttentionMaskInterface.register(NAME, sdpa_mask)
