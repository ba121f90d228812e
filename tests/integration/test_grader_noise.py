"""`arkdev test grader --repeat`: a recorded run graded several times; known noise is measured."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import numpy as np
import pytest

from arkdev.harness.judge_noise import judge_noise
from tests.integration.workspace import Command, Workspace

NOISY = """
    import random
    from arkdev import group_grader, single_grader

    @single_grader
    def exact(context, sample, trajectory):
        return float(trajectory.extra["n"])

    @single_grader
    def noisy(context, sample, trajectory):
        return float(trajectory.extra["n"]) + random.gauss(0, 1)

    @group_grader
    def opposed(context, sample, trajectories):
        return {"rewards": [-t.extra["n"] for t in trajectories], "metrics": {}}

    @single_grader
    def huge(context, sample, trajectory):
        return 1e200 * (trajectory.extra["n"] + random.random())

    @single_grader
    def failing(context, sample, trajectory):
        raise RuntimeError("the judge is away")
"""
ROLLOUT = """
    from itertools import count
    from arkdev import RolloutResult, rollout

    NUMBERS = count()

    @rollout
    def answer(context, proxy, sample):
        client = proxy.rollout_client()
        messages = sample.model_dump()["messages"]
        client.chat.completions.create(model="m", messages=messages)
        return RolloutResult(extra={"n": next(NUMBERS) % 4})
"""


@pytest.fixture(autouse=True)
def recorded(workspace: Workspace, arkdev: Command) -> None:
    """Six groups of four, with the true rewards 0, 1, 2 and 3 (a spread of 1.29)."""
    workspace.write("plugins/rollout.py", ROLLOUT)
    workspace.write("plugins/noisy.py", NOISY)
    workspace.samples(*"abcdef")
    told = arkdev("test", "plugin", "--n-sample", "4", "--concurrency", "1")
    assert told.exit_code == 0, told.err


def document(arkdev: Command, *arguments: str) -> dict[str, Any]:
    told = arkdev("test", "grader", "--json", *arguments)
    assert told.exit_code == 0, told.err
    return told.document


def test_a_deterministic_grader_is_told_as_such(arkdev: Command) -> None:
    told = arkdev("test", "grader", "--repeat", "3", "plugins.noisy:exact")
    assert told.exit_code == 0, told.err
    assert "exact: the same reward in all 3 gradings: deterministic" in " ".join(told.out.split())
    (grader,) = document(arkdev, "--repeat", "3", "plugins.noisy:exact")["graders"]
    assert grader["noise"]["noise_sd"]["value"] == 0
    assert grader["noise"]["spread_sd"]["value"] == pytest.approx(1.291, abs=0.001)


def test_the_noise_of_a_grader_is_measured(arkdev: Command) -> None:
    found = document(arkdev, "--repeat", "20", "plugins.noisy:noisy")
    (grader,) = found["graders"]
    noise = grader["noise"]
    assert (noise["num_groups"], noise["num_trajectories"], noise["num_gradings"]) == (6, 24, 20)
    assert noise["noise_sd"]["value"] == pytest.approx(1, abs=0.12)
    assert noise["spread_sd"]["value"] == pytest.approx(1.29, abs=0.3)
    assert noise["reliability"]["low"] < noise["reliability"]["value"]
    # true deviations 0.5 and 1.5, noise sd 0.87 after the group's mean: (0.282 + 0.042) / 2
    assert noise["sign_errors"][0]["from_repeats"]["value"] == pytest.approx(0.162, abs=0.06)
    assert noise["calls_needed"]["value"] > 3


def test_several_graders_are_compared_and_their_sum_is_measured(arkdev: Command) -> None:
    found = document(
        arkdev, "--repeat", "4", "plugins.noisy:exact=2", "plugins.noisy:noisy", "--seed", "3"
    )
    assert [grader["name"] for grader in found["graders"]] == ["exact", "noisy", "weighted"]
    assert 0.4 < found["agreement"]["rewards"]["value"] <= 1
    opposed = document(arkdev, "--repeat", "2", "plugins.noisy:exact", "plugins.noisy:opposed")
    assert opposed["agreement"]["advantages"]["value"] < -0.9
    assert document(arkdev, "--repeat", "2", "plugins.noisy:exact")["agreement"] is None


def test_rewards_whose_squares_are_no_floats_are_measured(arkdev: Command) -> None:
    found = document(arkdev, "--repeat", "4", "plugins.noisy:huge", "plugins.noisy:exact")
    noise = found["graders"][0]["noise"]
    assert 1e199 < noise["noise_sd"]["value"] < 1e200 < noise["spread_sd"]["value"]
    assert found["agreement"]["advantages"]["value"] > 0.8


def test_a_grader_that_fails_ends_with_1_and_says_why(arkdev: Command) -> None:
    told = arkdev("test", "grader", "--repeat", "2", "plugins.noisy:failing")
    assert told.exit_code == 1
    assert "the judge is away" in told.out
    assert "nothing could be compared" in told.out


def test_the_report_says_how_many_calls_are_needed(arkdev: Command) -> None:
    told = arkdev("test", "grader", "--repeat", "6", "plugins.noisy:noisy")
    said = " ".join(told.out.split())
    assert "ICC(1,1)" in said
    assert "brings sign errors of advantages under 5%" in said


def test_what_cannot_be_repeated_is_refused(workspace: Workspace, arkdev: Command) -> None:
    for arguments, words in (
        (["--repeat", "3", "--floor", "1"], "--floor without --attack"),
        (["--repeat", "3", "--attack"], "two tests"),
        (["--repeat", "3", "--data", "data.jsonl"], "--data without --attack"),
        ([], "nothing to do"),
        (["--repeat", "3", "--run", "none"], "none"),
    ):
        told = arkdev("test", "grader", *arguments)
        assert (told.exit_code, told.out) == (2, ""), arguments
        assert words in told.err
    arkdev("test", "plugin")
    told = arkdev("test", "grader", "--repeat", "2")
    assert told.exit_code == 2
    assert "no group of two successful rollouts" in told.err


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


@pytest.mark.parametrize("noise", [0.3, 1.0])
def test_known_noise_is_found_and_so_are_the_sign_errors_that_it_makes(noise: float) -> None:
    groups = normal(80, noise=noise, seed=5)
    measured = judge_noise(groups)
    assert measured.noise_sd.value == pytest.approx(noise, rel=0.05)
    assert measured.spread_sd.value == pytest.approx(1, rel=0.1)
    random = np.random.default_rng(1)
    for errors in measured.sign_errors:
        true = random.normal(size=(20_000, 8))
        graded = true + random.normal(size=true.shape) * noise / math.sqrt(errors.num_calls)
        true -= true.mean(axis=1, keepdims=True)
        graded -= graded.mean(axis=1, keepdims=True)
        share = float((true * graded < 0).mean())
        assert errors.by_formula == pytest.approx(share, abs=0.012)
        assert errors.from_repeats.value == pytest.approx(share, abs=0.025)
    assert measured.observed_sign_errors == pytest.approx(measured.expected_sign_errors, abs=0.03)


def test_a_judge_that_says_yes_or_no_needs_fewer_calls_than_normal_noise_would() -> None:
    """True for 9 of 10 gradings: three calls have 5.3 % wrong signs, the formula asks for 23."""
    random = Random(2)
    groups = []
    for _ in range(60):
        true = [random.choice((0.1, 0.9)) for _ in range(8)]
        groups.append([[float(random.random() < p) for _ in range(8)] for p in true])
    noise = judge_noise(groups)
    assert noise.calls_by_formula is not None
    assert noise.calls_needed.value is not None
    assert 3 <= noise.calls_needed.value <= 8 < noise.calls_by_formula
    assert noise.sign_errors[0].from_repeats.value == pytest.approx(0.10, abs=0.02)


def test_the_same_seed_gives_the_same_numbers() -> None:
    groups = normal(10, noise=1, size=4)
    assert judge_noise(groups, seed=4) == judge_noise(groups, seed=4)
    assert judge_noise(groups, seed=4) != judge_noise(groups, seed=5)
