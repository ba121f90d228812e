"""SURFACE PROXY-20..29, ROLL-38, ROLL-39, X-14, X-33; field case 10.4: wrapped clients."""

import asyncio
import contextlib
import contextvars
import functools
import gc
import threading
import weakref
from types import SimpleNamespace

import pytest

from arkdev import (
    InferenceProxy,
    rollout,
    wrap_async_client_inplace,
    wrap_client_inplace,
    wrap_inplace_trace,
)
from arkdev.errors import LateCallError, PluginError, SamplingParameterError
from arkdev.observe.tracing import observe
from arkdev.plugin.calls import REFUSED_PARAMETERS
from arkdev.types import ChatCompletionResponse
from tests.running import LINE, WEATHER_TOOL, answer, running, tool_call

openai_range = pytest.mark.openai_range
QUESTION = {"model": "m", "messages": LINE["messages"]}
NOWHERE = {"base_url": "http://127.0.0.1:9/api/v3", "api_key": "k"}
CLIENTS = [
    pytest.param("openai", "OpenAI", marks=openai_range),
    pytest.param("openai", "AsyncOpenAI", marks=openai_range),
    ("volcenginesdkarkruntime", "Ark"),
    ("volcenginesdkarkruntime", "AsyncArk"),
]


def new_client(library, name):
    return getattr(pytest.importorskip(library), name)(**NOWHERE)


async def ask(client, **options):
    """One call, whatever the sort of client."""
    create = client.chat.completions.create
    if type(client).__name__.startswith("Async"):
        return await create(**{**QUESTION, **options})
    return await asyncio.to_thread(create, **{**QUESTION, **options})


def wrap(client, proxy):
    is_async = type(client).__name__.startswith("Async")
    return (wrap_async_client_inplace if is_async else wrap_client_inplace)(client, proxy=proxy)


@openai_range
async def test_the_model_argument_counts_in_tests():
    import openai

    async with running() as run:
        proxy = run.proxy()
        await ask(proxy.async_rollout_client(), model="wrapped-model")
        async with openai.AsyncOpenAI(base_url=proxy.url, api_key=proxy.jwt_token) as raw:
            await ask(raw, model="raw-model")
    assert [request.body["model"] for request in run.requests] == ["wrapped-model", "raw-model"]


@openai_range
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("name", REFUSED_PARAMETERS)
async def test_sampling_parameters_are_refused_with_advice(name, is_async):
    async with running() as run:
        proxy = run.proxy()
        client = proxy.async_rollout_client() if is_async else proxy.rollout_client()
        for options in ({name: 1}, {"extra_body": {name: 1}}):
            with pytest.raises(SamplingParameterError, match=f"{name} cannot be set") as error:
                await ask(client, **options)
            assert "the job's hyperparameters" in error.value.hint
            if is_async:  # the other one is called by a thread that has no frame of ours
                assert "test_wrapping.py:" in error.value.where
    assert run.requests == []


@openai_range
async def test_parameters_that_are_not_sampling_pass():
    import openai

    options = {
        "tools": [WEATHER_TOOL],
        "tool_choice": "auto",
        "response_format": {"type": "json_object"},
        "extra_body": {"vendor": 1, "temperature": None},
    }
    unset = {"temperature": None, "top_p": getattr(openai, "omit", openai.NOT_GIVEN)}
    ignored = {"timeout": 5, "extra_headers": {"x": "1"}, "stream": False}
    async with running() as run:
        await ask(run.proxy().async_rollout_client(), **options, **unset, **ignored)
    body = run.requests[0].body
    assert body == {
        "model": "m",
        "messages": LINE["messages"],
        "tools": [WEATHER_TOOL],
        "tool_choice": "auto",
        "response_format": {"type": "json_object"},
        "vendor": 1,
    }


@pytest.mark.parametrize(("library", "name"), CLIENTS)
async def test_a_client_of_one_s_own_is_left_alone(library, name):
    judge, wrapped = new_client(library, name), new_client(library, name)
    before = judge.chat.completions.create
    async with running() as run:
        wrap(wrapped, run.proxy())
    assert judge.chat.completions.create == before
    assert not hasattr(judge.chat.completions.create, "tracked")


@pytest.mark.parametrize(("library", "name"), CLIENTS)
async def test_every_kind_of_client_is_wrapped_in_place(library, name):
    client = new_client(library, name)
    async with running(["hello"]) as run:
        proxy = run.proxy(run.session(temperature=0.3))
        assert wrap(client, proxy) is client
        completion = await ask(client)
    assert completion.choices[0].message.content == "hello"
    assert run.requests[0].sampling == {"temperature": 0.3}
    assert [(turn.via, turn.num_retries) for turn in proxy.access.turns] == [("wrapped", 0)]


@pytest.mark.parametrize(("library", "name"), CLIENTS)
async def test_an_answer_reads_as_the_client_s_own_type(library, name):
    pytest.importorskip(library)
    if library == "openai":
        from openai.types.chat import ChatCompletion
    else:
        from volcenginesdkarkruntime.types.chat import ChatCompletion
    call = tool_call("get_weather", '{"location": "北京"}', id="c1")
    async with running([answer(None, tool_calls=[call])]) as run:
        client = wrap(new_client(library, name), run.proxy())
        completion = await ask(client, tools=[WEATHER_TOOL])
    assert isinstance(completion, ChatCompletion)
    choice = completion.choices[0]
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    (read,) = choice.message.tool_calls
    assert (read.id, read.function.name, read.function.arguments) == (
        "c1",
        "get_weather",
        '{"location": "北京"}',
    )
    assert choice.message.model_dump()["role"] == "assistant"
    assert completion.usage.total_tokens == 7


ODD_ANSWERS = {
    "no id": answer("odd", id=...),
    "no usage": answer("odd", usage=...),
    "null usage": answer("odd", usage=None),
    "no model, created or object": answer("odd", model=..., created=..., object=...),
    "an unknown finish reason": answer("odd", finish_reason="eos"),
}


@pytest.mark.parametrize(("library", "name"), CLIENTS)
@pytest.mark.parametrize("odd", ODD_ANSWERS)
async def test_an_answer_of_odd_shape_is_read_as_well_as_it_can_be(library, name, odd):
    async with running([ODD_ANSWERS[odd]]) as run:
        completion = await ask(wrap(new_client(library, name), run.proxy()))
    assert completion.choices[0].message.content == "odd"
    assert completion.choices[0].message.model_dump()["content"] == "odd"


@openai_range
async def test_content_parts_are_kept_as_they_are():
    parts = [{"type": "text", "text": "odd"}]
    async with running([answer(parts)]) as run:
        proxy = run.proxy()
        completion = await ask(proxy.async_rollout_client())
    assert completion.choices[0].message.content == parts
    assert proxy.messages[-1].content == parts


class ContextLike:
    """As arkitect's Context: chat.completions is what its own loop calls; it keeps messages."""

    def __init__(self):
        self.state = SimpleNamespace(messages=[])
        self.chat = SimpleNamespace(completions=SimpleNamespace(create=self._never))
        self.completions = SimpleNamespace(create=self._create)
        self.tool_pool = self

    async def _never(self, **_kwargs):
        raise AssertionError("the client's own create was called")

    async def list_tools(self):
        return [ChatCompletionResponse(choices=[], type="function", function={"name": "search"})]

    async def _create(self, messages, stream=True):
        self.state.messages.extend(messages)
        while True:
            completion = await self.chat.completions.create(
                model="m", messages=self.state.messages, stream=stream, tool_pool=self.tool_pool
            )
            if not self.state.messages[-1].get("tool_calls"):
                return completion
            self.state.messages.append(
                {"role": "tool", "content": "found", "tool_call_id": "call_1"}
            )


async def test_a_context_like_object_is_wrapped():
    context = ContextLike()
    async with running([answer(None, tool_calls=[tool_call("search")]), "done"]) as run:
        proxy = run.proxy()
        assert wrap_async_client_inplace(context, proxy=proxy) is context
        completion = await context.completions.create(LINE["messages"], stream=False)
    assert completion.choices[0].message.content == "done"
    roles = [message["role"] for message in context.state.messages]
    assert roles == ["user", "assistant", "tool", "assistant"]
    assert [message.role for message in proxy.messages] == roles
    assert run.requests[0].body["tools"][0]["function"] == {"name": "search"}


async def test_what_is_no_client_is_refused():
    async with running() as run:
        with pytest.raises(PluginError, match="SimpleNamespace has no chat"):
            wrap_client_inplace(SimpleNamespace(), run.proxy())


@pytest.mark.parametrize(("library", "name"), CLIENTS)
async def test_the_wrong_wrapper_for_a_client_is_refused(library, name):
    client = new_client(library, name)
    wrong = wrap_client_inplace if name.startswith("Async") else wrap_async_client_inplace
    async with running() as run:
        with pytest.raises(PluginError, match=f"given an? a?synchronous client, {name}") as refused:
            wrong(client, run.proxy())
    assert not hasattr(client.chat.completions.create, "tracked")
    assert "test_wrapping.py:" in refused.value.where


@pytest.mark.parametrize(("library", "name"), CLIENTS)
async def test_wrapping_twice_records_each_call_once(library, name):
    client = new_client(library, name)
    async with running() as run:
        proxy = run.proxy()
        wrap_inplace_trace(client)
        wrap(wrap(client, proxy), proxy)
        wrap_inplace_trace(client)
        await ask(client)
    assert (len(run.requests), len(proxy.access.turns), len(proxy.messages)) == (1, 1, 2)


@openai_range
@pytest.mark.parametrize("traced", ["before", "after"])
@pytest.mark.parametrize("is_async", [False, True])
async def test_one_client_wrapped_by_many_rollouts_never_mixes_their_turns(is_async, traced):
    import openai

    shared = openai.AsyncOpenAI(**NOWHERE) if is_async else openai.OpenAI(**NOWHERE)
    barrier = threading.Barrier(8)

    def begin(proxy):
        if traced == "before":
            wrap_inplace_trace(shared)
        wrap(shared, proxy)
        if traced == "after":
            wrap_inplace_trace(shared)

    def own_question(sample, turn):
        return {"model": "m", "messages": [{"role": "user", "content": f"{sample.extra}/{turn}"}]}

    @rollout
    @observe()
    async def asynchronous(context, proxy, sample):
        begin(proxy)
        await asyncio.sleep(0.001)
        for turn in range(3):
            await shared.chat.completions.create(**own_question(sample, turn))

    @rollout
    @observe()
    def synchronous(context, proxy, sample):
        begin(proxy)
        barrier.wait(timeout=300)
        for turn in range(3):
            shared.chat.completions.create(**own_question(sample, turn))

    lines = [{**LINE, "extra": {"sample": index}} for index in range(8)]
    async with running(lambda request: request.body["messages"][0]["content"]) as run:
        plugin = asynchronous if is_async else synchronous
        await run.samples(plugin, lines=lines, concurrency=8)
    for finished in run.finished:
        own = f"{{'sample': {finished.record.sample_index}}}/2"
        assert [message["content"] for message in finished.record.messages] == [own, own]
        assert len(finished.record.turns) == 3


@openai_range
async def test_a_call_from_a_thread_that_belongs_to_no_rollout_is_a_clear_error():
    import openai

    shared = openai.OpenAI(**NOWHERE)
    errors = []

    def call():
        try:
            shared.chat.completions.create(**QUESTION)
        except PluginError as error:
            errors.append(error)

    async with running() as run:
        proxies = [run.proxy(), run.proxy()]
        for proxy in proxies:
            wrap_client_inplace(shared, proxy)
        thread = threading.Thread(target=call)
        thread.start()
        await asyncio.to_thread(thread.join)
    assert "wrapped for 2 rollouts" in str(errors[0])
    assert "rollout_client()" in errors[0].hint


@openai_range
@openai_range
async def test_a_client_that_is_reused_by_other_rollouts_never_records_for_the_first():
    kept = []

    @rollout
    async def reuses(context, proxy, sample):
        if not kept:
            kept.append(proxy)  # keeps it alive
            kept.append(proxy.async_rollout_client())
        await ask(kept[1])

    async with running() as run:
        finished = [await run.rollout(reuses, index=index) for index in range(2)]
    first, second = (rollout.record for rollout in finished)
    assert (first.verdict.value, len(first.turns)) == ("success", 1)
    assert (second.verdict.value, len(second.turns)) == ("failure", 0)
    assert "a call from 1.0 went to a client that it has not wrapped" in second.attempts[0].error
    assert f"{__file__}:" in second.attempts[0].where


@openai_range
async def test_a_client_wrapped_in_another_task_of_the_rollout_is_its_own():
    client = new_client("openai", "AsyncOpenAI")

    @rollout
    async def wraps_aside(context, proxy, sample):
        async def aside():
            wrap(client, proxy)

        await asyncio.gather(aside())
        await ask(client)

    async with running() as run:
        finished = await asyncio.gather(*(run.rollout(wraps_aside, index=i) for i in range(3)))
    assert [len(rollout.record.turns) for rollout in finished] == [1, 1, 1]


@openai_range
def test_a_client_whose_rollout_is_over_says_so():
    client = new_client("openai", "OpenAI")
    contextvars.copy_context().run(lambda: wrap(client, InferenceProxy(LINE, url="http://x")))
    gc.collect()
    with pytest.raises(PluginError, match="the rollout that this client was wrapped for is over"):
        client.chat.completions.create(**QUESTION)


async def test_a_rollout_s_own_thread_may_use_its_only_client():
    done = []
    async with running(["from a thread"]) as run:
        proxy = run.proxy()
        client = proxy.rollout_client()
        thread = threading.Thread(
            target=lambda: done.append(client.chat.completions.create(**QUESTION))
        )
        thread.start()
        await asyncio.to_thread(thread.join)
    assert done[0].choices[0].message.content == "from a thread"


@pytest.mark.parametrize(("library", "name"), CLIENTS)
async def test_a_call_after_the_end_of_the_attempt_is_refused(library, name):
    client = new_client(library, name)
    async with running() as run:
        session = run.session()
        wrap(client, run.proxy(session))
        await ask(client)
        run.gateway.close(session)
        with pytest.raises(LateCallError, match="came after the end"):
            await ask(client)
    assert (len(session.turns), len(run.requests)) == (1, 1)


@openai_range
async def test_a_wrapped_client_keeps_no_finished_rollout_alive():
    import openai

    shared = openai.AsyncOpenAI(**NOWHERE)
    proxies = []

    @rollout
    async def module_level(context, proxy, sample):
        proxies.append(weakref.ref(proxy))
        wrap_async_client_inplace(shared, proxy)
        await shared.chat.completions.create(**QUESTION)

    async with running() as run:
        await run.samples(module_level, lines=[LINE] * 5)
        gc.collect()
        assert [proxy() for proxy in proxies] == [None] * 5


def test_a_stand_alone_proxy_can_be_wrapped_as_well():
    seen = []

    def create(**kwargs):
        seen.append(kwargs)
        return ChatCompletionResponse(**answer("own"))

    client = SimpleNamespace(chat=SimpleNamespace(completions=SimpleNamespace(create=create)))
    proxy = InferenceProxy({**LINE, "temperature": 0.5})
    wrap_client_inplace(client, proxy)
    completion = client.chat.completions.create(**QUESTION, extra_body={"vendor": 1})
    assert completion.choices[0].message.content == proxy.messages[-1].content == "own"
    assert seen == [{**QUESTION, "extra_body": {"temperature": 0.5, "vendor": 1}}]


@openai_range
async def test_a_create_without_model_or_messages_is_the_error_that_the_client_would_raise():
    async with running() as run:
        client = run.proxy().async_rollout_client()
        with pytest.raises(TypeError, match="missing the arguments model"):
            await client.chat.completions.create(messages=LINE["messages"])
        with pytest.raises(TypeError, match="missing the arguments messages"):
            await client.chat.completions.create(model="m")
    assert run.requests == []


async def test_a_refused_call_that_the_rollout_hides_is_told():
    @rollout
    async def hides(context, proxy, sample):
        with contextlib.suppress(Exception):
            await ask(proxy.async_rollout_client(), max_tokens=5)

    async with running() as run:
        record = (await run.rollout(hides)).record
    assert record.verdict == "success"
    told = [warning for warning in record.warnings if warning.startswith("exception_swallowed")]
    assert "max_tokens cannot be set" in told[0]


async def test_a_call_of_a_thread_that_knows_no_rollout_is_counted():
    @rollout
    async def asks_from_a_pool(context, proxy, sample):
        create = proxy.rollout_client().chat.completions.create
        call = functools.partial(create, model="m", messages=LINE["messages"])
        await asyncio.get_running_loop().run_in_executor(None, call)

    async with running() as run:
        record = (await run.rollout(asks_from_a_pool)).record
    assert record.verdict == "success"
    assert "call_from_unknown_thread" in record.warnings
