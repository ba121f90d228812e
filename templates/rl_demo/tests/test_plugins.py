"""插件的测试，不需要真实的模型：在工作区的根目录运行 pytest。

夹具 arkdev_proxy、arkdev_run 由 arkdev 提供，ark_sdk 的名字也是。
"""

import asyncio
from types import SimpleNamespace

import pytest
from ark_sdk.types.pipeline_plugin.pipeline_plugin import PluginStatus
from ark_sdk.types.pipeline_plugin.rollout import ChatCompletionSample, Trajectory

from plugins.random_reward import contains_answer, random_reward_fn
from plugins.weather_rollout import demo_rollout
from plugins.weather_tool import ToolCallError, get_current_weather, run_tool_calls

QUESTION = {"role": "user", "content": "北京现在多少摄氏度？"}
CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "get_current_weather", "arguments": '{"location": "北京"}'},
}
TOOL_TURNS = [
    QUESTION,
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "content": "晴，26摄氏度", "tool_call_id": "call_1"},
]


def tool_call(arguments, name="get_current_weather"):
    return SimpleNamespace(id="call_1", function=SimpleNamespace(name=name, arguments=arguments))


def trajectory(*messages, extra=None):
    return Trajectory(messages=list(messages), usage={}, finish_reason="stop", extra=extra)


def answered(text):
    return trajectory(*TOOL_TURNS, {"role": "assistant", "content": text})


def grade(*trajectories, extra=None):
    extra = {"answer": "26摄氏度"} if extra is None else extra
    sample = ChatCompletionSample(messages=[QUESTION], extra=extra)
    return asyncio.run(random_reward_fn({}, sample, list(trajectories)))


def test_tool_reports_the_table_in_both_units():
    assert get_current_weather("北京") == "晴，26摄氏度"
    assert get_current_weather("北京", unit="华氏度") == "晴，79华氏度"


@pytest.mark.parametrize(("location", "unit"), [("亚特兰蒂斯", "摄氏度"), ("北京", "开尔文")])
def test_tool_refuses_an_unknown_city_or_unit(location, unit):
    with pytest.raises(ValueError, match="未知"):
        get_current_weather(location, unit)


def test_tool_result_answers_its_call():
    assert run_tool_calls([tool_call('{"location": "拉萨"}')]) == [
        {"role": "tool", "content": "晴，4摄氏度", "tool_call_id": "call_1"}
    ]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ('{"location": "北', "invalid_json"),
        ("", "invalid_json"),
        (None, "invalid_json"),
        ('"{\\"location\\": \\"北京\\"}"', "double_encoded"),
        ('["北京"]', "not_an_object"),
        ('{"city": "北京"}', "bad_arguments"),
        ('{"location": "亚特兰蒂斯"}', "bad_arguments"),
    ],
)
def test_bad_arguments_are_named(arguments, reason):
    with pytest.raises(ToolCallError, match="call_1") as caught:
        run_tool_calls([tool_call(arguments)])
    assert caught.value.reason == reason


def test_unknown_tool_is_named():
    with pytest.raises(ToolCallError, match="get_time") as caught:
        run_tool_calls([tool_call("{}", name="get_time")])
    assert caught.value.reason == "unknown_tool"


@pytest.mark.parametrize(
    "text",
    ["北京现在 26 摄氏度。", "气温是２６℃", "26°C", "- 26摄氏度", "26摄氏度（79华氏度）"],
)
def test_spelling_of_the_answer_does_not_matter(text):
    assert contains_answer(text, "26摄氏度")


@pytest.mark.parametrize(
    "text",
    ["", "26", "126摄氏度", "-26摄氏度", "零下26摄氏度", "26华氏度", "25摄氏度或26摄氏度"],
)
def test_wrong_or_listed_readings_do_not_count(text):
    assert not contains_answer(text, "26摄氏度")


def test_rewards_keep_the_order_of_the_trajectories():
    unfinished = trajectory(*TOOL_TURNS[:2])
    penalised = trajectory(*TOOL_TURNS[:2], extra={"reward": -1})
    result = grade(answered("26摄氏度"), answered("27摄氏度"), unfinished, penalised)
    assert result.rewards == [1.0, 0.0, 0.0, -1]
    assert result.metrics == {"accuracy": 0.25, "tool_use_rate": 0.5, "penalty_rate": 0.25}


def test_empty_and_multipart_answers_are_read():
    parts = [{"type": "text", "text": "26"}, {"type": "text", "text": "摄氏度"}]
    assert grade(answered(None), answered(parts)).rewards == [0.0, 1.0]


def test_sample_without_an_answer_is_discarded():
    result = grade(answered("26摄氏度"), extra={"prompt_id": "x"})
    assert result.status == PluginStatus.DISCARD
    assert result.rewards == []


def test_rollout_answers_after_calling_the_tool(arkdev_proxy):
    proxy = arkdev_proxy({"messages": [QUESTION]}, skill=1.0)
    result = asyncio.run(demo_rollout({}, proxy, proxy.sample))
    assert result is None
    assert [message.role for message in proxy.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    finished = Trajectory(messages=proxy.messages, usage=proxy.usage, finish_reason="stop")
    assert grade(finished).rewards == [1.0]


@pytest.mark.parametrize(
    "rollout",
    [
        "plugins.weather_rollout:demo_rollout",
        "plugins.async_weather_rollout:demo_rollout",
        "plugins.raw_rollout:demo_rollout",
        "plugins.group_weather_rollout:demo_rollout",
    ],
)
def test_a_model_without_mistakes_is_always_rewarded(arkdev_run, rollout):
    outcome = arkdev_run(rollout=rollout, limit=8, num_generations=2, skill=1.0)
    outcome.assert_nothing_failed()
    outcome.assert_reward_mean(at_least=1.0)
