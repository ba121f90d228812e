"""What a plugin returned, read by the contract: whatever is not allowed is an error, never 0."""

import threading
from enum import StrEnum
from typing import Any

import pytest
from pydantic import BaseModel

from arkdev import (
    ChatCompletionSample,
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
from arkdev.plugin.results import (
    read_grader_result,
    read_group_rollout_result,
    read_rollout_result,
)


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
    with pytest.raises(PluginResultError, match=r"rewards\[1\]=None"):
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


def test_a_result_without_rewards_says_what_it_has():
    with pytest.raises(PluginResultError, match="a result without rewards"):
        read_group({})


def test_the_result_of_the_other_kind_of_grader_is_an_error():
    with pytest.raises(PluginResultError, match="unknown key 'reward'") as refused:
        read_group({"reward": 1.0})
    assert refused.value.hint == "did you mean 'rewards'?"
    with pytest.raises(PluginResultError, match="so there is no reward"):
        read_group(SingleGraderResult(reward=1.0))


@pytest.mark.parametrize("value", ["0.5", True, 1j, None, b"1", 10**400])
def test_what_is_no_real_number_is_no_reward(value):
    for form in ([1.0, value], {"rewards": [1.0, value]}):
        with pytest.raises(PluginResultError, match=r"grouped returned rewards\[1\]="):
            read_group(form)
    with pytest.raises(PluginResultError, match="single returned"):
        read_single({"reward": value})


def test_numpy_text_truth_values_and_complex_numbers_are_no_rewards():
    np = pytest.importorskip("numpy")
    for value in (np.str_("0.5"), np.bool_(True), np.complex64(1), np.complex128(1)):
        with pytest.raises(PluginResultError, match=r"rewards\[1\]="):
            read_group([1.0, value])
        with pytest.raises(PluginResultError, match="single returned"):
            read_single(value)
    assert read_group(np.array([0.5, 1.0])).rewards == [0.5, 1.0]


@pytest.mark.parametrize("value", [{"reward": 1.0, "rewards": [0.5]}, {"reward": 0, "rewards": []}])
def test_reward_and_rewards_together_are_an_error(value):
    with pytest.raises(PluginResultError, match="both reward and rewards"):
        read_single(value)


MISTAKEN = {
    "statuss": ({"statuss": "failure"}, "did you mean 'status'?"),
    "extras": ({"status": "success", "extras": {}}, "did you mean 'extra'?"),
    "another key": ({"status": "success", "answer": 1}, "its keys are status, error, extra"),
    "a misspelt field": (RolloutResult(statuss="failure"), "did you mean 'status'?"),
    "an error alone": (RolloutResult(error="boom"), "add status="),
    "extra and error": ({"extra": {}, "error": "boom"}, "add status="),
    "an error dict": ({"error": "boom"}, "a rollout returns RolloutResult"),
    "an empty dict": ({}, "a rollout returns RolloutResult"),
    "a grader's result": (SingleGraderResult(reward=1), "a rollout returns RolloutResult"),
    "a sample": (ChatCompletionSample(messages=[]), "a rollout returns RolloutResult"),
}


@pytest.mark.parametrize("case", MISTAKEN)
def test_a_misspelt_or_foreign_rollout_result_is_never_a_success(case):
    value, hint = MISTAKEN[case]
    with pytest.raises(PluginResultError, match="one returned") as refused:
        read_rollout_result(value, plugin=plugin_of(one))
    assert hint in refused.value.hint
    if isinstance(value, dict) and "status" in value:
        with pytest.raises(PluginResultError):
            read_group_rollout_result(value, plugin=plugin_of(one), n_sample=0)


def test_a_models_answer_is_no_rollout_result():
    from openai.types.chat import ChatCompletion

    answer = ChatCompletion(id="1", choices=[], created=0, model="m", object="chat.completion")
    with pytest.raises(PluginResultError, match="one returned ChatCompletion"):
        read_rollout_result(answer, plugin=plugin_of(one))


def test_a_misspelt_key_of_a_group_is_an_error():
    for value in (
        {"responses": [], "statuss": "failure"},
        {"responses": [{"id": "r1", "extras": {}}]},
    ):
        with pytest.raises(PluginResultError, match="unknown key"):
            read_group_rollout_result(value, plugin=plugin_of(one), n_sample=1)
    with pytest.raises(PluginResultError, match="unknown key 'statuss'"):
        read_group({"rewards": [1, 0], "statuss": "failure"})


@pytest.mark.parametrize("metric", ["0.5", None, [1.0], 1j])
def test_a_metric_that_is_no_number_is_refused_by_its_key(metric):
    with pytest.raises(PluginResultError, match=r"metrics\.size="):
        read_group({"rewards": [1, 0], "metrics": {"size": metric}})


def test_a_hint_on_a_single_grader_s_result_names_its_own_fields():
    with pytest.raises(PluginResultError) as refused:
        read_single({"reward": 1.0, "metrics": [1, 2]})
    assert refused.value.hint.startswith("SingleGraderResult has reward, ")


def test_what_was_returned_is_frozen_at_that_moment():
    shared = {"count": 1, "inner": [1], "lock": threading.Lock()}
    result = read_rollout_result(
        RolloutResult(extra=shared, config={"list": shared["inner"]}), plugin=plugin_of(one)
    )
    lock = shared["lock"]
    response = {"id": "r1", "extra": shared}
    (branch,) = read_group_rollout_result(
        {"responses": [response]}, plugin=plugin_of(one), n_sample=1
    ).responses
    shared["count"] = 2
    shared["inner"].append(2)
    expected = {"count": 1, "inner": [1], "lock": lock}
    assert (result.extra, result.config, branch.extra) == (expected, {"list": [1]}, expected)


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
    "too large for 32 bits": ({"seq_advantages": [1e39, 0.0]}, r"seq_advantages\[0\]=1e\+39"),
    "text": ({"seq_advantages": [1.0, "1"]}, r"seq_advantages\[1\]='1'"),
    "a truth value": ({"tok_advantages": [[1, 2], [1, True, 2]]}, r"\[1\]\[1\]=True"),
    "missing for one": ({"seq_advantages": [1.0, None]}, r"seq_advantages\[1\]=None"),
    "no row for one": ({"tok_advantages": [[1, 2], None]}, r"tok_advantages.1=None"),
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
    assert "write float(...)" in refused.value.hint


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
    marker = threading.Lock()
    result = RolloutResult(extra={"object": marker}, note="kept")
    read = read_rollout_result(result, plugin=plugin_of(one))
    assert (read.extra["object"], read["note"]) == (marker, "kept")
