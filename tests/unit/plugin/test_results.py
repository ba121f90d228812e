"""What a plugin returned, read by the contract: whatever is not allowed is an error, never 0."""

from enum import StrEnum
from typing import Any

import pytest
from pydantic import BaseModel

from arkdev import (
    GroupGraderResult,
    PluginStatus,
    RewardFunctionResult,
    RolloutResult,
    SingleGraderResult,
    group_grader,
    rollout,
    single_grader,
)
from arkdev.errors import PluginResultError
from arkdev.plugin.decorators import plugin_of
from arkdev.plugin.results import read_grader_result, read_rollout_result


@group_grader
def grouped(context, sample, trajectories): ...


@single_grader
def single(context, sample, trajectory): ...


@rollout
def one(context, proxy, sample): ...


def read_group(value, *, num_trajectories=2, num_tokens=None):
    return read_grader_result(
        value,
        plugin=plugin_of(grouped),
        num_trajectories=num_trajectories,
        num_tokens=num_tokens,
    )


def read_single(value):
    return read_grader_result(value, plugin=plugin_of(single), num_trajectories=1)


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("bad", [NAN, INF, -INF, None, "high", [1.0]])
@pytest.mark.parametrize("form", [list, lambda rewards: {"rewards": rewards}])
def test_a_reward_that_is_no_finite_number_is_named_by_its_position(form, bad):
    with pytest.raises(PluginResultError, match=r"grouped returned rewards\W?1") as refused:
        read_group(form([0.5, bad]))
    assert refused.value.where.startswith(__file__)


def test_a_reward_in_a_finished_result_is_checked_too():
    result = GroupGraderResult(rewards=[1.0, 2.0])
    result.rewards[1] = None
    with pytest.raises(PluginResultError, match=r"rewards\.1=None"):
        read_group(result)


@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize(
    "form", [list, lambda rewards: GroupGraderResult(rewards=rewards), RewardFunctionResult]
)
def test_another_number_of_rewards_is_an_error_with_both_numbers(form, count):
    with pytest.raises(PluginResultError, match=f"{count} rewards for 2 trajectories"):
        read_group(form([1.0] * count))


@pytest.mark.parametrize("value", [NAN, None, "0.5x", {"reward": NAN}, SingleGraderResult()])
def test_a_single_grader_without_a_finite_number_is_an_error(value):
    with pytest.raises(PluginResultError, match="single returned"):
        read_single(value)


@pytest.mark.parametrize("value", [None, 1.0, "success", object()])
def test_a_group_grader_that_returns_something_else_is_an_error(value):
    with pytest.raises(PluginResultError, match="so there is no reward") as refused:
        read_group(value)
    assert "GroupGraderResult or a list" in refused.value.hint


@pytest.mark.parametrize("value", [{}, {"reward": 1.0}, SingleGraderResult(reward=1.0)])
def test_a_result_without_rewards_says_what_it_has(value):
    with pytest.raises(PluginResultError, match="a result without rewards"):
        read_group(value)


ADVANTAGES = {
    "seq_advantages too short": ({"seq_advantages": [1.0]}, "1 seq_advantages for 2"),
    "tok_advantages too short": ({"tok_advantages": [[1.0, 2.0]]}, "1 tok_advantages for 2"),
    "a row too short": (
        {"tok_advantages": [[1.0, 2.0], [1.0]]},
        "1 tok_advantages for trajectory 1, which has 3 tokens",
    ),
    "both": ({"seq_advantages": [1.0, 1.0], "tok_advantages": [[], []]}, "both"),
    "not finite": ({"seq_advantages": [1.0, NAN]}, r"seq_advantages\[1\]=nan"),
    "a token not finite": ({"tok_advantages": [[1, 2], [1, INF, 2]]}, r"\[1\]\[1\]=inf"),
}


@pytest.mark.parametrize("case", ADVANTAGES)
def test_advantages_are_checked(case):
    fields, problem = ADVANTAGES[case]
    with pytest.raises(PluginResultError, match=problem):
        read_group({"rewards": [1.0, 0.0], **fields}, num_tokens=[2, 3])


def test_advantages_that_fit_are_kept():
    rows = [[1.0, 2.0], [1.0, 2.0, 3.0]]
    result = read_group({"rewards": [1, 0], "tok_advantages": rows}, num_tokens=[2, 3])
    assert result.tok_advantages == rows
    assert read_group({"rewards": [1, 0], "seq_advantages": [1, 2]}).seq_advantages == [1.0, 2.0]


def test_a_problem_with_a_field_names_the_field_and_the_fields_there_are():
    with pytest.raises(
        PluginResultError, match=r"grouped returned metrics\.length='long'"
    ) as refused:
        read_group({"rewards": [1, 0], "metrics": {"length": "long"}})
    assert "rewards, metrics, status, error" in refused.value.hint


class ForeignStatus(StrEnum):
    SUCCESS = "success"
    DISCARD = "discard"


class ForeignRolloutResult(BaseModel):
    status: ForeignStatus = ForeignStatus.SUCCESS
    error: str = ""
    extra: dict[str, Any] | None = None


class ForeignGraderResult(BaseModel):
    rewards: list[float]
    status: ForeignStatus = ForeignStatus.SUCCESS


def test_results_of_the_real_sdk_are_read():
    value = ForeignRolloutResult(status=ForeignStatus.DISCARD, extra={"reward": -1})
    result = read_rollout_result(value, plugin=plugin_of(one))
    assert (result.status, result.extra) == (PluginStatus.DISCARD, {"reward": -1})
    assert read_group(ForeignGraderResult(rewards=[1, 0])).rewards == [1.0, 0.0]


def test_a_rollout_result_keeps_what_it_holds():
    marker = object()
    result = RolloutResult(extra={"object": marker}, note="kept")
    read = read_rollout_result(result, plugin=plugin_of(one))
    assert (read.extra["object"], read["note"]) == (marker, "kept")
