"""Tests of the grader alone, and of a whole run with the scripted model.

Run `pytest` in the workspace's root. The fixture `arkdev_run` comes with arkdev.
"""

import asyncio

import pytest

from arkdev import ChatCompletionSample, PluginStatus, Trajectory
from plugins.exact_answer import exact_answer, last_number

QUESTION = {"role": "user", "content": "12 + 7 = ?"}


def grade(reply, extra):
    sample = ChatCompletionSample(messages=[QUESTION], extra=extra)
    messages = [QUESTION, {"role": "assistant", "content": reply}]
    return asyncio.run(exact_answer({}, sample, Trajectory(messages=messages)))


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("19", 19),
        ("12 + 7 = 19.", 19),
        ("The answer is -3", -3),
        ("3-5", 5),
        ("no idea", None),
    ],
)
def test_the_last_number_is_read(text, number):
    assert last_number(text) == number


@pytest.mark.parametrize(("reply", "reward"), [("19", 1.0), ("20", 0.0), ("", 0.0), (None, 0.0)])
def test_only_the_right_number_is_rewarded(reply, reward):
    assert grade(reply, {"answer": "19"}).reward == reward


def test_sample_without_an_answer_is_discarded():
    result = grade("19", {})
    assert result.status == PluginStatus.DISCARD
    assert result.reward is None


def test_a_model_that_is_always_right_gets_every_reward(arkdev_run):
    outcome = arkdev_run(limit=16, skill=1.0)
    outcome.assert_nothing_failed()
    outcome.assert_success_rate(at_least=1.0)


def test_a_model_that_errs_is_rewarded_less(arkdev_run):
    outcome = arkdev_run(limit=32, num_generations=4, skill=0.5)
    assert 0 < outcome.summary.reward.mean < 1
    outcome.assert_reward_mean(at_least=0.3)
