"""SURFACE GROUP, PROXY-12, PROXY-24, PROXY-25, Y-14, Y-37, Y-38: group rollouts."""

import asyncio

import pytest

from arkdev import (
    GroupRolloutResult,
    PluginStatus,
    SingleResponse,
    group_grader,
    group_rollout,
    rollout,
    single_grader,
    single_rollout,
    wrap_responses_async_client_inplace,
    wrap_responses_client_inplace,
)
from arkdev.errors import PluginError, SamplingParameterError
from arkdev.plugin import ark_sdk
from arkdev.plugin.decorators import PluginKind, plugin_of
from arkdev.plugin.loading import load_plugin
from arkdev.runs.records import Verdict
from tests.running import LINE, answer, running, tool_call

openai_range = pytest.mark.openai_range
CLIENTS = [
    pytest.param("openai", "OpenAI", marks=openai_range),
    pytest.param("openai", "AsyncOpenAI", marks=openai_range),
    ("volcenginesdkarkruntime", "Ark"),
    ("volcenginesdkarkruntime", "AsyncArk"),
]
WEATHER_FUNCTION = {
    "type": "function",
    "name": "get_current_weather",
    "description": "获取指定地点的天气信息",
    "parameters": {"type": "object", "properties": {}},
}


def user(text):
    return {"role": "user", "content": text}


def ask(client, text, previous=None, **options):
    """One turn: its new input, and the response it follows."""
    if previous is not None:
        options["previous_response_id"] = previous.id
    return client.responses.create(model="policy", input=[user(text)], **options)


def echo(request):
    """The model repeats what it saw, as one line."""
    return "|".join(str(message["content"]) for message in request.body["messages"])


def of(*responses):
    return GroupRolloutResult(responses=[SingleResponse(id=response.id) for response in responses])


@group_rollout
async def one_root_two_branches(context, proxy, sample, n_sample):
    client = proxy.async_rollout_client()
    root = await ask(client, "人之初")
    left = await ask(client, "性相近", root)
    right = await ask(client, "苟不教", root)
    return of(root, left, right)


def contents(finished):
    return [[message["content"] for message in one.record.messages] for one in finished]


@openai_range
async def test_one_call_makes_the_trajectories_of_a_sample():
    calls = []

    @group_rollout
    async def shared(context, proxy, sample, n_sample):
        calls.append(n_sample)
        client = proxy.async_rollout_client()
        plan = await ask(client, "plan")
        return of(*[await ask(client, f"act {i}", plan) for i in range(n_sample)])

    async with running(echo) as run:
        (group,) = await run.samples(shared, n=3)
    assert calls == [3]
    assert group.trajectory_ids == ("0.0", "0.1", "0.2")
    assert len(run.requests) == 4


@openai_range
async def test_a_single_rollout_is_called_once_for_each_trajectory():
    calls = []

    @single_rollout
    async def alone(context, proxy, sample):
        calls.append(proxy)
        await ask(proxy.async_rollout_client(), "q")

    async with running() as run:
        (group,) = await run.samples(alone, n=3)
    assert len(set(calls)) == len(group.trajectory_ids) == 3


@pytest.mark.parametrize("definition", ["async def", "def"])
async def test_the_documented_signature_runs_sync_and_async(tmp_path, definition):
    is_async = definition == "async def"
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "group.py").write_text(
        f"""
from ark_sdk.resources.pipeline_plugin import group_rollout
from ark_sdk.types.pipeline_plugin import PluginInstance, Runtime
from ark_sdk.types.pipeline_plugin.pipeline_plugin import PluginContext, PluginStatus
from ark_sdk.types.pipeline_plugin.rollout import (
    ChatCompletionSample, GroupRolloutResult, RolloutInferenceProxy, SingleResponse)

@group_rollout(
    name="group_rollout",
    runtime=Runtime(instance=PluginInstance.CPU4MEM8, max_concurrency=100, timeout=900),
)
{definition} grouped(
    context: PluginContext,
    proxy: RolloutInferenceProxy,
    sample: ChatCompletionSample,
    n_sample: int = 1,
) -> GroupRolloutResult:
    client = proxy.{"async_" if is_async else ""}rollout_client()
    responses = []
    for number in range(n_sample):
        response = {"await " if is_async else ""}client.responses.create(
            model="m", input=[m.model_dump() for m in sample.messages])
        responses.append(SingleResponse(id=response.id, extra={{"number": number}}))
    return GroupRolloutResult(status=PluginStatus.SUCCESS, responses=responses)
""",
        encoding="utf-8",
    )
    ark_sdk.install()
    try:
        loaded = load_plugin("plugins.group:grouped", root=tmp_path)
    finally:
        ark_sdk.uninstall()
    assert (loaded.plugin.kind, loaded.plugin.name) == (PluginKind.GROUP_ROLLOUT, "group_rollout")
    async with running(["sunny"]) as run:
        finished = await run.group(loaded, n=2)
    assert [one.record.verdict for one in finished] == [Verdict.SUCCESS] * 2
    assert [one.record.extra for one in finished] == [{"number": 0}, {"number": 1}]
    assert contents(finished) == [["how is the weather?", "sunny"]] * 2


@pytest.mark.parametrize("by_keyword", [True, False])
async def test_n_sample_reaches_the_plugin_beside_the_other_arguments(by_keyword):
    @group_rollout
    async def counting(context, proxy, sample, n_sample: int = 1):
        return n_sample

    assert plugin_of(counting).kind is PluginKind.GROUP_ROLLOUT
    assert await counting({}, None, None) == 1
    if by_keyword:
        assert await counting(context={}, proxy=None, sample=None, n_sample=5) == 5
    else:
        assert await counting({}, None, None, 5) == 5


def test_results_have_the_documented_fields_and_defaults():
    assert SingleResponse(id="resp_1").model_dump() == {"id": "resp_1", "extra": None}
    assert GroupRolloutResult().model_dump() == {
        "status": PluginStatus.SUCCESS,
        "error": None,
        "responses": [],
    }
    with pytest.raises(ValueError, match="id"):
        SingleResponse(extra={})


@openai_range
async def test_branches_share_their_beginning_and_know_nothing_of_each_other():
    async with running(lambda request: f"answer {len(request.body['messages'])}") as run:
        finished = await run.group(one_root_two_branches, n=3)
    assert contents(finished) == [
        ["人之初", "answer 1"],
        ["人之初", "answer 1", "性相近", "answer 3"],
        ["人之初", "answer 1", "苟不教", "answer 3"],
    ]
    assert [[m["content"] for m in sent] for sent in run.sent] == [
        ["人之初"],
        ["人之初", "answer 1", "性相近"],
        ["人之初", "answer 1", "苟不教"],
    ]


@openai_range
async def test_a_response_is_a_node_with_an_id_of_its_own():
    from openai.types.responses import Response

    seen = []

    @group_rollout
    async def asking(context, proxy, sample, n_sample):
        client = proxy.async_rollout_client()
        first = await ask(client, "q")
        second = await ask(client, "q", first)
        seen.extend([first, second])
        return of(first, second)

    async with running(["fine"]) as run:
        await run.group(asking, n=2)
    first, second = seen
    assert all(isinstance(response, Response) for response in seen)
    assert (first.output_text, first.previous_response_id) == ("fine", None)
    assert second.previous_response_id == first.id != second.id


async def test_each_branch_reaches_the_graders_as_its_whole_path():
    seen = []

    @group_grader
    async def reading(context, sample, trajectories):
        seen.extend([message.content for message in t.messages] for t in trajectories)
        return [float(len(t.messages)) for t in trajectories]

    async with running(["a", "b", "c"]) as run:
        (group,) = await run.samples(one_root_two_branches, reading, n=3)
    assert seen == [["人之初", "a"], ["人之初", "a", "性相近", "b"], ["人之初", "a", "苟不教", "c"]]
    assert group.rewards == (2.0, 4.0, 4.0)
    usages = [one.record.usage["total_tokens"] for one in run.finished]
    assert usages == [7, 14, 14]


async def test_extra_of_a_response_reaches_single_and_group_graders():
    @group_rollout
    async def scored(context, proxy, sample, n_sample):
        client = proxy.async_rollout_client()
        responses = [await ask(client, f"{i}") for i in range(n_sample)]
        return {
            "responses": [
                {"id": response.id, "extra": {"reward": 0.5 * i}}
                for i, response in enumerate(responses)
            ]
        }

    @single_grader
    def one_by_one(context, sample, trajectory):
        return trajectory.extra["reward"]

    @group_grader
    def together(context, sample, trajectories):
        return [trajectory["extra"]["reward"] for trajectory in trajectories]

    async with running() as run:
        (group,) = await run.samples(scored, one_by_one, together, n=3)
    assert [grader.rewards for grader in group.graders] == [(0.0, 0.5, 1.0)] * 2


@pytest.mark.parametrize("given", [0, 1, 3])
async def test_another_number_of_responses_than_n_sample_is_an_error(given):
    @group_rollout
    async def miscounting(context, proxy, sample, n_sample):
        client = proxy.async_rollout_client()
        return of(*[await ask(client, "q") for _ in range(given)])

    async with running() as run:
        (group,) = await run.samples(miscounting, n=2)
    (finished,) = run.finished
    assert (finished.record.verdict, group.rewards) == (Verdict.FAILURE, (None,))
    error = finished.record.attempts[-1]
    assert f"miscounting returned {given} responses for n_sample=2" in error.error
    assert "test_group_rollout.py:" in error.where


@pytest.mark.parametrize("returned", [None, [], "r1"])
async def test_what_is_no_group_result_is_an_error(returned):
    @group_rollout
    async def wrong(context, proxy, sample, n_sample):
        return returned

    async with running() as run:
        (finished,) = await run.group(wrong)
    assert finished.record.verdict is Verdict.FAILURE
    assert "a group rollout returns GroupRolloutResult" in finished.record.attempts[-1].error


async def test_a_discard_drops_the_whole_group_at_once():
    @group_rollout
    async def gives_up(context, proxy, sample, n_sample):
        response = await ask(proxy.async_rollout_client(), "q")
        return GroupRolloutResult(
            status="discard", error="nothing to learn", responses=[SingleResponse(id=response.id)]
        )

    async with running() as run:
        (group,) = await run.samples(gives_up, n=4)
    (finished,) = run.finished
    assert (group.verdict, group.rewards, group.error) == (
        Verdict.DISCARD,
        (None,),
        "nothing to learn",
    )
    assert (len(finished.record.attempts), finished.record.num_trajectories) == (1, 4)


@pytest.mark.parametrize("status", ["failure", "retry"])
async def test_a_failed_attempt_runs_the_whole_call_again(status):
    proxies = []

    @group_rollout
    async def second_time_lucky(context, proxy, sample, n_sample):
        proxies.append(proxy)
        client = proxy.async_rollout_client()
        responses = [await ask(client, f"{i}") for i in range(n_sample)]
        if len(proxies) == 1:
            return GroupRolloutResult(status=status, error="once")
        return of(*responses)

    async with running() as run:
        finished = await run.group(second_time_lucky)
    assert len(finished) == len(set(proxies)) == 2
    for one in finished:
        verdicts = [attempt.verdict.value for attempt in one.record.attempts]
        assert verdicts == [status, "success"]
        assert len(one.record.turns) == 1
    assert len(run.requests) == 4


@pytest.mark.parametrize("status", ["failure", "retry"])
async def test_a_call_that_never_succeeds_is_tried_four_times(status):
    @group_rollout
    async def unlucky(context, proxy, sample, n_sample):
        return GroupRolloutResult(status=status, error="never")

    async with running() as run:
        (group,) = await run.samples(unlucky, n=4)
    (finished,) = run.finished
    assert [a.error for a in finished.record.attempts] == ["never"] * 4
    assert (group.verdict.value, group.trajectory_ids) == (status, ("0.0",))


async def test_chat_completions_are_refused_in_a_group_rollout():
    @group_rollout
    async def chatting(context, proxy, sample, n_sample):
        client = proxy.async_rollout_client()
        await client.chat.completions.create(model="m", messages=LINE["messages"])

    async with running() as run:
        (finished,) = await run.group(chatting)
    attempt = finished.record.attempts[-1]
    assert "a group rollout calls client.responses.create" in attempt.error
    assert "test_group_rollout.py:" in attempt.where
    assert run.requests == []


@openai_range
@pytest.mark.parametrize("is_async", [True, False])
async def test_a_single_rollout_may_use_responses(is_async):
    @rollout
    async def asynchronous(context, proxy, sample):
        client = proxy.async_rollout_client()
        first = await ask(client, "q1")
        await ask(client, "q2", first)

    @rollout
    def synchronous(context, proxy, sample):
        client = proxy.rollout_client()
        first = ask(client, "q1")
        ask(client, "q2", first)
        assert [message.content for message in proxy.messages] == ["q1", "a1", "q2", "a2"]

    async with running(["a1", "a2"]) as run:
        finished = await run.rollout(asynchronous if is_async else synchronous)
    assert contents([finished]) == [["q1", "a1", "q2", "a2"]]
    assert finished.record.usage["total_tokens"] == 14
    assert finished.record.warnings == ()


@openai_range
async def test_function_tools_have_no_nested_function():
    call = tool_call("get_current_weather", '{"location": "北京"}', id="c1")

    @group_rollout
    async def with_tool(context, proxy, sample, n_sample):
        client = proxy.async_rollout_client()
        first = await ask(client, "北京?", tools=[WEATHER_FUNCTION])
        (item,) = [item for item in first.output if item.type == "function_call"]
        assert (item.name, item.arguments) == ("get_current_weather", '{"location": "北京"}')
        output = {"type": "function_call_output", "call_id": item.call_id, "output": "22"}
        second = await client.responses.create(
            model="m", input=[output], previous_response_id=first.id, tools=[WEATHER_FUNCTION]
        )
        return of(second)

    async with running([answer(None, tool_calls=[call]), "22度"]) as run:
        (finished,) = await run.group(with_tool, n=1)
    function = {key: value for key, value in WEATHER_FUNCTION.items() if key != "type"}
    assert [request.body["tools"] for request in run.requests] == [
        [{"type": "function", "function": function}]
    ] * 2
    assert run.sent[1] == [
        user("北京?"),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "22"},
    ]
    assert [turn.tool_calls for turn in finished.record.turns] == [("get_current_weather",), ()]
    assert finished.record.turns[0].tool_duration_s is not None


@openai_range
async def test_messages_put_in_are_an_increment_with_an_id_of_their_own():
    ids = {}

    @group_rollout
    async def inserting(context, proxy, sample, n_sample):
        client = proxy.async_rollout_client()
        first = await ask(client, "苟不教")
        ids["new"] = proxy.update_state_from_messages(
            messages=[user("子不教"), {"role": "assistant", "content": "父之过"}],
            previous_response_id=first.id,
        )
        later = await client.responses.create(
            model="m", input=[user("教不严")], previous_response_id=ids["new"]
        )
        ids["from nothing"] = proxy.update_state_from_messages(messages=[user("养不教")])
        return GroupRolloutResult(
            responses=[
                SingleResponse(id=first.id),
                SingleResponse(id=ids["new"]),
                SingleResponse(id=later.id),
                SingleResponse(id=ids["from nothing"]),
            ]
        )

    async with running(["性乃迁", "师之惰"]) as run:
        finished = await run.group(inserting, n=4)
    assert contents(finished) == [
        ["苟不教", "性乃迁"],
        ["苟不教", "性乃迁", "子不教", "父之过"],
        ["苟不教", "性乃迁", "子不教", "父之过", "教不严", "师之惰"],
        ["养不教"],
    ]
    assert len(run.requests) == 2
    assert [len(one.record.turns) for one in finished] == [1, 1, 2, 0]
    assert all(isinstance(new_id, str) and new_id for new_id in ids.values())


@openai_range
async def test_the_whole_history_is_the_form_of_a_single_rollout():
    async with running(["a1"]) as run:
        proxy = run.proxy()
        assert proxy.update_state_from_messages([user("q1"), user("q2")]) is None
        assert [message.content for message in proxy.messages] == ["q1", "q2"]
        response = await ask(proxy.async_rollout_client(), "q3")
        increment = proxy.update_state_from_messages([user("q4")], previous_response_id=response.id)
        await proxy.async_rollout_client().responses.create(
            model="m", input=[user("q5")], previous_response_id=increment
        )
    assert [message["content"] for message in run.sent[1]] == ["q3", "a1", "q4", "q5"]


@pytest.mark.parametrize(("library", "name"), CLIENTS)
async def test_the_responses_calls_of_every_kind_of_client_can_be_wrapped(library, name):
    client = getattr(pytest.importorskip(library), name)(
        base_url="http://127.0.0.1:9/api/v3", api_key="k"
    )
    is_async = name.startswith("Async")
    wrap = wrap_responses_async_client_inplace if is_async else wrap_responses_client_inplace
    async with running(["one", "two"]) as run:
        proxy = run.proxy(run.session(temperature=0.3))
        assert wrap(client, proxy=proxy) is client
        if is_async:
            first = await ask(client, "q1")
            second = await ask(client, "q2", first)
        else:
            first = await asyncio.to_thread(ask, client, "q1")
            second = await asyncio.to_thread(ask, client, "q2", first)
    module = type(second).__module__.partition(".")[0]
    assert (module, second.output[0].content[0].text) == (library, "two")
    assert [request.sampling for request in run.requests] == [{"temperature": 0.3}] * 2
    assert [message.content for message in proxy.messages] == ["q1", "one", "q2", "two"]
    assert {turn.via for turn in proxy.access.turns} == {"wrapped"}


@pytest.mark.parametrize(("library", "name"), CLIENTS)
async def test_the_wrong_wrapper_for_a_client_is_refused_by_name(library, name):
    client = getattr(pytest.importorskip(library), name)(base_url="http://127.0.0.1:9", api_key="k")
    is_async = name.startswith("Async")
    wrong = wrap_responses_client_inplace if is_async else wrap_responses_async_client_inplace
    async with running() as run:
        with pytest.raises(PluginError, match=f"{wrong.__name__} was given an? a?sync"):
            wrong(client, run.proxy())


@openai_range
@pytest.mark.parametrize("name", ["temperature", "max_output_tokens", "thinking", "top_p"])
async def test_sampling_parameters_are_refused_in_responses_too(name):
    async with running() as run:
        client = run.proxy().async_rollout_client()
        with pytest.raises(SamplingParameterError, match=f"{name} cannot be set"):
            await ask(client, "q", extra_body={name: 1})
    assert run.requests == []
