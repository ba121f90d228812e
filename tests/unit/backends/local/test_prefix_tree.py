"""Sequences that begin alike become a tree that loses and repeats nothing."""

import random

from arkdev.backends.local.prefix_tree import (
    LEAST_SHARED,
    branches,
    micro_batches,
    shared_length,
)


def rebuilt(tree, sequences):
    """The sequences that the tree's paths spell."""
    found = {}
    for branch in tree:
        runs = [*(tree[index] for index in branch.path), branch]
        tokens = tuple(t for run in runs for t in sequences[run.sequence][run.start : run.end])
        found |= dict.fromkeys(branch.leaves, tokens)
    return [found[index] for index in range(len(sequences))]


def computed(tree):
    return sum(branch.end - branch.start for branch in tree)


def test_the_paths_of_a_tree_spell_its_sequences():
    rng = random.Random(0)
    for trial in range(200):
        system = tuple(rng.randrange(3) for _ in range(rng.randrange(30)))
        sequences = sorted(
            system[: rng.randrange(31)]
            + tuple(rng.randrange(2) for _ in range(rng.randrange(1, 40)))
            for _ in range(rng.randrange(1, 12))
        )
        assert rebuilt(branches(sequences), sequences) == sequences, trial


def test_a_path_stands_before_its_branches_and_meets_them():
    rng = random.Random(1)
    sequences = sorted(tuple(rng.randrange(2) for _ in range(40)) for _ in range(60))
    tree = branches(sequences)

    for index, branch in enumerate(tree):
        assert all(before < index for before in branch.path)
        assert branch.start == (tree[branch.path[-1]].end if branch.path else 0)


def test_what_is_shared_is_computed_once_also_in_the_answers():
    prompt, turn = tuple(range(100)), tuple(range(200, 220))
    sequences = sorted([(*prompt, 1), (*prompt, *turn, 2), (*prompt, *turn, 3)])

    assert computed(branches(sequences)) == 100 + 1 + 20 + 1 + 1


def test_equal_sequences_and_one_that_goes_on_are_one_branch():
    short, long = tuple(range(20)), tuple(range(25))
    tree = branches([short, short, long])

    assert [(branch.start, branch.end, branch.leaves) for branch in tree] == [
        (0, 20, [0, 1]),
        (20, 25, [2]),
    ]


def test_a_few_tokens_in_common_are_not_worth_a_branch():
    few = tuple(range(LEAST_SHARED - 1))
    assert len(branches([(*few, 50, 51), (*few, 60, 61)])) == 2


def test_shared_length():
    assert shared_length((1, 2, 3), (1, 2, 4)) == 2
    assert shared_length((1, 2), (1, 2, 4)) == 2
    assert shared_length((), (1,)) == 0
    assert shared_length((2,), (1,)) == 0


def test_passes_hold_every_sequence_once_within_their_room():
    rng = random.Random(2)
    sequences = [tuple(rng.randrange(4) for _ in range(rng.randrange(60))) for _ in range(80)]
    for shares in (True, False):
        passes = micro_batches(sequences, most_tokens=150, shares=shares)

        assert sorted(i for one in passes for i in one) == [i for i in range(80) if sequences[i]]
        for members in passes:
            tree = branches([sequences[i] for i in members], shares=shares)
            # shared runs that are too short for a branch of their own are computed again
            assert computed(tree) <= 150 + LEAST_SHARED * len(members)


def test_a_sequence_longer_than_a_pass_has_one_of_its_own():
    sequences = [tuple(range(50)), tuple(range(100, 110)), tuple(range(200, 205))]

    assert micro_batches(sequences, most_tokens=20, shares=True) == [[0], [1, 2]]


def test_neighbours_share_whatever_order_they_come_in():
    one, other = tuple(range(50)), tuple(range(100, 150))
    sequences = [(*one, 1), (*other, 1), (*one, 2), (*other, 2)]

    assert micro_batches(sequences, most_tokens=55, shares=True) == [[0, 2], [1, 3]]
