"""SURFACE GRADE: what graders get and what they may return."""

import json

import pytest

from arkdev import (
    ChatCompletionMessage,
    ChatCompletionSample,
    GroupGraderResult,
    PluginContext,
    PluginStatus,
    RewardFunctionResult,
    RolloutResult,
    SingleGraderResult,
    Trajectory,
    group_grader,
    rollout,
    single_grader,
)
from arkdev.plugin.exceptions import RolloutRetryException
from arkdev.runs.records import Verdict
from tests.running import LINE, answer, as_grader, running, tool_call, with_tokens


@rollout
async def asks(context, proxy, sample):
    request = sample.model_dump()
    client = proxy.async_rollout_client()
    await client.chat.completions.create(model="m", messages=request["messages"])
    return RolloutResult(extra={"place": sample.extra["place"]} if sample.extra else None)


async def graded(*graders, n=2, answers=("fine",), line=LINE, plugin=asks):
    """Return the group's record of one sample."""
    async with running(answers) as run:
        (group,) = await run.samples(plugin, *graders, n=n, lines=[line])
    return group


async def test_the_documented_dict_signature_is_accepted():
    @group_grader
    def reward_fn(context: dict, sample: dict, trajectories: list[dict]) -> RewardFunctionResult:
        assert json.dumps([context, sample, trajectories])
        assert (context["phase"], sample["messages"][0]["role"]) == ("test", "user")
        rewards = [float(t["messages"][-1]["content"] == "fine") for t in trajectories]
        return RewardFunctionResult(rewards=rewards, metrics={}, status="success", error="")

    group = await graded(reward_fn)
    assert (group.verdict, group.rewards, group.error) == (Verdict.SUCCESS, (1.0, 1.0), None)


async def test_without_dict_annotations_records_also_answer_like_dicts():
    @group_grader
    def reward_fn(context, sample, trajectories):
        return [
            float("extra" in sample and t["messages"][-1]["content"] == t.messages[-1].content)
            for t in trajectories
        ]

    assert (await graded(reward_fn)).rewards == (1.0, 1.0)


async def test_the_third_parameter_may_be_called_trajectory_or_completion():
    @single_grader
    def newer(context: PluginContext, sample: ChatCompletionSample, trajectory: Trajectory):
        return float(trajectory.messages[-1].content == "fine")

    @single_grader
    async def code(
        context: PluginContext, sample: ChatCompletionSample, completion: Trajectory
    ) -> SingleGraderResult:
        return SingleGraderResult(reward=float(completion.finish_reason == "stop"))

    @group_grader
    def older(context, sample, completions):
        return [1.0 for _ in completions]

    group = await graded(newer, code, older)
    assert [record.rewards for record in group.graders] == [(1.0, 1.0)] * 3
    assert await newer({}, LINE, trajectory={"messages": [{"role": "user", "content": "fine"}]})


RESULTS = {
    "RewardFunctionResult": RewardFunctionResult([1.0, 0.5], {"m": 1.0}, "success", ""),
    "GroupGraderResult": GroupGraderResult(
        rewards=[1.0, 0.5], metrics={"m": 1.0}, status=PluginStatus.SUCCESS, error=""
    ),
    "a dict": {"rewards": [1, 0.5], "metrics": {"m": 1}},
}


@pytest.mark.parametrize("form", RESULTS)
async def test_each_documented_result_type_is_accepted(form):
    @group_grader
    def grader(context, sample, trajectories):
        return RESULTS[form]

    group = await graded(grader)
    assert (group.rewards, group.graders[0].metrics) == ((1.0, 0.5), {"m": 1.0})
    assert (group.verdict, group.error) == (Verdict.SUCCESS, None)


@pytest.mark.parametrize(
    "value",
    [
        0.5,
        SingleGraderResult(reward=0.5),
        {"reward": 0.5},
        GroupGraderResult(rewards=[0.5]),
        RewardFunctionResult(rewards=[0.5]),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_a_single_grader_gives_one_number(value):
    @single_grader
    def grader(context, sample, trajectory):
        return value

    assert (await graded(grader)).rewards == (0.5, 0.5)


@pytest.mark.parametrize("value", [[0.5, 1], (0.5, 1.0)])
async def test_plain_numbers_are_rewards(value):
    @group_grader
    def grader(context, sample, trajectories):
        return value

    assert (await graded(grader)).rewards == (0.5, 1.0)


async def test_numpy_numbers_are_rewards_and_metrics():
    np = pytest.importorskip("numpy")
    group_result = GroupGraderResult(
        rewards=list(np.float32([1, 0.5])), metrics={"m": np.mean([1.0])}
    )
    values = {"scalar": np.float32(0.5), "array": np.array(0.5)}

    @group_grader
    def result(context, sample, trajectories):
        return group_result

    @group_grader
    def plain(context, sample, trajectories):
        return list(np.float32([1, 0.5]))

    @single_grader
    def scalar(context, sample, trajectory):
        return values["scalar"]

    @single_grader
    def array(context, sample, trajectory):
        return values["array"]

    group = await graded(result, plain, scalar, array)
    expected = [(1.0, 0.5), (1.0, 0.5), (0.5, 0.5), (0.5, 0.5)]
    assert [record.rewards for record in group.graders] == expected
    assert {type(reward) for record in group.graders for reward in record.rewards} == {float}
    assert group.graders[0].metrics == {"m": 1.0}


async def test_rewards_are_in_the_order_of_the_trajectories():
    def numbered(request):
        return answer(f"answer {len(run.requests)}")

    @group_grader
    def by_content(context, sample, trajectories):
        return [float(t.messages[-1].content.split()[-1]) for t in trajectories]

    @single_grader
    def one_by_one(context, sample, trajectory):
        return float(trajectory.messages[-1].content.split()[-1])

    async with running(numbered) as run:
        (group,) = await run.samples(asks, by_content, one_by_one, n=5)
    contents = {f.record.trajectory_id: f.record.messages[-1]["content"] for f in run.finished}
    expected = tuple(float(contents[name].split()[-1]) for name in group.trajectory_ids)
    assert group.trajectory_ids == ("0.0", "0.1", "0.2", "0.3", "0.4")
    assert [record.rewards for record in group.graders] == [expected, expected]


async def test_metrics_are_kept_by_name():
    @group_grader
    def grouped(context, sample, trajectories):
        return GroupGraderResult(rewards=[1.0, 1.0], metrics={"length": 3, "time": 0.5})

    @single_grader
    def single(context, sample, trajectory):
        return {"reward": 1.0, "metrics": {"first": float(trajectory.messages[-1].content == "a")}}

    group = await graded(grouped, single, answers=["a", "b"])
    assert group.graders[0].metrics == {"length": 3.0, "time": 0.5}
    assert group.graders[1].metrics == {"first": 0.5}
    assert sorted(call["first"] for call in group.graders[1].call_metrics) == [0.0, 1.0]


@pytest.mark.parametrize(
    ("status", "verdict", "calls"),
    [
        ("failure", Verdict.FAILURE, 4),
        (PluginStatus.RETRY, Verdict.RETRY, 4),
        ("discard", Verdict.DISCARD, 1),
    ],
)
async def test_a_grader_s_status_and_error_become_its_verdict(status, verdict, calls):
    attempts = []

    @group_grader
    def grader(context, sample, trajectories):
        attempts.append(len(trajectories))
        return {"rewards": [1.0, 1.0], "status": status, "error": "judge said no"}

    group = await graded(grader)
    record = group.graders[0]
    assert (record.verdict, record.error, record.attempts) == (verdict, "judge said no", calls)
    assert (group.verdict, group.rewards) == (verdict, (None, None))
    assert attempts == [2] * calls


async def test_a_retry_exception_that_leaves_a_grader_means_retry():
    calls = []

    @group_grader
    def grader(context, sample, trajectories):
        calls.append(1)
        if len(calls) < 3:
            raise RolloutRetryException("busy")
        return [1.0, 0.0]

    group = await graded(grader)
    assert (group.rewards, group.graders[0].attempts) == ((1.0, 0.0), 3)


async def test_a_status_word_set_after_the_result_was_made_counts():
    @group_grader
    def grader(context, sample, trajectories):
        result = GroupGraderResult()
        result.rewards.extend([1.0, 0.0])
        result.status = "discard"
        return result

    assert (await graded(grader)).verdict is Verdict.DISCARD


async def test_a_grader_without_annotations_is_accepted():
    @group_grader(name="llm_group_grader")
    async def llm_grader(context, sample, trajectories):
        async def single_grader(trajectory):
            return 1.0

        return GroupGraderResult(rewards=[await single_grader(t) for t in trajectories])

    group = await graded(llm_grader)
    assert (group.rewards, group.graders[0].name) == ((1.0, 1.0), "llm_group_grader")


@pytest.mark.parametrize("status", [PluginStatus.DISCARD, PluginStatus.FAILURE])
async def test_no_rewards_are_needed_with_discard_or_failure(status):
    @group_grader
    def full(context, sample, trajectories):
        return GroupGraderResult(rewards=[], status=status, error="")

    @group_grader
    def short(context, sample, trajectories):
        return {"status": status}

    @single_grader
    def single(context, sample, trajectory):
        return SingleGraderResult(status=status)

    for grader in (full, short, single):
        group = await graded(grader)
        assert (group.verdict, group.rewards) == (Verdict(status.value), (None, None))
        assert "PluginResultError" not in (group.error or "")


def test_a_trajectory_has_the_documented_fields():
    trajectory = Trajectory(
        **{
            "messages": [
                {"role": "user", "content": "1+1?"},
                {"role": "assistant", "content": None, "tool_calls": [tool_call("add")]},
                {"role": "assistant", "content": "2", "reasoning_content": "easy"},
            ],
            "usage": {},
            "finish_reason": "stop",
            "extra": {"reward": -1},
        }
    )
    assert trajectory.messages[1].tool_calls[0].function.name == "add"
    assert (trajectory.messages[2].content, trajectory.messages[2].reasoning_content) == (
        "2",
        "easy",
    )
    assert (trajectory.usage.prompt_tokens, trajectory.extra["reward"]) == (None, -1)
    assert trajectory.total_loss_weight is None
    assert trajectory.total_token_ids is None
    assert trajectory.total_token_logprobs is None
    odd = Trajectory(messages=[], usage={"completion_tokens": 3, "prompt_tokens:": 20})
    assert (odd.usage.completion_tokens, odd.finish_reason, odd.extra) == (3, None, None)


async def test_token_evidence_reaches_the_grader():
    seen = []

    @single_grader
    def reads_tokens(context, sample, trajectory):
        seen.append(trajectory.model_dump())
        return 1.0

    await graded(reads_tokens, n=1, answers=[with_tokens([1, 2], [3], [-0.5])])
    await graded(reads_tokens, n=1)
    lists = ["total_token_ids", "total_loss_weight", "total_token_logprobs"]
    assert [seen[0][name] for name in lists] == [[1, 2, 3], [0.0, 0.0, 1.0], [0.0, 0.0, -0.5]]
    assert [seen[1][name] for name in lists] == [None, None, None]
    assert seen[0]["usage"] == {"prompt_tokens": 2, "completion_tokens": 1, "total_tokens": 3}


@pytest.mark.parametrize("n", [1, 3])
async def test_a_grader_sees_one_trajectory_for_each_rollout_prompt_included(n):
    counts, calls = [], []

    @group_grader
    def counts_messages(context, sample, trajectories):
        counts.extend(len(t.messages) - len(sample.messages) for t in trajectories)
        return [1.0] * len(trajectories)

    @single_grader
    def counts_calls(context, sample, trajectory):
        calls.append([message.role for message in trajectory.messages])
        return 1.0

    await graded(counts_messages, counts_calls, n=n)
    assert counts == [1] * n
    assert calls == [["user", "assistant"]] * n


async def test_a_change_by_one_grader_is_not_seen_by_another():
    @group_grader
    def spoils(context, sample, trajectories):
        trajectories[0].messages.clear()
        trajectories[0].extra["place"]["name"] = "spoilt"
        sample.extra.clear()
        return [1.0]

    @group_grader
    def looks(context, sample, trajectories):
        place = trajectories[0].extra["place"]
        return [float(place == sample.extra["place"] and len(trajectories[0].messages) == 2)]

    line = {**LINE, "extra": {"place": {"name": "北京"}}}
    group = await graded(spoils, looks, n=1, line=line)
    assert [record.rewards for record in group.graders] == [(1.0,), (1.0,)]


async def test_the_sample_of_a_grader_is_the_dataset_line():
    line = {
        "messages": [
            {"role": "system", "content": "你是助手"},
            {"role": "user", "content": [{"type": "text", "text": "1+1=？"}]},
        ],
        "tools": [],
        "extra": {"answer": 1234, "prompt_id": "p7", "place": None},
        "source": "book",
    }
    seen = []

    @rollout
    async def spoils(context, proxy, sample):
        sample.messages.clear()
        sample.extra["answer"] = 0

    @group_grader
    def keeps(context, sample: ChatCompletionSample, trajectories):
        seen.append(sample.model_dump(exclude_unset=True))
        return [float(sample.extra["answer"] == 1234 and sample.extra["prompt_id"] == "p7")]

    group = await graded(keeps, n=1, line=line, plugin=spoils)
    assert (seen, group.rewards) == ([line], (1.0,))


async def test_the_messages_of_a_proxy_make_a_trajectory():
    @single_grader
    def last_word(context, sample, trajectory: Trajectory):
        return float(trajectory.messages[-1].content == "22 degrees")

    async with running([answer(None, tool_calls=[tool_call()]), "22 degrees"]) as run:
        proxy = run.proxy()
        client = proxy.async_rollout_client()
        for _ in range(2):
            await client.chat.completions.create(model="m", messages=LINE["messages"])
    trajectory = Trajectory(
        messages=proxy.messages, usage=proxy.usage, finish_reason=proxy.finish_reason, extra={}
    )
    assert isinstance(trajectory.messages[0], ChatCompletionMessage)
    assert await last_word({}, ChatCompletionSample(**LINE), trajectory) == 1.0
    assert (trajectory.usage.total_tokens, trajectory.finish_reason) == (14, "stop")


async def test_the_final_reward_is_the_weighted_sum():
    @single_grader
    def one(context, sample, trajectory):
        return 1.0

    @single_grader
    def two(context, sample, trajectory):
        return 2.0

    group = await graded(as_grader(one, weight=0.5), as_grader(two, weight=2.0), n=1)
    assert group.rewards == (4.5,)
    assert [(record.name, record.weight) for record in group.graders] == [("one", 0.5), ("two", 2)]


async def test_a_metric_that_is_not_finite_is_left_out_and_counted():
    @group_grader
    def grouped(context, sample, trajectories):
        metrics = {"ratio": float("nan"), "size": float("inf"), "good": 2.0}
        return {"rewards": [1.0, 0.0], "metrics": metrics}

    @single_grader
    def single(context, sample, trajectory):
        return {"reward": 1.0, "metrics": {"huge": 1.7e308, "ratio": float("-inf")}}

    group = await graded(grouped, single)
    assert group.rewards == (2.0, 1.0)
    assert [grader.metrics for grader in group.graders] == [{"good": 2.0}, {"huge": 1.7e308}]
    # graders run side by side, in either order
    assert sorted(group.warnings) == sorted(
        (
            "metric_not_finite: grouped.ratio",
            "metric_not_finite: grouped.size",
            "metric_not_finite: single.ratio",
        )
    )


async def test_a_weighted_reward_that_overflows_is_ungraded():
    @group_grader
    def huge(context, sample, trajectories):
        return [1.7e308, 1.0]

    group = await graded(as_grader(huge, weight=10.0))
    assert group.rewards == (None, 10.0)


async def test_a_grader_that_raises_leaves_its_traceback():
    @group_grader
    def raises(context, sample, trajectories):
        raise KeyError("no such city")

    (grader,) = (await graded(raises)).graders
    assert grader.error == "KeyError: 'no such city'"
    assert 'raise KeyError("no such city")' in grader.traceback
