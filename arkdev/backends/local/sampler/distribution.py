"""From logits to tokens and logprobs: the distribution that is sampled from, row by row.

In this order, and then renormalised: repetition penalty (Keskar et al., CTRL, arXiv:1909.05858:
logits of tokens that occur already are divided by it where positive, multiplied where negative),
temperature, top-k (arXiv:1805.04833), top-p (arXiv:1904.09751: the fewest most probable tokens
whose probabilities reach p). At temperature 0 the most probable token is taken, top-k and top-p
have no effect, and logprobs are those at temperature 1.

A row's token is where its cumulative distribution (in float64) passes a uniform number, which
follows from the request's seed and the number of the token alone. What one row gets never depends
on another.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch

from arkdev.backends.local.engine import SamplingParameters

_NUM_CANDIDATES = 1024
"""Of a large vocabulary, so many tokens are sorted first; rarely, a row needs all of them."""

TopLogprobs = tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Sampled:
    """One token for each row."""

    token_ids: list[int]
    logprobs: list[float]
    """Not finite where the logits were not."""
    top_logprobs: list[TopLogprobs]
    """Empty where none are wanted."""


def uniform_numbers(seed: int | None, *, num_tokens: int) -> list[float]:
    """Return a number in [0, 1) for each token of an answer; without a seed, other ones each time.

    Philox (Salmon et al., 2011) counts: the numbers of a shorter answer begin those of a longer.
    """
    key = secrets.randbits(64) if seed is None else seed % 2**64
    return np.random.Generator(np.random.Philox(key=key)).random(num_tokens).tolist()  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Rows:
    """The parameters of the rows of a step. Made anew only when other rows run."""

    parameters: Sequence[SamplingParameters]
    device: torch.device
    seen: Sequence[torch.Tensor | None] = field(default=())
    """Which tokens occur already, bool ``[vocabulary]``, of rows with a repetition penalty."""

    def _where(self, chosen: Sequence[bool]) -> torch.Tensor | None:
        rows = [row for row, is_chosen in enumerate(chosen) if is_chosen]
        return torch.tensor(rows, device=self.device) if rows else None

    @cached_property
    def penalised(self) -> torch.Tensor | None:
        """Rows with a repetition penalty; None without any, as below."""
        return self._where([one.repetition_penalty != 1 for one in self.parameters])

    @cached_property
    def penalties(self) -> torch.Tensor:
        """Of the rows above, ``[rows, 1]``."""
        values = [one.repetition_penalty for one in self.parameters if one.repetition_penalty != 1]
        return torch.tensor(values, device=self.device)[:, None]

    @cached_property
    def temperatures(self) -> torch.Tensor | None:
        """``[rows, 1]``, None when all are 1."""
        values = [one.temperature or 1.0 for one in self.parameters]
        if all(value == 1 for value in values):
            return None
        return torch.tensor(values, device=self.device)[:, None]

    @cached_property
    def greedy(self) -> torch.Tensor | None:
        """bool ``[rows]``, None without any."""
        values = [one.temperature == 0 for one in self.parameters]
        return torch.tensor(values, device=self.device) if any(values) else None

    @cached_property
    def filtered(self) -> torch.Tensor | None:
        """Rows of which tokens are left out."""
        return self._where(
            [one.temperature > 0 and (one.top_k > 0 or one.top_p < 1) for one in self.parameters]
        )

    @cached_property
    def wanting_top(self) -> list[int]:
        """Rows that want the most probable tokens."""
        return [row for row, one in enumerate(self.parameters) if one.num_top_logprobs > 0]


def sample(logits: torch.Tensor, rows: Rows, *, uniforms: Sequence[float]) -> Sampled:
    """Sample a token for each row of `logits`, float32 ``[rows, vocabulary]``."""
    logits = _scaled(logits, rows)
    numbers = torch.tensor(uniforms, dtype=torch.float64, device=logits.device)[:, None]
    probabilities = logits.softmax(-1)
    chosen = _inverse(probabilities, numbers)
    if rows.greedy is not None:
        chosen = torch.where(rows.greedy[:, None], logits.argmax(-1, keepdim=True), chosen)
    logprobs = probabilities.gather(1, chosen).log_()
    tops: dict[int, TopLogprobs] = {}
    if rows.wanting_top:
        tops = _top(logits, rows.wanting_top, rows.parameters)
    if rows.filtered is not None:
        _sample_filtered(logits, rows, numbers=numbers, chosen=chosen, logprobs=logprobs, tops=tops)
    return Sampled(
        token_ids=chosen[:, 0].tolist(),
        logprobs=logprobs[:, 0].tolist(),
        top_logprobs=[tops.get(row, ()) for row in range(len(rows.parameters))] if tops else [],
    )


def _scaled(logits: torch.Tensor, rows: Rows) -> torch.Tensor:
    """Apply repetition penalty and temperature."""
    if rows.penalised is not None:
        seen = torch.stack([seen for seen in rows.seen if seen is not None])
        own = logits.index_select(0, rows.penalised)
        changed = torch.where(own > 0, own / rows.penalties, own * rows.penalties)
        logits = logits.index_copy(0, rows.penalised, torch.where(seen, changed, own))
    return logits if rows.temperatures is None else logits / rows.temperatures


def _inverse(probabilities: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """Return of each row the first index where the sum of probabilities passes its number."""
    sums = probabilities.cumsum(-1, dtype=torch.float64)
    found = torch.searchsorted(sums, numbers * sums[:, -1:], right=True)
    return found.clamp_(max=probabilities.shape[1] - 1)


@dataclass(frozen=True)
class _Kept:
    """What top-k and top-p leave of some rows, most probable first."""

    token_ids: torch.Tensor
    probabilities: torch.Tensor
    """0 for what is left out; not renormalised."""


def _sample_filtered(
    logits: torch.Tensor,
    rows: Rows,
    *,
    numbers: torch.Tensor,
    chosen: torch.Tensor,
    logprobs: torch.Tensor,
    tops: dict[int, TopLogprobs],
) -> None:
    """Put the tokens of rows with top-k or top-p in their places."""
    assert rows.filtered is not None
    members = rows.filtered.tolist()
    own = [rows.parameters[row] for row in members]
    few = min(_NUM_CANDIDATES, logits.shape[1])
    left = logits.index_select(0, rows.filtered)
    for row, kept in zip(members, _filtered(left, own, num_candidates=few), strict=True):
        rank = _inverse(kept.probabilities, numbers[row : row + 1])
        total = kept.probabilities.sum(-1, keepdim=True)
        chosen[row] = kept.token_ids.gather(1, rank)[0]
        logprobs[row] = (kept.probabilities.gather(1, rank) / total).log()[0]
        if count := rows.parameters[row].num_top_logprobs:
            shares = (kept.probabilities / total)[0, :count]
            tops[row] = tuple(
                zip(kept.token_ids[0, :count].tolist(), shares.log().tolist(), strict=True)
            )[: int((shares > 0).sum())]


def _filtered(
    logits: torch.Tensor, parameters: Sequence[SamplingParameters], *, num_candidates: int
) -> list[_Kept]:
    """Apply top-k and top-p to all rows at once, looking at the first candidates of each.

    Rows that need more are done again with all tokens.
    """
    size = logits.shape[1]
    is_all = num_candidates == size
    if is_all:
        values, token_ids = logits.sort(dim=-1, descending=True, stable=True)
    else:
        values, token_ids = logits.topk(num_candidates)
    most = [min(one.top_k or size, size) for one in parameters]
    limits = torch.tensor(most, device=logits.device)[:, None]
    shares = torch.tensor([one.top_p for one in parameters], device=logits.device)[:, None]
    ranks = torch.arange(num_candidates, device=logits.device)[None]
    values = values.masked_fill(ranks >= limits, float("-inf"))
    is_cut = limits <= num_candidates
    total = torch.where(
        is_cut, values.logsumexp(-1, keepdim=True), logits.logsumexp(-1, keepdim=True)
    )
    probabilities = (values - total).exp()
    sums = probabilities.cumsum(-1, dtype=torch.float64)
    before = sums - probabilities
    # rounding may bring the sum to 1 early: without a top-p nothing is left out
    kept = probabilities.masked_fill((shares < 1) & (before >= shares) & (ranks > 0), 0)
    is_enough = (is_cut | (sums[:, -1:] >= shares))[:, 0].tolist()
    found = [_Kept(token_ids[row : row + 1], kept[row : row + 1]) for row in range(len(parameters))]
    again = [row for row, enough in enumerate(is_enough) if not enough and not is_all]
    if again:
        more = _filtered(logits[again], [parameters[row] for row in again], num_candidates=size)
        for row, one in zip(again, more, strict=True):
            found[row] = one
    return found


def _top(
    logits: torch.Tensor, members: Sequence[int], parameters: Sequence[SamplingParameters]
) -> dict[int, TopLogprobs]:
    """Return the most probable tokens of rows, of all tokens."""
    most = min(max(parameters[row].num_top_logprobs for row in members), logits.shape[1])
    values, token_ids = logits[list(members)].log_softmax(-1).topk(most)
    return {
        row: tuple(zip(ids, own, strict=True))[: parameters[row].num_top_logprobs]
        for row, ids, own in zip(members, token_ids.tolist(), values.tolist(), strict=True)
    }
