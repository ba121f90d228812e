"""SURFACE PROXY: the proxy of a rollout, with handed-out, raw and stand-alone clients."""

import asyncio

import pytest

from arkdev import (
    ChatCompletionMessage,
    ChatCompletionResponse,
    ChatCompletionSample,
    InferenceProxy,
    Mode,
    RolloutResult,
    rollout,
    wrap_async_client_inplace,
    wrap_client_inplace,
)
from arkdev.plugin.proxy import ARK_BASE_URL, RolloutInferenceProxy
from arkdev.runs.records import Verdict
from tests.running import LINE, answer, running, tool_call, with_tokens

openai_range = pytest.mark.openai_range
ASSISTANT_CALL = answer(None, tool_calls=[tool_call()])


def raw_client(library, proxy, *, is_async=False):
    """A client as the documents build it."""
    module = pytest.importorskip(library)
    name = {"openai": "OpenAI", "volcenginesdkarkruntime": "Ark"}[library]
    client_class = getattr(module, f"Async{name}" if is_async else name)
    return client_class(base_url=proxy.url, api_key=proxy.jwt_token)


def raw_rollout(library):
    """The documents' raw loop, with one tool."""

    @rollout
    def raw(context, proxy, sample):
        client = raw_client(library, proxy)
        messages = sample.model_dump()["messages"]
        while True:
            proxy.update_state_from_messages([ChatCompletionMessage(**m) for m in messages])
            completion = client.chat.completions.create(
                model="local",
                messages=messages,
                extra_body=proxy.get_extra_body(),
                extra_headers=proxy.headers,
            )
            proxy.process_completion(ChatCompletionResponse(**completion.model_dump()))
            messages.append(completion.choices[0].message.model_dump())
            if completion.choices[0].finish_reason != "tool_calls":
                break
            for call in completion.choices[0].message.tool_calls:
                messages.append({"role": "tool", "content": "22", "tool_call_id": call.id})
        client.close()

    return raw


LIBRARIES = [pytest.param("openai", marks=openai_range), "volcenginesdkarkruntime"]


async def test_a_rollout_receives_a_proxy():
    @rollout
    async def looks(context, proxy, sample):
        assert isinstance(proxy, RolloutInferenceProxy)
        assert (proxy.sample, proxy.mode, proxy.messages) == (sample, Mode.Inference, [])
        return RolloutResult(extra={"url": proxy.url, "token": proxy.jwt_token})

    async with running() as run:
        first, second = [(await run.rollout(looks)).record.extra for _ in range(2)]
    assert first["url"] == second["url"] == run.gateway.url
    assert first["token"] != second["token"]


@openai_range
@pytest.mark.parametrize("is_async", [False, True])
async def test_a_stand_alone_proxy_talks_to_its_url(is_async):
    sample = {**LINE, "temperature": 0.5, "max_new_tokens": 9, "thinking": {"type": "disabled"}}
    async with running(["by hand"]) as run:
        session = run.session()
        proxy = InferenceProxy(
            ChatCompletionSample(**sample),
            url=run.gateway.url,
            jwt_token=session.jwt_token,
            mode=Mode.Inference,
        )
        client = proxy.async_rollout_client() if is_async else proxy.rollout_client()
        create = client.chat.completions.create
        if is_async:
            completion = await create(model="m", messages=LINE["messages"])
        else:
            completion = await asyncio.to_thread(create, model="m", messages=LINE["messages"])
    assert completion.choices[0].message.content == proxy.messages[-1].content == "by hand"
    assert proxy.usage.total_tokens == 7
    assert run.requests[0].sampling == {
        "temperature": 0.5,
        "max_new_tokens": 9,
        "thinking": {"type": "disabled"},
    }
    assert proxy.get_extra_body() == {
        "temperature": 0.5,
        "max_tokens": 9,
        "thinking": {"type": "disabled"},
    }


def test_a_stand_alone_proxy_takes_a_dict_and_defaults_to_the_public_service():
    proxy = InferenceProxy(LINE)
    assert (proxy.url, proxy.mode, proxy.get_extra_body()) == (ARK_BASE_URL, Mode.Inference, {})
    assert proxy.sample.messages[0].role == "user"
    assert (proxy.messages, proxy.usage, proxy.finish_reason) == ([], None, None)


@openai_range
async def test_the_proxy_hands_out_a_sync_and_an_async_client():
    import openai

    async with running(["one", "two"]) as run:
        proxy = run.proxy()
        sync, asynchronous = proxy.rollout_client(), proxy.async_rollout_client()
        question = {"model": "m", "messages": LINE["messages"]}
        first = await asyncio.to_thread(sync.chat.completions.create, **question)
        second = await asynchronous.chat.completions.create(**question)
    assert isinstance(sync, openai.OpenAI)
    assert isinstance(asynchronous, openai.AsyncOpenAI)
    assert [c.choices[0].message.content for c in (first, second)] == ["one", "two"]
    assert [turn.via for turn in proxy.access.turns] == ["wrapped", "wrapped"]


@openai_range
async def test_handed_out_clients_share_one_transport():
    async with running() as run:
        clients = [run.proxy().rollout_client() for _ in range(2)]
        asynchronous = [run.proxy().async_rollout_client() for _ in range(2)]
    assert clients[0]._client is clients[1]._client
    assert asynchronous[0]._client is asynchronous[1]._client


@openai_range
async def test_closing_one_client_leaves_the_others_their_transport():
    async with running() as run:
        session = run.session()
        own = {"url": run.gateway.url, "jwt_token": session.jwt_token}
        with InferenceProxy(LINE, **own).rollout_client():
            pass
        async with InferenceProxy(LINE, **own).async_rollout_client():
            pass
        question = {"model": "m", "messages": LINE["messages"]}
        other = InferenceProxy(LINE, **own)
        await asyncio.to_thread(other.rollout_client().chat.completions.create, **question)
        await other.async_rollout_client().chat.completions.create(**question)
    assert session.num_turns == 2


@pytest.mark.parametrize("library", LIBRARIES)
async def test_a_raw_client_works_with_url_and_jwt_token(library):
    async with running([ASSISTANT_CALL, "22 degrees"]) as run:
        finished = await run.rollout(raw_rollout(library), temperature=0.7)
    record = finished.record
    assert record.verdict is Verdict.SUCCESS
    assert [message["role"] for message in record.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert [(turn.via, turn.tool_calls) for turn in record.turns] == [
        ("raw", ("get_weather",)),
        ("raw", ()),
    ]
    assert (record.finish_reason, record.usage["total_tokens"]) == ("stop", 14)
    assert [request.sampling for request in run.requests] == [{"temperature": 0.7}] * 2
    assert "raw_call_not_processed" not in record.warnings


@pytest.mark.parametrize("library", LIBRARIES)
async def test_an_async_raw_client_works_too(library):
    @rollout
    async def raw(context, proxy, sample):
        client = raw_client(library, proxy, is_async=True)
        await client.chat.completions.create(model="m", messages=LINE["messages"])
        await client.close()

    async with running(["hello"]) as run:
        record = (await run.rollout(raw)).record
    assert (record.messages[-1]["content"], record.verdict) == ("hello", Verdict.SUCCESS)
    assert "raw_call_not_processed" in record.warnings


@pytest.mark.parametrize("library", LIBRARIES)
async def test_a_sync_raw_client_on_the_event_loop_does_not_deadlock(library):
    @rollout
    async def blocks_its_loop(context, proxy, sample):
        client = raw_client(library, proxy)
        client.chat.completions.create(model="m", messages=LINE["messages"])
        client.close()

    async with running(["hello"]) as run:
        record = (await asyncio.wait_for(run.rollout(blocks_its_loop), 60)).record
    assert record.messages[-1]["content"] == "hello"


@openai_range
async def test_headers_and_extra_body_go_with_a_raw_call():
    import openai

    async with running() as run:
        proxy = run.proxy(run.session(temperature=0.2))
        proxy.headers = {"x-trace": "1"}
        async with openai.AsyncOpenAI(base_url=proxy.url, api_key=proxy.jwt_token) as client:
            await client.chat.completions.create(
                model="m",
                messages=LINE["messages"],
                extra_headers=proxy.headers,
                extra_body={**proxy.get_extra_body(), "top_p": 0.9},
            )
        assert proxy.get_extra_body() == {}
        assert proxy.access.warnings == ("raw_sampling_parameter: top_p", "raw_call_not_processed")
    assert run.requests[0].sampling == {"temperature": 0.2, "top_p": 0.9}


@openai_range
async def test_rewritten_history_is_cut_where_it_diverges():
    call_1 = with_tokens([1, 2], [3, 4], [-0.1, -0.2], content="first")
    call_2 = with_tokens([1, 2, 3, 9], [5], [-0.3], content="second")
    async with running([call_1, call_2]) as run:
        proxy = run.proxy()
        client = proxy.async_rollout_client()
        history = [{"role": "user", "content": "q"}]
        await client.chat.completions.create(model="m", messages=history)
        edited = [*history, {"role": "assistant", "content": "edited"}]
        proxy.update_state_from_messages(edited)
        assert [message.content for message in proxy.messages] == ["q", "edited"]
        await client.chat.completions.create(model="m", messages=edited)
    assert [message.content for message in proxy.messages] == ["q", "edited", "second"]
    tokens = proxy.conversation.tokens
    assert tokens.token_ids == (1, 2, 3, 9, 5)
    assert tokens.loss_weight == (0.0, 0.0, 1.0, 0.0, 1.0)
    assert tokens.logprobs == (0.0, 0.0, -0.1, 0.0, -0.3)
    assert "history_rewritten" in proxy.access.warnings


@openai_range
async def test_history_that_only_grows_is_not_rewritten():
    async with running([ASSISTANT_CALL, "done"]) as run:
        proxy = run.proxy()
        client = proxy.async_rollout_client()
        messages = [{"role": "user", "content": "q"}]
        first = await client.chat.completions.create(model="m", messages=messages)
        messages.append(first.choices[0].message.model_dump())
        messages.append({"role": "tool", "content": "22", "tool_call_id": "call_1"})
        messages[0] = {"role": "user", "content": [{"type": "text", "text": "q"}]}
        proxy.update_state_from_messages([ChatCompletionMessage(**m) for m in messages])
        await client.chat.completions.create(model="m", messages=messages)
    assert proxy.access.warnings == ()


async def test_process_completion_takes_a_dumped_completion():
    body = answer("from elsewhere")
    proxy = InferenceProxy(LINE)
    proxy.update_state_from_messages(LINE["messages"])
    proxy.process_completion(ChatCompletionResponse(**body))
    assert [m.content for m in proxy.messages] == ["how is the weather?", "from elsewhere"]
    async with running() as run:
        in_run = run.proxy()
        in_run.update_state_from_messages(LINE["messages"])
        in_run.process_completion(body)
    assert [m.content for m in in_run.messages] == ["how is the weather?", "from elsewhere"]
    assert ChatCompletionResponse(**body).choices[0].message.content == "from elsewhere"


async def test_messages_usage_and_finish_reason_tell_of_the_last_call():
    async with running([ASSISTANT_CALL, answer("cut", finish_reason="length")]) as run:
        proxy = run.proxy()
        await proxy.access.complete({"messages": LINE["messages"]})
        assert (proxy.finish_reason, len(proxy.messages)) == ("tool_calls", 2)
        await proxy.access.complete({"messages": [{"role": "user", "content": "again"}]})
    assert [message.content for message in proxy.messages] == ["again", "cut"]
    assert proxy.finish_reason == "length"
    assert proxy.usage.model_dump() == {
        "prompt_tokens": 10,
        "completion_tokens": 4,
        "total_tokens": 14,
    }


async def test_tool_messages_are_kept():
    history = [
        *LINE["messages"],
        {"role": "assistant", "content": None, "tool_calls": [tool_call(id="c9")]},
        {"role": "tool", "content": [{"type": "text", "text": "22"}], "tool_call_id": "c9"},
    ]
    async with running() as run:
        proxy = run.proxy()
        await proxy.async_rollout_client().chat.completions.create(model="m", messages=history)
    assert run.sent == [history]
    tool_message = proxy.messages[2]
    assert (tool_message.role, tool_message.tool_call_id) == ("tool", "c9")
    assert proxy.messages[1].tool_calls[0].function.name == "get_weather"


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("is_wrapped", [False, True])
async def test_a_raw_answer_is_a_chat_completion(library, is_wrapped):
    pytest.importorskip(library)
    if library == "openai":
        from openai.types.chat import ChatCompletion
    else:
        from volcenginesdkarkruntime.types.chat import ChatCompletion
    async with running([ASSISTANT_CALL]) as run:
        proxy = run.proxy()
        client = raw_client(library, proxy)
        if is_wrapped:
            wrap_client_inplace(client, proxy)
        completion = await asyncio.to_thread(
            client.chat.completions.create, model="m", messages=LINE["messages"]
        )
        client.close()
    assert isinstance(completion, ChatCompletion)
    assert ChatCompletionResponse(**completion.model_dump()).choices[0].finish_reason


@pytest.mark.parametrize("library", LIBRARIES)
async def test_messages_are_accepted_as_the_client_dumps_them(library):
    reasoning = answer("22", finish_reason="stop")
    reasoning["choices"][0]["message"]["reasoning_content"] = "let me see"
    async with running([ASSISTANT_CALL, reasoning, "bye"]) as run:
        proxy = run.proxy()
        client = raw_client(library, proxy, is_async=True)
        wrap_async_client_inplace(client, proxy)
        messages = list(LINE["messages"])
        for _ in range(3):
            completion = await client.chat.completions.create(model="m", messages=messages)
            dumped = completion.choices[0].message.model_dump()
            assert ChatCompletionMessage(**dumped).role == "assistant"
            messages.append(dumped)
        await client.close()
    assert run.sent[2][1:] == [
        {"role": "assistant", "content": None, "tool_calls": [tool_call()]},
        {"role": "assistant", "content": "22", "reasoning_content": "let me see"},
    ]
    assert proxy.access.warnings == ()
