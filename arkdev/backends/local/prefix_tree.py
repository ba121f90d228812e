"""Sequences that begin alike, as a tree whose branches are each computed once. Plain lists.

Four answers to one question, with the tokens of question and answers::

    a b c d x          a b c d ─┬─ x
    a b c d y e f z             └─ y e f ─┬─ z
    a b c d y e f w                       └─ w

A causal model computes the same for `a b c d` in each of them: what stands behind it cannot be
seen. So 21 tokens take 10 to compute. It is not the prompt of a group alone that is shared: also
what all prompts of a job begin with, and the part of the answers that is still the same. (The idea,
for the prompt of a group: Prefix Grouper, arXiv:2506.05433.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

LEAST_SHARED = 8
"""Tokens that are worth a branch of their own: each costs a call of the attention kernel."""

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class Branch:
    """A run of tokens that is computed once, behind all of `path`."""

    start: int
    """Its first token's place in each sequence that has it."""
    end: int
    sequence: int
    """The index of one of the sequences that have it: they all have the same tokens there."""
    path: tuple[int, ...]
    """The indexes of the branches that stand before it, from the root."""
    leaves: list[int]
    """The sequences that end with it."""


def shared_length(first: Tokens, second: Tokens) -> int:
    """Return how many tokens two sequences have in common, from the first on."""
    most = min(len(first), len(second))
    if first[:most] == second[:most]:
        return most
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if first[:middle] == second[:middle] else (low, middle)
    return low


def branches(sequences: Sequence[Tokens], *, shares: bool = True) -> list[Branch]:
    """Return the tree of some sequences, each branch behind those of its path.

    `shares` False gives every sequence a branch of its own. The sequences must be sorted.
    """
    if not shares:
        return [
            Branch(0, len(tokens), sequence=index, path=(), leaves=[index])
            for index, tokens in enumerate(sequences)
        ]
    common = [shared_length(a, b) for a, b in pairwise(sequences)]
    tree: list[Branch] = []
    open_spans: list[tuple[int, int, int, tuple[int, ...]]] = [(0, len(sequences), 0, ())]
    while open_spans:
        first_of_span, end_of_span, start, path = open_spans.pop()
        for first, last in _alike(common, span=(first_of_span, end_of_span), start=start):
            end = min(common[first : last - 1], default=len(sequences[first]))
            ending = first
            while ending < last and len(sequences[ending]) == end:
                ending += 1
            leaves = list(range(first, ending))
            tree.append(Branch(start, end, sequence=first, path=path, leaves=leaves))
            if ending < last:
                open_spans.append((ending, last, end, (*path, len(tree) - 1)))
    return tree


def _alike(
    common: Sequence[int], *, span: tuple[int, int], start: int
) -> Iterator[tuple[int, int]]:
    """Yield the runs of neighbours with enough in common behind `start`."""
    first, end = span
    for index in range(first, end):
        if index == end - 1 or common[index] - start < LEAST_SHARED:
            yield first, index + 1
            first = index + 1


def micro_batches(
    sequences: Sequence[Tokens], *, most_tokens: int, shares: bool
) -> list[list[int]]:
    """Return the indexes of the sequences of each forward pass, sorted so that neighbours share.

    A pass has about `most_tokens` tokens to compute at most, or a single sequence. Empty sequences
    are left out.
    """
    order = sorted(
        (index for index, tokens in enumerate(sequences) if tokens), key=lambda i: sequences[i]
    )
    passes: list[list[int]] = []
    room = 0
    for index in order:
        tokens = sequences[index]
        before = sequences[passes[-1][-1]] if passes else ()
        shared = shared_length(before, tokens) if shares else 0
        cost = len(tokens) - (shared if shared >= LEAST_SHARED else 0)
        if not passes or cost > room:
            passes.append([])
            room, cost = most_tokens, len(tokens)
        passes[-1].append(index)
        room -= cost
    return passes
