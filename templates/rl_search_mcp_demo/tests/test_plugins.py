"""插件的测试，不需要模型和网络：在工作区的根目录运行 pytest。"""

import asyncio
import json
from types import SimpleNamespace

import pytest
from ark_sdk.types.pipeline_plugin.pipeline_plugin import PluginStatus
from ark_sdk.types.pipeline_plugin.rollout import ChatCompletionSample, Trajectory

from plugins.coze_monitor import coze_monitor
from plugins.llm_grader import llm_grader
from plugins.search_corpus import follow, make_world, search
from plugins.web_search import ToolCallError, open_search, read_arguments

QUESTION = {"role": "user", "content": "潮音灯塔的建造者是谁？"}


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    for name in ("ARK_API_KEY", "SEARCH_API_KEY", "COZELOOP_WORKSPACE_ID", "COZELOOP_API_TOKEN"):
        monkeypatch.delenv(name, raising=False)


def tool_turns(arguments='{"Query": "潮音灯塔"}', name="web_search"):
    call = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}
    return [
        QUESTION,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "建造者是沈听雪", "tool_call_id": "call_1"},
    ]


def trajectory(*messages, extra=None):
    return Trajectory(messages=list(messages), usage={}, finish_reason="stop", extra=extra)


def grade(*trajectories, extra=None):
    extra = {"answer": "沈听雪"} if extra is None else extra
    sample = ChatCompletionSample(messages=[QUESTION], extra=extra)
    return asyncio.run(llm_grader({}, sample, list(trajectories)))


def test_the_document_that_is_searched_for_comes_first():
    for title, text in make_world().documents:
        assert search(title, 10)[0] == (title, text)


def test_no_document_is_found_for_a_name_of_the_real_world():
    assert search("北京", 10) == []


def test_search_goes_through_the_mcp_server():
    async def searched(**arguments):
        async with open_search() as tool:
            return json.loads(await tool.search(arguments))["Result"]

    result = asyncio.run(searched(Query="潮音灯塔的建造者", Count=3))
    assert result["WebResults"][0]["Title"] == "潮音灯塔"
    assert follow("潮音灯塔", ["建造者"]) in result["WebResults"][0]["Snippet"]
    # 另一个事件循环用的是同一个服务器
    assert asyncio.run(searched(Query="北京"))["ResultCount"] == 0


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ('{"Query": "潮', "invalid_json"),
        ("", "invalid_json"),
        (None, "invalid_json"),
        ('"{\\"Query\\": \\"潮音灯塔\\"}"', "bad_arguments"),
        ('["潮音灯塔"]', "bad_arguments"),
        ('{"query": "潮音灯塔"}', "bad_arguments"),
        ('{"Query": ""}', "bad_arguments"),
        ('{"Query": "潮音灯塔", "Count": "3"}', "bad_arguments"),
    ],
)
def test_bad_arguments_are_named(arguments, reason):
    with pytest.raises(ToolCallError) as caught:
        read_arguments(SimpleNamespace(name="web_search", arguments=arguments))
    assert caught.value.reason == reason


def test_unknown_tool_is_named():
    with pytest.raises(ToolCallError, match="get_time") as caught:
        read_arguments(SimpleNamespace(name="get_time", arguments='{"Query": "x"}'))
    assert caught.value.reason == "unknown_tool"


def test_scores_that_need_no_judge():
    turns = tool_turns()
    result = grade(
        trajectory(*turns[:2]),  # 停在一次写对了的搜索上
        trajectory(*tool_turns(arguments="{")[:2]),
        trajectory(*tool_turns(name="get_time")[:2]),
        trajectory(*turns, {"role": "assistant", "content": " "}),
        trajectory(QUESTION, {"role": "assistant", "content": "沈听雪"}),
        trajectory(*turns[:2], extra={"reward": -1}),
    )
    assert result.rewards == [0.0, -1.0, -1.0, -1.0, -1.0, -1]
    assert result.metrics["accuracy"] == 0.0


def test_without_a_key_for_the_judge_the_sample_fails_and_is_not_scored():
    result = grade(trajectory(*tool_turns(), {"role": "assistant", "content": "沈听雪"}))
    assert result.status == PluginStatus.FAILURE
    assert result.rewards == []
    assert "ARK_API_KEY" in result.error


def test_sample_without_an_answer_is_discarded():
    result = grade(trajectory(*tool_turns()), extra={"prompt_id": "x"})
    assert result.status == PluginStatus.DISCARD
    assert result.rewards == []


def test_coze_monitor_changes_nothing_when_it_is_not_configured():
    @coze_monitor
    def double(number):
        return 2 * number

    @coze_monitor
    async def double_async(number):
        return 2 * number

    assert (double(2), asyncio.run(double_async(3))) == (4, 6)


def test_a_model_without_mistakes_is_always_rewarded(arkdev_run):
    outcome = arkdev_run(limit=8, skill=1.0)
    outcome.assert_nothing_failed()
    outcome.assert_reward_mean(at_least=1.0)
