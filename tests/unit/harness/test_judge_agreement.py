"""Krippendorff's alpha: his own example, and a reference by coincidences."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from arkdev.harness.judge_agreement import krippendorff_alpha

CODERS = (
    "1 2 3 3 2 1 4 1 2 . . .",
    "1 2 3 3 2 2 4 1 2 5 . 3",
    ". 3 3 3 2 3 4 2 2 5 1 .",
    "1 2 3 3 2 4 4 1 2 5 1 .",
)
"""Four observers, twelve units (Krippendorff 2011, example C): alpha is .849 for interval data."""


def test_the_published_example() -> None:
    rows = [[None if v == "." else float(v) for v in coder.split()] for coder in CODERS]
    assert krippendorff_alpha(list(zip(*rows, strict=True))) == pytest.approx(0.849, abs=0.0005)


def test_it_equals_a_reference_by_coincidences() -> None:
    random = Random(0)
    units = [
        [random.choice([None, random.gauss(t, 1), float(t)]) for _ in range(4)] for t in range(20)
    ]
    paired = [u for u in ([v for v in unit if v is not None] for unit in units) if len(u) > 1]
    flat = np.array([v for unit in paired for v in unit])
    size = len(flat)
    expected = ((flat[:, None] - flat[None, :]) ** 2).sum() / (size * (size - 1))
    observed = (
        sum(
            ((np.array(u)[:, None] - np.array(u)[None, :]) ** 2).sum() / (len(u) - 1)
            for u in paired
        )
        / size
    )
    assert krippendorff_alpha(units) == pytest.approx(1 - observed / expected, rel=1e-12)


def test_where_nothing_differs_or_nothing_is_paired_there_is_none() -> None:
    assert krippendorff_alpha([(1.0, 1.0), (1.0, 1.0)]) is None
    assert krippendorff_alpha([(1.0, None), (None, 2.0)]) is None
    assert krippendorff_alpha([]) is None


def test_opposed_graders_are_below_zero() -> None:
    alpha = krippendorff_alpha([(0.0, 1.0), (1.0, 0.0)])
    assert alpha is not None
    assert alpha < 0


def test_very_large_rewards_agree_as_small_ones_do():
    units = [(1.0, 2.0), (3.0, 3.0), (5.0, 4.0), (-2.0, 0.0)]
    large = [tuple(2.0**1020 * value for value in unit) for unit in units]
    assert krippendorff_alpha(large) == pytest.approx(krippendorff_alpha(units))
