"""Prompts to drop or to make easier."""

from __future__ import annotations

from arkdev.harness.forecast.settled import settled_prompts
from arkdev.harness.forecast.signal import SignalSource
from arkdev.harness.forecast.size import JobSize
from tests.unit.harness.forecast.observing import group, left, run, solved

SIZE = JobSize(4, 8, 8)


def settled(groups: list[object], n: int) -> object:
    seen = run(groups, n)
    return settled_prompts(seen, SignalSource(seen), SIZE)


def test_always_and_never_solved_are_named() -> None:
    found = settled([solved(0, 8, 8), solved(1, 0, 8), solved(2, 4, 8), left(3, 8)], 8)
    assert [one.sample_index for one in found.always_solved] == [0]
    assert [one.sample_index for one in found.never_solved] == [1]
    assert found.num_prompts == 3
    assert not found.is_too_few


def test_a_prompt_with_a_signal_in_any_epoch_is_kept() -> None:
    found = settled([solved(0, 8, 8), solved(0, 7, 8)], 8)
    assert (found.always_solved, found.never_solved) == ((), ())


def test_rewards_that_differ_above_the_threshold_still_teach() -> None:
    assert settled([group(0, [1.0, 1.5] * 4)], 8).always_solved == ()


def test_few_rollouts_are_too_few_and_the_bound_says_why() -> None:
    found = settled([solved(0, 4, 4)], 4)
    assert found.is_too_few
    assert 0.6 < (found.rate_bound or 0) < 0.7


def test_the_chance_of_a_signal_depends_on_how_the_others_are() -> None:
    """8 of 8 among prompts that are all or nothing is settled; among 7 of 8 it is luck."""
    apart = [solved(i, 8 * (i % 2), 8) for i in range(40)]
    luck = [solved(i, 8 - (i % 3 > 0), 8) for i in range(40)]
    sure, unsure = (settled(groups, 8).signal_after_solved for groups in (apart, luck))
    assert sure.value is not None
    assert unsure.value is not None
    assert sure.value < 0.2 < unsure.value
