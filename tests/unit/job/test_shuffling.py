"""Orders and draws: the documented algorithm, the same in every process and version of Python."""

import hashlib
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from arkdev.job.shuffling import drawn, shuffled

quick = settings(max_examples=50, database=None, deadline=None, derandomize=True)


def test_an_order_is_what_it_always_was():
    assert list(shuffled(10, seed=0, labels=("epoch", 0))) == [3, 5, 7, 6, 1, 2, 8, 0, 4, 9]
    assert list(shuffled(10, seed=0, labels=("epoch", 1))) != list(
        shuffled(10, seed=0, labels=("epoch", 0))
    )
    assert list(drawn(4, size=100, seed=7, labels=("validation",))) == [5, 32, 72, 88]


@quick
@given(size=st.integers(0, 200), seed=st.integers(-(2**70), 2**70), epoch=st.integers(0, 10**6))
def test_the_documented_algorithm_gives_the_order(size, seed, epoch):
    digest = hashlib.sha256(f"arkdev/{seed}/epoch/{epoch}".encode()).digest()
    generator = random.Random(int.from_bytes(digest, "big"))
    expected = list(range(size))
    for i in reversed(range(1, size)):
        j = int(generator.random() * (i + 1))
        expected[i], expected[j] = expected[j], expected[i]
    order = list(shuffled(size, seed=seed, labels=("epoch", epoch)))
    assert order == expected
    assert sorted(order) == list(range(size))


@quick
@given(size=st.integers(1, 200), seed=st.integers(0, 2**40), data=st.data())
def test_a_draw_has_different_numbers_in_ascending_order(size, seed, data):
    count = data.draw(st.integers(0, size))
    numbers = list(drawn(count, size=size, seed=seed, labels=("mix", 3)))
    assert len(numbers) == count
    assert numbers == sorted(set(numbers))
    assert set(numbers) <= set(range(size))


def test_every_place_is_as_likely_as_the_others():
    """Of 6,000 orders of 3, each of the 6 comes about 1,000 times (4 standard deviations: 115)."""
    counts: dict[tuple[int, ...], int] = {}
    for seed in range(6000):
        order = tuple(shuffled(3, seed=seed, labels=("epoch", 0)))
        counts[order] = counts.get(order, 0) + 1
    assert len(counts) == 6
    assert all(abs(count - 1000) < 115 for count in counts.values()), counts
