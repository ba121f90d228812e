"""Mixing and splitting by numbers alone: how many, which, and never both sides of a split."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arkdev.job.mixing import MAX_SAMPLES, Mix, MixPart, split_off

quick = settings(max_examples=60, database=None, deadline=None, derandomize=True)
amounts = st.one_of(
    st.none(),
    st.tuples(st.just("multiplier"), st.floats(0.05, 4)),
    st.tuples(st.just("sample_count"), st.integers(1, 90)),
)


def part(first: int, size: int, amount=None) -> MixPart:
    return MixPart(range(first, first + size), **dict([amount] if amount else []))


@quick
@given(
    parts=st.lists(st.tuples(st.integers(20, 40), amounts), min_size=1, max_size=4),
    seed=st.integers(0, 99),
)
def test_each_part_gives_what_is_wanted_as_evenly_as_can_be(parts, seed):
    made = [part(100 * n, size, amount) for n, (size, amount) in enumerate(parts)]
    mix = Mix(made, seed=seed)
    taken = [mix[index] for index in range(len(mix))]
    assert taken == list(Mix(made, seed=seed))
    for n, (size, amount) in enumerate(parts):
        counts = Counter(number for number in taken if number // 100 == n)
        kind, value = amount or ("multiplier", 1.0)
        wanted = value if kind == "sample_count" else value * size
        assert abs(counts.total() - wanted) <= 0.5
        times = [counts[100 * n + i] for i in range(size)]
        assert max(times) - min(times) <= 1
    assert sorted(number // 100 for number in taken) == [number // 100 for number in taken]


def test_half_a_sample_counts_as_one():
    assert [part(0, 5, ("multiplier", m)).wanted for m in (0.1, 0.3, 0.5, 1.1, 2)] == [
        *(1, 2, 3, 6, 10)
    ]


def test_the_seed_decides_which_samples_are_drawn():
    draws = {tuple(Mix([part(0, 40, ("sample_count", 10))], seed=seed)) for seed in range(5)}
    assert len(draws) == 5


@pytest.mark.parametrize(
    ("size", "fields", "said"),
    [
        (3, {"multiplier": 1.0, "sample_count": 1}, "exclude each other"),
        (3, {"multiplier": 0.0}, "multiplier is 0; more than 0"),
        (3, {"multiplier": -1.0}, "multiplier is -1; more than 0"),
        (3, {"multiplier": float("nan")}, "multiplier is nan; more than 0"),
        (3, {"multiplier": 0.1}, "none of 3 samples is taken"),
        (3, {"sample_count": 0}, "sample_count is 0; at least 1"),
        (0, {}, "no samples to mix in"),
    ],
)
def test_a_part_that_gives_nothing_is_refused(size, fields, said):
    with pytest.raises(ValueError, match=said):
        MixPart(range(size), **fields)


@pytest.mark.parametrize("index", [-1, 3])
def test_there_is_nothing_outside_of_a_mix(index):
    with pytest.raises(IndexError, match="the mix has 3"):
        Mix([part(0, 3)], seed=0)[index]


@quick
@given(
    sizes=st.lists(st.integers(10, 60), min_size=1, max_size=3),
    percentage=st.floats(0.5, 40),
    seed=st.integers(0, 99),
)
def test_a_split_parts_the_samples_and_no_copy_is_on_both_sides(sizes, percentage, seed):
    parts = [part(100 * n, size, ("multiplier", 2.5)) for n, size in enumerate(sizes)]
    kept, validation = split_off(parts, percentage=percentage, seed=seed)
    training = [number for each in kept for number in each.samples]
    everything = [number for each in parts for number in each.samples]
    assert sorted([*training, *validation]) == everything
    assert abs(len(validation) - percentage / 100 * sum(sizes)) <= 1
    assert len(validation) >= 1
    assert set(Mix(kept, seed=seed)).isdisjoint(validation)
    again = split_off(parts, percentage=percentage, seed=seed)
    assert again[1] == validation


def test_a_split_is_what_it_always_was():
    _, validation = split_off([part(0, 30)], percentage=10, seed=0)
    assert list(validation) == [17, 19, 20]


@pytest.mark.parametrize("percentage", [0, 100, -1, float("nan")])
def test_a_split_of_everything_or_nothing_is_refused(percentage):
    with pytest.raises(ValueError, match="between 0 and 100"):
        split_off([part(0, 30)], percentage=percentage, seed=0)


def test_one_sample_cannot_be_split():
    with pytest.raises(ValueError, match="fewer than 2"):
        split_off([part(0, 1)], percentage=50, seed=0)


@pytest.mark.parametrize("fields", [{"sample_count": MAX_SAMPLES + 1}, {"multiplier": 1e300}])
def test_a_mix_that_no_memory_holds_is_refused(fields):
    with pytest.raises(ValueError, match="more than 100,000,000 samples cannot be mixed"):
        MixPart(range(10), **fields)
    parts = [MixPart(range(10), sample_count=MAX_SAMPLES // 2 + 1)] * 2
    with pytest.raises(ValueError, match="more than 100,000,000 samples cannot be mixed"):
        Mix(parts, seed=0)
