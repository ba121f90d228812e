"""From the sequences of a step to the tensors of its forward passes (micro-batches).

*packed* (the usual layout): all tokens of a pass stand in one row without padding, what sequences
have in common stands there once. *padded*: a row for each sequence, padded on the right, for models
whose layers see more than attention lets them (state spaces, convolutions, ...).

A pass carries what its trained tokens need, each in the same order: the place of the hidden state
that predicts it, its id, its advantage, its weight and the sampler's logprob. A token that is
trained in several sequences has an entry for each. Tokens with a mask or a weight of 0 have none.
The first token of a sequence is predicted by nothing and cannot be trained.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from arkdev.backends.local.attention import AttentionPlan, Row, plan_attention
from arkdev.backends.local.batch import TrainingSequence
from arkdev.backends.local.prefix_tree import Branch, branches, micro_batches


@dataclass(frozen=True)
class MicroBatch:
    """One forward pass. Shapes: ``[rows, columns]`` of token ids, ``[trained]`` of the rest."""

    token_ids: Tensor
    position_ids: Tensor
    plan: AttentionPlan | None
    """Of the packed layout."""
    attention_mask: Tensor | None
    """Of the padded layout."""
    predictors: Tensor
    """Places of the hidden states that predict the trained tokens, in the flattened row."""
    targets: Tensor
    advantages: Tensor
    weights: Tensor
    rollout_logprobs: Tensor
    sequences: tuple[int, ...]
    """The indexes of its sequences in the batch."""
    num_sequence_tokens: int
    """Of its sequences together, with what they share counted for each."""

    @property
    def num_trained(self) -> int:
        """How many tokens are trained."""
        return len(self.targets)

    @property
    def num_tokens(self) -> int:
        """How many tokens are computed, padding included."""
        return int(self.token_ids.numel())


def pack(
    sequences: Sequence[TrainingSequence],
    *,
    most_tokens: int,
    device: torch.device | str = "cpu",
    is_packed: bool = True,
    shares_prefixes: bool = True,
) -> list[MicroBatch]:
    """Return the forward passes for some sequences, of about `most_tokens` tokens each at most.

    Loss and gradient of the step do not depend on `most_tokens` or the layout, but for rounding.
    Sequences without a trained token need no pass and are left out.
    """
    trained = [i for i, sequence in enumerate(sequences) if any(_trained(sequence))]
    shares = is_packed and shares_prefixes
    passes = micro_batches(
        [sequences[i].token_ids for i in trained], most_tokens=most_tokens, shares=shares
    )
    batches = []
    for members in passes:
        indexes = tuple(trained[i] for i in members)
        chosen = [sequences[i] for i in indexes]
        if is_packed:
            batches.append(_packed(chosen, indexes, torch.device(device), shares))
        else:
            batches.append(_padded(chosen, indexes, torch.device(device)))
    return batches


def _trained(sequence: TrainingSequence) -> Iterator[int]:
    """Yield the places of the trained tokens of a sequence."""
    for place in range(1, len(sequence.token_ids)):
        if sequence.loss_mask[place] and sequence.token_weights[place]:
            yield place


def _packed(
    sequences: Sequence[TrainingSequence],
    indexes: tuple[int, ...],
    device: torch.device,
    shares: bool,
) -> MicroBatch:
    tree = branches([sequence.token_ids for sequence in sequences], shares=shares)
    ids: list[int] = []
    positions: list[int] = []
    places: list[range] = []
    for branch in tree:
        places.append(range(len(ids), len(ids) + branch.end - branch.start))
        ids.extend(sequences[branch.sequence].token_ids[branch.start : branch.end])
        positions.extend(range(branch.start, branch.end))
    of_sequence: dict[int, list[int]] = {}
    for branch, own in zip(tree, places, strict=True):
        if branch.leaves:
            runs = [*(places[index] for index in branch.path), own]
            row = [place for run in runs for place in run]
            of_sequence.update(dict.fromkeys(branch.leaves, row))
    position_ids = torch.tensor(positions, device=device)
    return MicroBatch(
        token_ids=torch.tensor([ids], device=device),
        position_ids=position_ids[None],
        plan=plan_attention(_rows(tree, places), positions=position_ids),
        attention_mask=None,
        sequences=indexes,
        num_sequence_tokens=sum(len(sequence.token_ids) for sequence in sequences),
        **_trained_tensors(sequences, [of_sequence[i] for i in range(len(sequences))], device),
    )


def _rows(tree: Sequence[Branch], places: Sequence[range]) -> Iterator[Row]:
    """Yield the rows of attention: short branches behind one path are put together in one."""
    pairs = sorted(zip(tree, places, strict=True), key=lambda pair: pair[0].path)
    for path, siblings in groupby(pairs, key=lambda pair: pair[0].path):
        before = tuple(places[index] for index in path)
        room = sum(map(len, before)) // 2
        together: list[range] = []
        for _, own in siblings:
            if together and sum(map(len, together)) + len(own) > room:
                yield Row(before, tuple(together))
                together = []
            together.append(own)
        yield Row(before, tuple(together))


def _padded(
    sequences: Sequence[TrainingSequence], indexes: tuple[int, ...], device: torch.device
) -> MicroBatch:
    longest = max(len(sequence.token_ids) for sequence in sequences)
    ids = torch.zeros(len(sequences), longest, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for index, sequence in enumerate(sequences):
        ids[index, : len(sequence.token_ids)] = torch.tensor(sequence.token_ids)
        mask[index, : len(sequence.token_ids)] = 1
    rows = [range(index * longest, (index + 1) * longest) for index in range(len(sequences))]
    return MicroBatch(
        token_ids=ids.to(device),
        position_ids=torch.arange(longest, device=device).expand(len(sequences), -1),
        plan=None,
        attention_mask=mask.to(device),
        sequences=indexes,
        num_sequence_tokens=int(mask.sum()),
        **_trained_tensors(sequences, rows, device),
    )


def _trained_tensors(
    sequences: Sequence[TrainingSequence],
    places: Sequence[Sequence[int]],
    device: torch.device,
) -> dict[str, Tensor]:
    """Return the tensors of trained tokens; `places` has one for each token of each sequence."""
    trained = [list(_trained(sequence)) for sequence in sequences]
    pairs = list(zip(sequences, trained, strict=True))
    predictors = [row[t - 1] for row, own in zip(places, trained, strict=True) for t in own]
    return {
        "predictors": torch.tensor(predictors, dtype=torch.long, device=device),
        "targets": torch.tensor(
            [s.token_ids[t] for s, own in pairs for t in own], dtype=torch.long, device=device
        ),
        "advantages": torch.tensor(
            [s.advantages[t] for s, own in pairs for t in own], dtype=torch.float32, device=device
        ),
        "weights": torch.tensor(
            [s.token_weights[t] for s, own in pairs for t in own],
            dtype=torch.float32,
            device=device,
        ),
        "rollout_logprobs": torch.tensor(
            [s.rollout_logprobs[t] for s, own in pairs for t in own],
            dtype=torch.float32,
            device=device,
        ),
    }
