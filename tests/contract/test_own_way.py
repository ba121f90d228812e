"""Wrapped clients that keep their own way, over HTTP to the gateway; field case 5.5 on both ways.

A stream, a raw response, and a client with an http_client, retries or timeouts of its own.
"""

import asyncio
import copy
import importlib
import inspect
import threading
import time

import pytest

from arkdev import (
    rollout,
    wrap_async_client_inplace,
    wrap_client_inplace,
    wrap_responses_async_client_inplace,
    wrap_responses_client_inplace,
)
from arkdev.endpoints.endpoint import EndpointCapabilities
from arkdev.errors import (
    ComesLaterError,
    EndpointResponseError,
    PluginError,
    SamplingParameterError,
)
from arkdev.plugin.client_settings import has_settings_of_its_own
from arkdev.plugin.proxy import InferenceProxy
from arkdev.runs.records import Verdict
from arkdev.sessions.identity import AttemptIdentity
from arkdev.sessions.retries import RetryPolicy
from tests.running import LINE, answer, running, tool_call

openai_range = pytest.mark.openai_range
CLIENTS = [
    pytest.param("openai", "OpenAI", marks=openai_range),
    pytest.param("openai", "AsyncOpenAI", marks=openai_range),
    ("volcenginesdkarkruntime", "Ark"),
    ("volcenginesdkarkruntime", "AsyncArk"),
]
each_client = pytest.mark.parametrize(("library", "name"), CLIENTS)
APIS = ["chat", "responses"]
each_api = pytest.mark.parametrize("api", APIS)
BUSY = EndpointResponseError("slow down", status=429, is_transient=True)


def patience(library):
    """A second, counted from when the request is there: a slow start of it is no timeout."""
    own = library if library == "openai" else "httpx"  # openai says itself which httpx it takes
    return importlib.import_module(own).Timeout(60, read=1.0)


class Client:
    """A client of any library behind one face: wrapped, and called from a thread when sync."""

    def __init__(self, library, name, proxy, *, base_url=None, **settings):
        self.is_async = name.startswith("Async")
        client_class = getattr(pytest.importorskip(library), name)
        url = base_url or proxy.url
        self.own = client_class(base_url=url, api_key=proxy.jwt_token, **settings)
        if self.is_async:
            wrap_async_client_inplace(self.own, proxy)
            wrap_responses_async_client_inplace(self.own, proxy)
        else:
            wrap_client_inplace(self.own, proxy)
            wrap_responses_client_inplace(self.own, proxy)

    async def create(self, api="chat", *, is_raw=False, **options):
        """Await an answer; of a stream the list of its events."""
        resource = self.own.responses if api == "responses" else self.own.chat.completions
        if is_raw:
            resource = resource.with_raw_response
        question = (
            {"input": LINE["messages"]} if api == "responses" else {"messages": LINE["messages"]}
        )
        call = {"model": "m", **question, **options}
        if not self.is_async:
            return await asyncio.to_thread(self._in_thread, resource, call)
        result = await resource.create(**call)
        return [event async for event in result] if call.get("stream") else result

    @staticmethod
    def _in_thread(resource, call):
        result = resource.create(**call)
        return list(result) if call.get("stream") else result

    async def close(self):
        closing = self.own.close()
        if self.is_async:
            await closing


def text_of(result, api):
    return (
        result.output[-1].content[0].text
        if api == "responses"
        else (result.choices[0].message.content)
    )


def own_settings(library, name):
    """What a client's author may choose, each enough for the client's own way."""
    base = importlib.import_module(f"{library}._base_client")
    httpx = getattr(base, "httpx2", None) or base.httpx
    kind = "AsyncClient" if name.startswith("Async") else "Client"
    return {
        "http_client": {"http_client": getattr(httpx, kind)()},
        "max_retries": {"max_retries": 5},
        "timeout": {"timeout": 20.0},
    }


@openai_range
def test_a_client_with_default_settings_has_none_of_its_own():
    import openai

    for settings, expected in [({}, False), ({"max_retries": 2}, False), ({"timeout": 30}, True)]:
        client = openai.OpenAI(base_url="http://127.0.0.1:9", api_key="k", **settings)
        assert has_settings_of_its_own(client) is expected
        client.close()


@each_client
@each_api
@pytest.mark.parametrize("setting", ["http_client", "max_retries", "timeout"])
async def test_a_client_with_settings_of_its_own_goes_over_http_and_is_recorded_once(
    library, name, api, setting
):
    pytest.importorskip(library)
    async with running(["hello"]) as run:
        session = run.session(temperature=0.3)
        proxy = run.proxy(session)
        client = Client(library, name, proxy, **own_settings(library, name)[setting])
        result = await client.create(api)
        await client.close()
    assert text_of(result, api) == "hello"
    assert [turn.via for turn in session.turns] == ["wrapped"]
    assert [m.content for m in proxy.messages] == ["how is the weather?", "hello"]
    assert (len(run.requests), session.warnings) == (1, ())
    assert run.requests[0].sampling == {"temperature": 0.3}


@each_client
async def test_a_chat_stream_is_the_client_s_own_and_is_recorded_once(library, name):
    call = tool_call("get_weather", '{"location": "北京"}', id="c1")
    async with running([answer("今天", tool_calls=[call])]) as run:
        session = run.session()
        client = Client(library, name, run.proxy(session))
        chunks = await client.create(stream=True)
        await client.close()
    assert {type(chunk).__name__ for chunk in chunks} == {"ChatCompletionChunk"}
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert "".join(delta.content or "" for delta in deltas) == "今天"
    (named,) = [c for d in deltas for c in d.tool_calls or [] if c.id]
    assert named.function.name == "get_weather"
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    assert [(turn.via, turn.tool_calls) for turn in session.turns] == [
        ("wrapped", ("get_weather",))
    ]
    assert (len(run.requests), session.warnings) == (1, ())


@each_client
async def test_a_responses_stream_ends_with_a_response_to_continue_from(library, name):
    async with running(["one", "two"]) as run:
        session = run.session()
        client = Client(library, name, run.proxy(session))
        events = await client.create("responses", stream=True)
        last = events[-1]
        second = await client.create("responses", previous_response_id=last.response.id)
        await client.close()
    assert (events[0].type, last.type) == ("response.created", "response.completed")
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == last.response.output[-1].content[0].text == "one"
    assert text_of(second, "responses") == "two"
    assert [m.content for m in session.conversation.messages][1::2] == ["one", "two"]
    assert [turn.via for turn in session.turns] == ["wrapped", "wrapped"]


@each_client
@each_api
async def test_a_raw_response_has_headers_and_is_recorded_once(library, name, api):
    async with running(["hello"]) as run:
        session = run.session()
        client = Client(library, name, run.proxy(session))
        if api == "responses" and not hasattr(client.own.responses, "with_raw_response"):
            pytest.skip(f"{name}.responses has no with_raw_response")
        raw = await client.create(api, is_raw=True)
        await client.close()
    parsed = raw.parse()
    result = await parsed if inspect.isawaitable(parsed) else parsed
    assert raw.headers["content-type"].startswith("application/json")
    assert text_of(result, api) == "hello"
    assert [turn.via for turn in session.turns] == ["wrapped"]
    assert session.warnings == ()


@each_client
@pytest.mark.parametrize("way", ["stream", "raw", "retries", "with_options", "own key"])
async def test_a_client_that_concurrent_rollouts_share_carries_each_one_s_own_key(
    library, name, way
):
    settings = {"max_retries": 0} if way in ("retries", "own key") else {}
    options = {"stream": way == "stream", "is_raw": way == "raw"}
    if way == "own key":
        options["extra_headers"] = {"authorization": "Bearer of-somebody-else"}
    async with running(lambda request: request.body["messages"][0]["content"]) as run:
        sessions = [run.session(AttemptIdentity(index, 0, 0)) for index in range(4)]
        shared = Client(library, name, run.proxy(sessions[0]), **settings)
        if way == "with_options" and not hasattr(shared.own, way):
            pytest.skip(f"{name} has no with_options")

        async def ask(index, client):
            proxy = run.proxy(sessions[index])
            wrap = wrap_async_client_inplace if client.is_async else wrap_client_inplace
            wrap(client.own, proxy)
            if way == "with_options":
                client = copy.copy(client)
                client.own = client.own.with_options(max_retries=0)
            await asyncio.sleep(0.01)
            question = [{"role": "user", "content": f"of {index}"}]
            await client.create(messages=question, **options)

        await asyncio.gather(*(ask(index, shared) for index in range(4)))
        await shared.close()
    for index, session in enumerate(sessions):
        own = [message.content for message in session.conversation.messages]
        assert own == [f"of {index}"] * 2
        assert [turn.via for turn in session.turns] == ["wrapped"]


@each_client
@each_api
async def test_a_client_that_points_elsewhere_is_a_clear_error(library, name, api):
    async with running() as run:
        proxy = run.proxy()
        url = "http://127.0.0.1:9/api/v3"
        client = Client(library, name, proxy, base_url=url, max_retries=0)
        with pytest.raises(PluginError, match=f"base_url is {url}, not this rollout's") as error:
            await client.create(api)
        await client.close()
    assert "base_url=proxy.url" in error.value.hint
    assert run.requests == []


@openai_range
async def test_a_call_of_its_own_way_is_checked_as_any_other():
    async with running() as run:
        proxy = run.proxy()
        client = Client("openai", "AsyncOpenAI", proxy, max_retries=0)
        with pytest.raises(SamplingParameterError):
            await client.create(temperature=0.1)
        with pytest.raises(PluginError, match="no response 'nope'"):
            await client.create("responses", previous_response_id="nope", stream=True)
        await client.close()
    assert run.requests == []


class Hanging:
    """An endpoint that never answers; it knows which calls were given up."""

    name = model = "fake"
    capabilities = EndpointCapabilities()

    def __init__(self):
        self.num_asked = 0
        self._given_up = threading.Semaphore(0)

    async def complete(self, request):
        self.num_asked += 1
        try:
            await asyncio.sleep(300)
        except asyncio.CancelledError:
            self._given_up.release()
            raise

    async def gave_up(self):
        """Wait for one more call to be given up."""
        return await asyncio.to_thread(self._given_up.acquire, timeout=60)


@each_client
@each_api
async def test_a_client_that_times_out_and_hangs_up_leaves_no_turn(library, name, api):
    errors = importlib.import_module(f"{pytest.importorskip(library).__name__}._exceptions")
    timeout_error = getattr(errors, {"openai": ""}.get(library, "Ark") + "APITimeoutError")
    async with running() as run:
        run.services.endpoint = endpoint = Hanging()
        session = run.session()
        client = Client(library, name, run.proxy(session), timeout=patience(library), max_retries=0)
        with pytest.raises(timeout_error):
            await client.create(api)
        assert await endpoint.gave_up()
        await client.close()
    assert (endpoint.num_asked, session.turns, len(session.responses)) == (1, (), 0)
    assert session.conversation.messages == []


@openai_range
async def test_a_client_that_sends_again_by_itself_is_named_in_the_report():
    import openai

    async with running() as run:
        run.services.endpoint = endpoint = Hanging()
        session = run.session()
        settings = {"timeout": patience("openai"), "max_retries": 1}
        client = Client("openai", "AsyncOpenAI", run.proxy(session), **settings)
        with pytest.raises(openai.APITimeoutError):
            await client.create()
        assert await endpoint.gave_up()
        assert await endpoint.gave_up()
        await client.close()
    assert session.warnings == ("client_retried",)


@each_client
@each_api
@pytest.mark.parametrize("way", ["direct", "own"])
async def test_an_endpoint_that_is_always_busy_gets_three_requests_for_a_call(
    library, name, api, way
):
    errors = importlib.import_module(f"{pytest.importorskip(library).__name__}._exceptions")
    rate_limit_error = getattr(errors, {"openai": ""}.get(library, "Ark") + "RateLimitError")
    settings = {} if way == "direct" else {"max_retries": 5}
    started = time.perf_counter()
    async with running([BUSY], retries=RetryPolicy(max_retries=2, first_wait_s=0.001)) as run:
        session = run.session()
        client = Client(library, name, run.proxy(session), **settings)
        with pytest.raises(rate_limit_error):
            await client.create(api)
        await client.close()
    assert (len(run.requests), session.num_retries, session.turns) == (3, 2, ())
    assert time.perf_counter() - started < 10  # a client's own waits would be longer


@openai_range
@pytest.mark.parametrize("way", ["direct", "own"])
async def test_retries_that_did_not_help_are_on_the_attempt(way):
    @rollout
    async def asking(context, proxy, sample):
        settings = {} if way == "direct" else {"max_retries": 5}
        client = Client("openai", "AsyncOpenAI", proxy, **settings)
        try:
            await client.create()
        finally:
            await client.close()

    async with running([BUSY]) as run:
        record = (await run.rollout(asking)).record
    assert record.verdict is Verdict.FAILURE
    assert [attempt.num_model_call_retries for attempt in record.attempts] == [2, 2, 2, 2]
    assert (len(run.requests), record.turns) == (12, ())


@openai_range
def test_a_stand_alone_proxy_says_that_it_cannot_record_a_stream():
    import openai

    proxy = InferenceProxy(LINE, url="http://127.0.0.1:9", jwt_token="k")
    client = openai.OpenAI(base_url=proxy.url, api_key="k")
    wrap_client_inplace(client, proxy)
    with pytest.raises(ComesLaterError, match="cannot record a streamed answer"):
        client.chat.completions.create(model="m", messages=LINE["messages"], stream=True)
    client.close()
