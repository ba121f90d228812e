"""The noise of graders: a published example, an independent reference, known noise."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest

from arkdev.harness.bootstrap import bootstrapped
from arkdev.harness.judge_noise import (
    calls_by_formula,
    judge_noise,
    sign_error_by_formula,
)

SHROUT_FLEISS = [
    [9, 2, 5, 8],
    [6, 1, 3, 2],
    [8, 4, 6, 8],
    [7, 1, 2, 6],
    [10, 5, 6, 9],
    [6, 2, 4, 7],
]
"""Six targets, four ratings each (Shrout & Fleiss 1979, table 2): ICC(1,1) is .17."""


def normal(
    num_groups: int, *, noise: float, size: int = 8, gradings: int = 5, seed: int = 0
) -> list[list[list[float]]]:
    """Groups with a spread of 1 and group means far apart."""
    random = Random(seed)
    groups = []
    for _ in range(num_groups):
        level = random.gauss(0, 50)
        true = [random.gauss(0, 1) for _ in range(size)]
        groups.append([[level + t + random.gauss(0, noise) for _ in range(gradings)] for t in true])
    return groups


def test_a_published_example() -> None:
    noise = judge_noise([SHROUT_FLEISS])
    assert noise.reliability.value == pytest.approx(0.17, abs=0.005)
    assert noise.noise_sd.value == pytest.approx(math.sqrt(6.264), abs=0.001)
    assert noise.reliability.low is None, "one group says nothing of an interval"


def test_the_variances_are_those_of_an_independent_reference() -> None:
    groups = normal(30, noise=0.8, gradings=4, seed=3)
    x = np.array(groups)
    within = x.var(axis=2, ddof=1).mean()
    between = 4 * x.mean(axis=2).var(axis=1, ddof=1).mean()
    noise = judge_noise(groups)
    assert noise.noise_sd.value == pytest.approx(math.sqrt(within), rel=1e-9)
    assert noise.spread_sd.value == pytest.approx(math.sqrt((between - within) / 4), rel=1e-9)
    icc = (between - within) / (between + 3 * within)
    assert noise.reliability.value == pytest.approx(icc, rel=1e-9)
    ratio = math.sqrt(within / ((between - within) / 4))
    assert noise.noise_over_spread.value == pytest.approx(ratio, rel=1e-9)


def test_a_deterministic_grader_needs_one_call() -> None:
    noise = judge_noise([[[1.0] * 3, [0.0] * 3], [[0.1 + 0.2] * 3, [0.3] * 3]] * 3)
    assert noise.is_deterministic
    assert (noise.noise_sd.value, noise.reliability.value) == (0.0, 1.0)
    assert (noise.calls_needed.value, noise.calls_by_formula) == (1, 1)
    assert all(errors.from_repeats.value == 0 for errors in noise.sign_errors)


def test_noise_alone_is_helped_by_no_number_of_calls() -> None:
    noise = judge_noise([[[1.0, 0.0], [0.0, 1.0]]] * 6)
    assert noise.spread_sd.value == 0
    assert noise.noise_over_spread.value is None
    assert (noise.calls_needed.value, noise.calls_by_formula) == (None, None)


def test_what_cannot_be_compared_is_refused() -> None:
    for groups in ([], [[[1.0, 1.0]]], [[[1.0], [0.0]]], [[[1.0, 1.0], [0.0]]]):
        with pytest.raises(ValueError, match="two"):
            judge_noise(groups)


def test_the_formula_and_the_number_of_calls_belong_together() -> None:
    for ratio in (0.2, 1.0, 3.0):
        calls = calls_by_formula(ratio)
        assert calls is not None
        at_calls = sign_error_by_formula(ratio, num_calls=calls)
        assert at_calls is not None
        assert at_calls <= 0.05
        if calls > 1:
            before = sign_error_by_formula(ratio, num_calls=calls - 1)
            assert before is not None
            assert before > 0.05


def test_an_undefined_resample_leaves_the_upper_end_open() -> None:
    groups = [1.0, 1.0, 1.0, None, None, None]
    estimate = bootstrapped(
        groups,
        lambda drawn: next((1.0 for g in drawn if g), None) if None in drawn else 2.0,
        seed=0,
    )
    assert (estimate.value, estimate.low, estimate.high) == (1.0, 1.0, 1.0)
    never = bootstrapped(groups, lambda drawn: 1.0 if drawn is groups else None, seed=0)
    assert (never.value, never.low, never.high) == (1.0, None, None)


@pytest.mark.parametrize("scale", [2.0**500, 2.0**1000])
def test_very_large_rewards_have_the_noise_of_small_ones_in_proportion(scale: float) -> None:
    """Their squares are past the largest float; nothing else is."""
    groups = normal(6, noise=0.5, gradings=3)
    large = [[[scale * x for x in rewards] for rewards in group] for group in groups]
    small, found = judge_noise(groups), judge_noise(large)
    assert found.noise_sd.value == pytest.approx(scale * small.noise_sd.value)
    assert found.spread_sd.high == pytest.approx(scale * small.spread_sd.high)
    assert found.noise_over_spread.value == pytest.approx(small.noise_over_spread.value)
    assert found.reliability.value == pytest.approx(small.reliability.value)
    assert found.calls_needed.value == small.calls_needed.value


def test_noise_past_the_largest_float_is_unknown_and_no_traceback() -> None:
    most = 1.79e308
    groups = [[[most, -most], [-most, most]]] * 5
    noise = judge_noise(groups)
    assert noise.noise_sd.value is None
    assert noise.reliability.value == 0.0
