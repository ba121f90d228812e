"""SURFACE ROLL: the sample, the rollout's signature and result, and what each status leads to."""

import asyncio
import os
import subprocess
import sys
import textwrap

import pytest

from arkdev import (
    ChatCompletionMessage,
    ChatCompletionSample,
    InferenceProxy,
    PluginContext,
    PluginStatus,
    RolloutResult,
    group_grader,
    rollout,
    single_grader,
)
from arkdev.errors import PluginResultError
from arkdev.plugin import ark_sdk
from arkdev.plugin.exceptions import RolloutRetryException
from arkdev.plugin.loading import load_plugin
from arkdev.plugin.proxy import RolloutInferenceProxy
from arkdev.plugin.results import read_rollout_result
from arkdev.runs.records import Verdict
from arkdev.types import ChatCompletionMessageToolCall, Function, Thinking
from tests.running import LINE, WEATHER_TOOL, answer, running, tool_call


async def ask(proxy, messages=LINE["messages"], **options):
    client = proxy.async_rollout_client()
    return await client.chat.completions.create(model="policy", messages=messages, **options)


def written(tmp_path, text, name="plugins/weather.py"):
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(textwrap.dedent(text), encoding="utf-8")


@pytest.mark.parametrize("definition", ["async def", "def"])
async def test_the_documented_signature_runs_sync_and_async(tmp_path, definition):
    is_async = definition == "async def"
    written(
        tmp_path,
        f"""
        from typing import Optional
        from ark_sdk.resources.pipeline_plugin import rollout
        from ark_sdk.types.pipeline_plugin.pipeline_plugin import PluginContext
        from ark_sdk.types.pipeline_plugin.rollout import (
            ChatCompletionSample, RolloutInferenceProxy, RolloutResult)

        @rollout()
        {definition} demo_rollout(
            context: PluginContext,
            proxy: RolloutInferenceProxy,
            sample: ChatCompletionSample,
        ) -> Optional[RolloutResult]:
            client = proxy.{"async_" if is_async else ""}rollout_client()
            request = sample.model_dump()
            {"await " if is_async else ""}client.chat.completions.create(
                model="local", messages=request["messages"], tools=request["tools"])
            kinds = [type(value).__name__ for value in (context, proxy, sample)]
            return RolloutResult(extra={{"kinds": kinds}})
        """,
    )
    ark_sdk.install()
    try:
        loaded = load_plugin("plugins.weather:demo_rollout", root=tmp_path)
    finally:
        ark_sdk.uninstall()
    async with running(["sunny"]) as run:
        finished = await run.rollout(loaded)
    assert finished.record.verdict is Verdict.SUCCESS
    assert finished.record.extra == {
        "kinds": [kind.__name__ for kind in (PluginContext, InferenceProxy, ChatCompletionSample)]
    }
    assert [message["content"] for message in finished.record.messages][-1] == "sunny"


def test_a_sample_has_the_documented_fields_and_defaults():
    sample = ChatCompletionSample(**LINE)
    assert sample.model_dump() == {
        "n": 1,
        "max_new_tokens": 4096,
        "top_p": 1.0,
        "top_k": 0,
        "temperature": 1.0,
        "messages": [ChatCompletionMessage(**LINE["messages"][0]).model_dump()],
        "tools": None,
        "thinking": None,
        "extra": None,
    }
    full = ChatCompletionSample(
        **LINE,
        n=4,
        max_new_tokens=16,
        top_p=0.5,
        top_k=3,
        temperature=0.1,
        tools=[WEATHER_TOOL],
        thinking={"type": "enabled"},
        extra={"answer": "22", "prompt_id": "7"},
    )
    assert full.thinking == Thinking(type="enabled")
    assert (full.extra["answer"], full.tools[0]["function"]["name"]) == ("22", "get_weather")


def test_a_rollout_result_carries_status_error_extra_and_config():
    assert RolloutResult().model_dump() == {
        "status": PluginStatus.SUCCESS,
        "error": None,
        "extra": None,
        "config": None,
    }
    result = RolloutResult(
        status=PluginStatus.FAILURE, error="no", extra={"reward": -1}, config={"teachers": []}
    )
    assert (result.error, result.extra, result.config) == ("no", {"reward": -1}, {"teachers": []})


async def test_what_a_rollout_result_carries_is_in_the_record():
    @rollout
    async def careful(context, proxy, sample):
        await ask(proxy)
        return RolloutResult(extra={"reward": -1}, config={"critic_context": ["hint"]})

    async with running() as run:
        record = (await run.rollout(careful)).record
    assert (record.extra, record.config) == ({"reward": -1}, {"critic_context": ["hint"]})


def read(value):
    @rollout
    def named(context, proxy, sample): ...

    return read_rollout_result(value, plugin=load_plugin(named, root=None).plugin)


@pytest.mark.parametrize("status", ["retry", PluginStatus.RETRY])
def test_a_status_is_a_word_or_a_plugin_status(status):
    assert RolloutResult(status=status, error="busy").status is PluginStatus.RETRY
    changed = RolloutResult()
    changed.status = status
    for value in ({"status": status}, RolloutResult(status=status), changed):
        assert read(value).status is PluginStatus.RETRY
    with pytest.raises(PluginResultError, match="status='nice'"):
        read({"status": "nice"})


@pytest.mark.parametrize("value", ["success", 1, ["success"], object()])
def test_another_type_of_result_is_an_error_that_says_what_is_expected(value):
    with pytest.raises(PluginResultError, match="named returned") as refused:
        read(value)
    assert "RolloutResult(status=...," in refused.value.hint


async def test_extra_reaches_the_grader():
    @rollout
    async def judged(context, proxy, sample):
        await ask(proxy)
        return RolloutResult(extra={"reward": -1})

    @group_grader
    def reads_extra(context, sample, trajectories):
        return [trajectory.extra["reward"] for trajectory in trajectories]

    async with running() as run:
        (group,) = await run.samples(judged, reads_extra, n=2)
    assert group.rewards == (-1.0, -1.0)


async def test_extra_may_hold_what_cannot_be_copied():
    lock = asyncio.Lock()

    @rollout
    async def odd(context, proxy, sample):
        return RolloutResult(extra={"lock": (value for value in [lock]), "reward": 1})

    @group_grader
    def reads_extra(context, sample, trajectories):
        return [float(next(trajectory.extra["lock"]) is lock) for trajectory in trajectories]

    async with running() as run:
        (group,) = await run.samples(odd, reads_extra)
    assert group.rewards == (1.0,)


async def test_none_is_success():
    @rollout
    async def silent(context, proxy, sample):
        await ask(proxy)

    async with running() as run:
        record = (await run.rollout(silent)).record
    assert (record.verdict, len(record.attempts), record.extra) == (Verdict.SUCCESS, 1, None)


async def test_one_rollout_returns_one_trajectory_from_the_last_call():
    @rollout
    async def two_conversations(context, proxy, sample):
        await ask(proxy, [{"role": "user", "content": "plan"}])
        await ask(proxy, [{"role": "user", "content": "act"}])

    async with running(["a plan", "an act"]) as run:
        record = (await run.rollout(two_conversations)).record
    assert [message["content"] for message in record.messages] == ["act", "an act"]
    assert (len(record.turns), "history_rewritten" in record.warnings) == (2, True)


def test_the_four_statuses_are_lower_case_words():
    words = {status.name: status.value for status in PluginStatus}
    assert words == {
        "SUCCESS": "success",
        "FAILURE": "failure",
        "DISCARD": "discard",
        "RETRY": "retry",
    }
    assert RolloutResult().status is PluginStatus.SUCCESS
    assert RolloutResult(status="retry").model_dump(mode="json")["status"] == "retry"


def scripted(outcomes):
    """A rollout that does what `outcomes` says, one for each attempt; the last one repeats."""
    attempts = []

    @rollout
    async def scripted_rollout(context, proxy, sample):
        sample.messages.append(ChatCompletionMessage(role="user", content="left over"))
        assert len(sample.messages) == 2, "an attempt saw what another one left"
        number = len(attempts)
        attempts.append(number)
        await ask(proxy, [{"role": "user", "content": f"attempt {number}"}])
        outcome = outcomes[min(number, len(outcomes) - 1)]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return scripted_rollout


FAILURE = RolloutResult(status=PluginStatus.FAILURE, error="no tool")
RETRY = RolloutResult(status=PluginStatus.RETRY, error="busy")
DISCARD = RolloutResult(status=PluginStatus.DISCARD, error="bad sample")


async def attempts_of(*outcomes):
    """Return the group's record and the rollout's record."""
    async with running() as run:
        (group,) = await run.samples(scripted(outcomes))
    (finished,) = run.finished
    return group, finished.record


async def test_failure_is_tried_four_times_and_then_would_fail_the_job():
    group, record = await attempts_of(FAILURE)
    assert [attempt.verdict for attempt in record.attempts] == [Verdict.FAILURE] * 4
    assert (record.verdict, group.verdict) == (Verdict.FAILURE, Verdict.FAILURE)
    assert (group.rewards, group.error) == ((None,), "no tool")


async def test_discard_drops_the_group_at_once():
    group, record = await attempts_of(DISCARD)
    assert [attempt.verdict for attempt in record.attempts] == [Verdict.DISCARD]
    assert (group.verdict, group.rewards, group.graders) == (Verdict.DISCARD, (None,), ())


async def test_retry_is_tried_four_times_and_then_drops_the_group():
    group, record = await attempts_of(RETRY)
    assert [attempt.verdict for attempt in record.attempts] == [Verdict.RETRY] * 4
    assert (group.verdict, group.rewards, group.error) == (Verdict.RETRY, (None,), "busy")


async def test_a_retry_exception_that_leaves_the_rollout_means_retry():
    group, record = await attempts_of(RolloutRetryException("429"))
    assert [attempt.verdict for attempt in record.attempts] == [Verdict.RETRY] * 4
    assert group.verdict is Verdict.RETRY
    assert record.attempts[0].error == "RolloutRetryException: 429"


async def test_an_unhandled_exception_is_a_failure():
    group, record = await attempts_of(ValueError("坏"))
    assert [attempt.verdict for attempt in record.attempts] == [Verdict.FAILURE] * 4
    first = record.attempts[0]
    assert first.error == "ValueError: 坏"
    assert first.where.startswith(__file__ + ":")
    assert "raise outcome" in first.traceback
    assert group.verdict is Verdict.FAILURE


async def test_success_after_retries_keeps_the_last_attempt_alone():
    group, record = await attempts_of(RETRY, FAILURE, None)
    assert [attempt.verdict for attempt in record.attempts] == [
        Verdict.RETRY,
        Verdict.FAILURE,
        Verdict.SUCCESS,
    ]
    assert (record.messages[0]["content"], len(record.turns)) == ("attempt 2", 1)
    assert (record.verdict, group.rewards) == (Verdict.SUCCESS, (1.0,))


async def test_a_result_that_is_none_of_these_is_a_failure():
    _, record = await attempts_of("success")
    assert record.verdict is Verdict.FAILURE
    assert "PluginResultError" in record.attempts[-1].error


def test_unknown_sample_keys_are_kept():
    sample = ChatCompletionSample(**LINE, model="doubao", source="web")
    assert (sample.model, sample["source"]) == ("doubao", "web")
    assert sample.model_dump()["model"] == "doubao"


def test_messages_and_tool_calls_have_the_documented_fields():
    call = ChatCompletionMessageToolCall(function=Function(name="f", arguments='{"a": 1}'))
    message = ChatCompletionMessage(role="assistant", content=None, tool_calls=[call])
    assert message.model_dump() == {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "user_defined",
                "function": {"name": "f", "arguments": '{"a": 1}'},
                "type": "function",
            }
        ],
        "reasoning_content": "",
    }
    assert ChatCompletionMessage(role="tool", content="22", tool_call_id="c1").tool_call_id == "c1"
    parts = [{"type": "text", "text": "22"}]
    assert ChatCompletionMessage(role="tool", content=parts).content == parts


async def test_a_dumped_sample_goes_to_the_client_unchanged():
    line = {
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "weather?"},
            {"role": "assistant", "content": None, "tool_calls": [tool_call()]},
            {"role": "tool", "content": "22", "tool_call_id": "call_1"},
        ],
        "tools": [WEATHER_TOOL],
        "thinking": {"type": "enabled"},
    }

    @rollout
    async def documented(context, proxy, sample):
        request = sample.model_dump()
        messages = request.pop("messages")
        tools = (request.pop("tools") or []) + [WEATHER_TOOL]
        await ask(proxy, messages, tools=tools)

    async with running() as run:
        record = (await run.rollout(documented, line)).record
        without_tools = (await run.rollout(documented, LINE)).record
    assert run.sent[0] == line["messages"]
    assert run.requests[0].body["tools"] == [WEATHER_TOOL, WEATHER_TOOL]
    assert list(record.messages[:-1]) == line["messages"]
    assert without_tools.verdict is Verdict.SUCCESS


@pytest.mark.parametrize(
    "content",
    [
        "hello",
        [{"type": "text", "text": "hello"}],
        [{"type": "image_url", "image_url": {"url": "data:,x"}}, {"type": "text", "text": "?"}],
        {"type": "text", "text": "hello"},
    ],
)
async def test_content_is_a_text_or_a_list_of_parts(content):
    line = {"messages": [{"role": "user", "content": content}]}

    @rollout
    async def sends_it_on(context, proxy, sample):
        await ask(proxy, sample.model_dump()["messages"])

    @single_grader
    def sees_it(context, sample, trajectory):
        return float(sample.messages[0].content == trajectory.messages[0].content == content)

    async with running() as run:
        (group,) = await run.samples(sends_it_on, sees_it, lines=[line])
    assert run.sent == [line["messages"]]
    assert group.rewards == (1.0,)


def test_a_plugin_is_found_anywhere_in_the_workspace(tmp_path):
    modules = ["rollouts", "plugins.a", "plugin.code_agent_grader", "src.deep.er"]
    for module in modules:
        written(
            tmp_path,
            """
            from arkdev import rollout

            @rollout
            def f(context, proxy, sample): ...
            """,
            name=module.replace(".", "/") + ".py",
        )
    script = (
        "import sys, pathlib; from arkdev.plugin.loading import load_plugin\n"
        "for module in sys.argv[2:]:\n"
        "    loaded = load_plugin(module + ':f', root=pathlib.Path(sys.argv[1]))\n"
        "    print(loaded.plugin.place)"
    )
    found = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path), *modules],
        cwd="/",
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
    )
    files = [f"{tmp_path}/{module.replace('.', '/')}.py:4" for module in modules]
    assert found.stdout.splitlines() == files


async def test_a_plugin_called_by_hand_leaves_its_conversation_on_the_proxy():
    @rollout
    def by_hand(
        context: PluginContext, proxy: RolloutInferenceProxy, sample: ChatCompletionSample
    ) -> RolloutResult | None:
        client = proxy.rollout_client()
        request = sample.model_dump()
        first = client.chat.completions.create(model="m", messages=request["messages"])
        request["messages"].append(first.choices[0].message.model_dump())
        request["messages"].append({"role": "tool", "content": "22", "tool_call_id": "call_1"})
        client.chat.completions.create(model="m", messages=request["messages"])
        return RolloutResult(extra={"phase": context.phase})

    async with running([answer(None, tool_calls=[tool_call()]), "22 degrees"]) as run:
        proxy = run.proxy()
        result = await by_hand({}, proxy, ChatCompletionSample(**LINE))
    assert (result.status, result.error, result.extra) == ("success", None, {"phase": ""})
    roles = [message.role for message in proxy.messages]
    assert roles == ["user", "assistant", "tool", "assistant"]
    assert proxy.messages[-1].content == "22 degrees"
    assert (proxy.finish_reason, proxy.usage.total_tokens) == ("stop", 14)
