"""Tests of the grader; no model is needed. Run `pytest` in the workspace's root."""

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
