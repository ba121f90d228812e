"""Every library, sync and async: its calls pass the rules and behave as the real thing."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

import aiohttp
import httpx
import httpx2
import openai
import pytest
import requests
import urllib3

from arkdev.errors import ArkdevError
from arkdev.plugin.traffic.exchange import HttpFailure, HttpRequest, HttpResponse
from arkdev.plugin.traffic.patches import traffic_through
from tests.unit.plugin.traffic.service import Rule, Service, attempted, json_response, serving


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with serving() as running:
        yield running


@pytest.fixture(autouse=True)
def _nothing_seen(service: Service) -> None:
    service.seen.clear()
    service.may_end.clear()


@dataclass(frozen=True)
class Got:
    status: int
    headers: dict[str, str]
    json: Any
    text: str
    url: str
    cookies: dict[str, str]


@dataclass(frozen=True)
class Library:
    name: str
    post: Callable[[str], Awaitable[Got]]
    """POST {"q": 1} to a URL and read the answer."""
    timeout: type[Exception]
    unreachable: type[Exception]
    broken: type[Exception]
    bad_status: type[Exception]


def _got(response: Any) -> Got:
    response.raise_for_status()
    return Got(
        response.status_code,
        {name.lower(): value for name, value in response.headers.items()},
        response.json(),
        response.text,
        str(response.url),
        dict(response.cookies),
    )


def _sync_httpx(module: Any) -> Callable[[str], Awaitable[Got]]:
    async def post(url: str) -> Got:
        with module.Client(timeout=5, follow_redirects=True) as client:
            response = client.post(url, json={"q": 1})
            assert response.elapsed.total_seconds() >= 0
            return replace(_got(response), cookies=dict(client.cookies))

    return post


def _async_httpx(module: Any) -> Callable[[str], Awaitable[Got]]:
    async def post(url: str) -> Got:
        async with module.AsyncClient(timeout=5, follow_redirects=True) as client:
            response = await client.post(url, json={"q": 1})
            assert response.elapsed.total_seconds() >= 0
            return replace(_got(response), cookies=dict(client.cookies))

    return post


async def _aiohttp(url: str) -> Got:
    jar = aiohttp.CookieJar(unsafe=True)
    async with (
        aiohttp.ClientSession(cookie_jar=jar) as session,
        session.post(url, json={"q": 1}) as response,
    ):
        response.raise_for_status()
        return Got(
            response.status,
            {name.lower(): value for name, value in response.headers.items()},
            await response.json(),
            await response.text(),
            str(response.url),
            {cookie.key: cookie.value for cookie in jar},
        )


async def _requests(url: str) -> Got:
    with requests.Session() as session:
        response = session.post(url, json={"q": 1}, timeout=5)
        assert response.elapsed.total_seconds() >= 0
        return replace(_got(response), cookies=dict(session.cookies))


async def _urllib3(url: str) -> Got:
    with urllib3.PoolManager() as pool:
        response = pool.request("POST", url, json={"q": 1}, timeout=5, retries=urllib3.Retry(1))
        if response.status >= 400:
            raise _BadStatus(response.status)
        return Got(
            response.status,
            {name.lower(): value for name, value in response.headers.items()},
            response.json(),
            response.data.decode(),
            url,
            dict(each.split("=") for each in response.headers.getlist("set-cookie")),
        )


class _BadStatus(Exception):
    """urllib3 has none."""


LIBRARIES = [
    *(
        Library(
            f"{module.__name__}, {kind}",
            make(module),
            module.ReadTimeout,
            module.ConnectError,
            module.RemoteProtocolError,
            module.HTTPStatusError,
        )
        for module in (httpx, httpx2)
        for kind, make in (("sync", _sync_httpx), ("async", _async_httpx))
    ),
    Library(
        "aiohttp",
        _aiohttp,
        aiohttp.ServerTimeoutError,
        aiohttp.ClientConnectorError,
        aiohttp.ClientPayloadError,
        aiohttp.ClientResponseError,
    ),
    Library(
        "requests",
        _requests,
        requests.exceptions.ReadTimeout,
        requests.exceptions.ConnectionError,
        requests.exceptions.ChunkedEncodingError,
        requests.exceptions.HTTPError,
    ),
    Library(
        "urllib3",
        _urllib3,
        urllib3.exceptions.MaxRetryError,
        urllib3.exceptions.MaxRetryError,
        urllib3.exceptions.ProtocolError,
        _BadStatus,
    ),
]
every_library = pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.name)


@every_library
async def test_a_call_that_is_let_through_is_what_it_was(
    library: Library, service: Service
) -> None:
    plain = await library.post(f"{service.url}/ok?x=1")
    rule = Rule()
    with traffic_through([rule]), attempted():
        got = await library.post(f"{service.url}/ok?x=1")

    assert replace(got, headers={}) == replace(plain, headers={})
    assert got.headers.keys() == plain.headers.keys()
    assert got.cookies == {"a": "1", "b": "2"}
    assert service.seen[0] == service.seen[1]
    (request,) = rule.requests
    assert (request.library, request.method) == (library.name.partition(",")[0], "POST")
    assert request.url == f"{service.url}/ok?x=1"
    assert request.host == service.url.removeprefix("http://")
    assert request.headers["content-type"].startswith("application/json")
    assert request.body == service.seen[0][2]
    ((seen, outcome, duration_s),) = rule.ended
    assert seen is request
    assert isinstance(outcome, HttpResponse)
    assert (outcome.status, outcome.body) == (200, b'{"city": "Oslo"}')
    assert outcome.headers["set-cookie"] == "a=1\nb=2"
    assert 0 < duration_s < 5


@every_library
async def test_an_answer_is_a_real_response(library: Library, service: Service) -> None:
    answer = json_response(200, {"city": "Bergen"}, **{"set-cookie": "c=3\nd=4", "x-a": "b"})
    rule = Rule(reply=lambda _: answer)
    with traffic_through([rule]), attempted():
        got = await library.post(f"{service.url}/ok")

    assert service.seen == []
    assert got.json == {"city": "Bergen"}
    assert got.text == '{"city": "Bergen"}'
    assert got.headers["x-a"] == "b"
    assert got.cookies == {"c": "3", "d": "4"}
    assert got.url == f"{service.url}/ok"
    assert rule.outcomes == [answer]


@every_library
async def test_a_status_raises_the_librarys_own_error(library: Library, service: Service) -> None:
    rule = Rule(reply=lambda _: json_response(503, {}))
    with traffic_through([rule]), attempted(), pytest.raises(library.bad_status, match="503"):
        await library.post(f"{service.url}/ok")


@every_library
@pytest.mark.parametrize("kind", ["timeout", "unreachable", "raise"])
async def test_a_failure_is_the_librarys_own_error(
    library: Library, kind: str, service: Service
) -> None:
    failure = HttpFailure(kind, "as the rule wants it", is_injected=True)
    expected = {"timeout": library.timeout, "unreachable": library.unreachable}
    rule = Rule(reply=lambda _: failure)
    with traffic_through([rule]), attempted(), pytest.raises(Exception) as caught:
        await library.post(f"{service.url}/ok")

    assert type(caught.value) is expected.get(kind, library.broken) or (
        isinstance(caught.value, library.timeout) and kind == "timeout"
    )
    assert "as the rule wants it" in str(caught.value)
    if library.name not in ("aiohttp", "urllib3"):  # which do not keep it
        assert caught.value.request.method == "POST"  # type: ignore[attr-defined]
    assert rule.outcomes == [failure]
    assert service.seen == []


@every_library
async def test_a_response_can_be_changed(library: Library, service: Service) -> None:
    rule = Rule(change=lambda response: replace(response, body=b'{"city": "Rome"}'))
    with traffic_through([rule]), attempted():
        got = await library.post(f"{service.url}/gzip")

    assert got.json == {"city": "Rome"}
    assert len(service.seen) == 1
    assert rule.outcomes[0].body == b'{"city": "Rome"}'  # type: ignore[union-attr]


@every_library
async def test_the_body_is_seen_decoded_and_given_as_it_came(
    library: Library, service: Service
) -> None:
    rule = Rule()
    with traffic_through([rule]), attempted():
        got = await library.post(f"{service.url}/gzip")

    assert rule.outcomes[0].body == b'{"city": "Oslo"}'  # type: ignore[union-attr]
    assert got.json == {"city": "Oslo"}
    assert got.headers["content-encoding"] == "gzip"


@every_library
async def test_a_call_is_held_back_and_that_time_is_not_the_services(
    library: Library, service: Service
) -> None:
    def hold(_: object) -> Future[None]:
        future: Future[None] = Future()
        threading.Timer(
            0.2, lambda: (held.append(len(service.seen)), future.set_result(None))
        ).start()
        return future

    held: list[int] = []
    rule = Rule(hold=hold)
    started = time.perf_counter()
    with traffic_through([rule]), attempted():
        await library.post(f"{service.url}/ok")

    assert held == [0]
    assert time.perf_counter() - started - rule.ended[0][2] >= 0.2


@every_library
async def test_real_failures_are_told_and_stay_the_same_error(
    library: Library, service: Service
) -> None:
    rule = Rule()
    with traffic_through([rule]), attempted():
        with pytest.raises(library.unreachable):
            await library.post("http://127.0.0.1:9/ok")
        with pytest.raises((library.broken, aiohttp.ClientPayloadError)):
            await library.post(f"{service.url}/cut")

    assert [getattr(outcome, "kind", outcome) for outcome in rule.outcomes] == [
        "unreachable",
        "raise",
    ]


@every_library
async def test_each_request_of_a_redirect_is_one(library: Library, service: Service) -> None:
    rule = Rule()
    with traffic_through([rule]), attempted():
        got = await library.post(f"{service.url}/moved")

    assert [request.url for request in rule.requests] == [
        f"{service.url}/moved",
        f"{service.url}/ok",
    ]
    assert [outcome.status for outcome in rule.outcomes] == [302, 200]  # type: ignore[union-attr]
    assert got.json == {"city": "Oslo"}


@every_library
async def test_calls_outside_an_attempt_and_arkdevs_own_pass_no_rule(
    library: Library, service: Service
) -> None:
    rule = Rule(reply=lambda _: HttpFailure("timeout", "no"))
    with traffic_through([rule], own_urls=[f"{service.url}/ok"]):
        await library.post(f"{service.url}/status/200")
        with attempted():
            await library.post(f"{service.url}/ok?x")
            with pytest.raises(library.timeout):
                await library.post(f"{service.url}/okay")
    with attempted():
        await library.post(f"{service.url}/status/200")

    assert [request.url for request in rule.requests] == [f"{service.url}/okay"]


def test_nothing_is_patched_without_rules_and_all_is_restored(service: Service) -> None:
    def places() -> list[object]:
        return [
            httpx.Client._transport_for_url,
            httpx2.AsyncClient._transport_for_url,
            aiohttp.ClientSession._request,
            requests.adapters.HTTPAdapter.send,
            urllib3.HTTPSConnectionPool.urlopen,
            *sys.meta_path,
        ]

    before = places()
    with traffic_through([]):
        assert places() == before
    with pytest.raises(RuntimeError), traffic_through([Rule()]):
        assert places()[0] is not before[0]
        raise RuntimeError
    assert places() == before


@every_library
async def test_rules_that_are_set_up_apart_are_all_passed(
    library: Library, service: Service
) -> None:
    outer, inner = Rule(), Rule()
    with traffic_through([outer]), traffic_through([inner]), attempted():
        assert (await library.post(f"{service.url}/ok")).json == {"city": "Oslo"}
    assert [len(rule.ended) for rule in (outer, inner)] == [1, 1]
    assert len(service.seen) == 1


def _events_of_httpx(module: Any, url: str) -> Iterator[str]:
    with module.Client(timeout=5) as client, client.stream("GET", url) as response:
        yield from (line for line in response.iter_lines() if line)


def _events_of_requests(url: str) -> Iterator[str]:
    with requests.get(url, stream=True, timeout=5) as response:
        yield from (line.decode() for line in response.iter_lines(chunk_size=1) if line)


@pytest.mark.parametrize(
    "events",
    [
        lambda url: _events_of_httpx(httpx, url),
        lambda url: _events_of_httpx(httpx2, url),
        _events_of_requests,
    ],
    ids=["httpx", "httpx2", "requests"],
)
def test_event_streams_are_read_as_they_come(
    events: Callable[[str], Iterator[str]], service: Service
) -> None:
    rule = Rule()
    with traffic_through([rule]), attempted():
        lines = events(f"{service.url}/events")
        assert next(lines) == "data: 1"
        service.may_end.set()
        assert list(lines) == ["data: 2"]
    assert rule.outcomes[0].body is None  # type: ignore[union-attr]


async def test_event_streams_are_read_as_they_come_on_an_event_loop(service: Service) -> None:
    rule = Rule()
    with traffic_through([rule]), attempted():
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{service.url}/events") as response,
        ):
            assert await response.content.readline() == b"data: 1\n"
            service.may_end.set()
            assert (await response.content.read()).endswith(b"data: 2\n\n")
        service.may_end.clear()
        async with (
            httpx.AsyncClient() as client,
            client.stream("GET", f"{service.url}/events") as answer,
        ):
            lines = answer.aiter_lines()
            assert await anext(lines) == "data: 1"
            service.may_end.set()
            assert [line async for line in lines if line] == ["data: 2"]
    assert [outcome.body for outcome in rule.outcomes] == [None, None]  # type: ignore[union-attr]


def test_a_body_that_is_not_encoded_as_it_says_fails_where_it_always_does(
    service: Service,
) -> None:
    with traffic_through([Rule()]), attempted(), httpx.Client() as client:
        with pytest.raises(httpx.DecodingError):
            client.get(f"{service.url}/nogzip")
        with client.stream("GET", f"{service.url}/nogzip") as response:
            assert b"".join(response.iter_raw()) == b"plain"


async def test_an_answer_can_be_streamed(service: Service) -> None:
    rule = Rule(reply=lambda _: json_response(200, list(range(9))))
    with traffic_through([rule]), attempted():
        with requests.Session() as client, client.get(service.url, stream=True) as response:
            assert b"".join(response.iter_content(4)) == b"[0, 1, 2, 3, 4, 5, 6, 7, 8]"
        with httpx.stream("GET", service.url) as streamed:
            assert b"".join(streamed.iter_bytes(4)) == b"[0, 1, 2, 3, 4, 5, 6, 7, 8]"
        async with aiohttp.ClientSession() as session, session.get(service.url) as answer:
            parts = [part async for part in answer.content.iter_chunked(4)]
    assert len(parts) > 1
    assert b"".join(parts) == b"[0, 1, 2, 3, 4, 5, 6, 7, 8]"


async def test_openais_clients_retry_as_with_the_real_thing(service: Service) -> None:
    outcomes = iter(
        [
            HttpFailure("timeout", "no answer", is_injected=True),
            HttpFailure("unreachable", "nobody there", is_injected=True),
            json_response(429, {"error": {"message": "slow down"}}, **{"retry-after-ms": "1"}),
            json_response(404, {"error": {"message": "no such model"}}),
        ]
    )
    rule = Rule(reply=lambda _: next(outcomes))
    client = openai.AsyncOpenAI(base_url=service.url, api_key="none", max_retries=3)
    client._calculate_retry_timeout = lambda *_, **__: 0.0  # type: ignore[method-assign]
    with traffic_through([rule]), attempted(), pytest.raises(openai.NotFoundError):
        await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "hi"}]
        )
    await client.close()
    assert len(rule.requests) == 4


def test_what_urllib3_and_requests_send_through_it_is_one_call_each(service: Service) -> None:
    rule = Rule()
    retry = urllib3.Retry(2, status_forcelist=[503], backoff_factor=0.001)
    with traffic_through([rule]), attempted():
        with urllib3.PoolManager() as pool:
            with pytest.raises(urllib3.exceptions.MaxRetryError):
                pool.request("GET", f"{service.url}/status/503", retries=retry)
            response = pool.request("GET", f"{service.url}/ok", preload_content=False)
            assert response.read() == b'{"city": "Oslo"}'
            response.release_conn()
        with requests.Session() as session:
            session.mount("http://", requests.adapters.HTTPAdapter(max_retries=retry))
            with pytest.raises(requests.exceptions.RetryError):
                session.get(f"{service.url}/status/503")
    assert [request.library for request in rule.requests] == ["urllib3", "urllib3", "requests"]
    assert len(service.seen) == 7
    assert [getattr(outcome, "kind", "answered") for outcome in rule.outcomes] == [
        "raise",
        "answered",
        "raise",
    ]


def test_custom_transports_are_calls_like_any_other() -> None:
    rule = Rule(change=lambda response: replace(response, body=b"changed"))
    transport = httpx.MockTransport(lambda _: httpx.Response(200, text="mocked"))
    with (
        traffic_through([rule]),
        attempted(),
        httpx.Client(transport=transport, base_url="http://weather.test") as client,
    ):
        assert client.get("/oslo").text == "changed"
    assert rule.requests[0].host == "weather.test"


async def test_a_call_that_the_plugin_gives_up_ends(service: Service) -> None:
    futures: list[Future[None]] = []

    def hold(_: object) -> Future[None]:
        futures.append(Future())
        return futures[-1]

    waiting, sending = Rule(hold=hold), Rule()
    for rule, url in ((waiting, f"{service.url}/ok"), (sending, f"{service.url}/late")):
        for post in (_async_httpx(httpx), _aiohttp):
            with traffic_through([rule]), attempted():
                call = asyncio.create_task(post(url))
                num_before = len(futures) + len(service.seen)
                async with asyncio.timeout(60):
                    while len(futures) + len(service.seen) == num_before:  # noqa: ASYNC110
                        await asyncio.sleep(0.02)
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await call
    assert [future.cancelled() for future in futures] == [True, True]
    for outcome in (*waiting.outcomes, *sending.outcomes):
        assert isinstance(outcome, HttpFailure)
        assert outcome.kind == "cancelled"
    assert [duration_s > 0.01 for _, _, duration_s in sending.ended] == [True, True]
    assert [duration_s for _, _, duration_s in waiting.ended] == [0, 0]


async def test_a_call_that_aiohttp_does_not_send_ends_too(service: Service) -> None:
    rule = Rule()
    with traffic_through([rule]), attempted():
        session = aiohttp.ClientSession()
        await session.close()
        with pytest.raises(RuntimeError, match="Session is closed"):
            await session.get(f"{service.url}/ok")
    assert len(rule.requests) == 1
    assert [outcome.kind for outcome in rule.outcomes] == ["cancelled"]  # type: ignore[union-attr]
    assert service.seen == []


async def test_a_call_that_a_middleware_of_the_user_s_answers_does_not_pass(
    service: Service,
) -> None:
    async def cached(request: aiohttp.ClientRequest, handler: object) -> Any:
        raise LookupError("not in the cache")

    rule = Rule()
    with traffic_through([rule]), attempted():
        async with aiohttp.ClientSession(middlewares=(cached,)) as session:
            with pytest.raises(LookupError):
                await session.get(f"{service.url}/ok")
    assert (rule.requests, rule.ended, service.seen) == ([], [], [])


async def test_a_call_is_held_back_after_those_of_the_user_s_middlewares(service: Service) -> None:
    async def with_a_token(request: aiohttp.ClientRequest, handler: Any) -> Any:
        async with request.session.get(f"{service.url}/ok?token", middlewares=()) as answer:
            await answer.read()
        return await handler(request)

    under_way: list[HttpRequest] = []

    def hold(request: HttpRequest) -> None:
        under_way.append(request)
        assert len(under_way) - len(rule.ended) == 1  # with one place they would wait without end

    rule = Rule(hold=hold)
    with traffic_through([rule]), attempted():
        async with (
            aiohttp.ClientSession(middlewares=(with_a_token,)) as session,
            session.get(f"{service.url}/ok?data") as answer,
        ):
            assert answer.status == 200
    assert [request.url.partition("?")[2] for request in under_way] == ["token", "data"]


@every_library
async def test_an_error_of_arkdevs_own_is_no_failure_of_the_service(
    library: Library, service: Service
) -> None:
    def reply(_: object) -> None:
        raise ArkdevError("the tape has another request")

    rule = Rule(reply=reply)
    with traffic_through([rule]), attempted(), pytest.raises(ArkdevError):
        await library.post(f"{service.url}/ok")
    (outcome,) = rule.outcomes
    assert isinstance(outcome, HttpFailure)
    assert outcome.kind == "cancelled"


async def test_aiohttps_own_total_timeout_is_a_timeout(service: Service) -> None:
    rule = Rule()
    timeout = aiohttp.ClientTimeout(total=0.05)
    with traffic_through([rule]), attempted():
        async with aiohttp.ClientSession(timeout=timeout) as session:
            with pytest.raises(TimeoutError):
                await session.get(f"{service.url}/late")
    assert [outcome.kind for outcome in rule.outcomes] == ["timeout"]  # type: ignore[union-attr]


async def test_bodies_that_cannot_be_read_before_they_are_sent_are_left_alone(
    service: Service,
) -> None:
    async def parts() -> Any:
        yield b"abc"

    rule = Rule()
    form = aiohttp.FormData({"a": "b"})
    with traffic_through([rule]), attempted():
        async with aiohttp.ClientSession(base_url=service.url) as session:
            async with session.post("/ok", data=parts()) as response:
                response.raise_for_status()
            async with session.post("/ok", data=form, params={"x": 1}) as response:
                response.raise_for_status()
            async with session.get("/ok") as response:
                response.raise_for_status()
    assert [request.body for request in rule.requests] == [None, b"a=b", b""]
    assert rule.requests[1].url == f"{service.url}/ok?x=1"


LATE = """
import sys
from arkdev.plugin.traffic.patches import traffic_through
from tests.unit.plugin.traffic.service import Rule, attempted, json_response
rule = Rule(reply=lambda _: json_response(200, {"library": "late"}))
assert not {"httpx", "requests", "aiohttp", "urllib3"} & sys.modules.keys(), sys.modules.keys()
with traffic_through([rule]), attempted():
    from requests import get
    import httpx
    assert get("http://nowhere.test").json() == {"library": "late"}
    assert httpx.get("http://nowhere.test").json() == {"library": "late"}
with attempted():
    try:
        get("http://127.0.0.1:9", timeout=1)
    except Exception as error:
        print(type(error).__name__)
"""


def test_libraries_that_are_imported_later_are_covered() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LATE], capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.stdout, done.stderr) == ("ConnectionError\n", "")


async def test_no_response_object_is_left_open(service: Service) -> None:
    rule = Rule(change=lambda response: replace(response, body=b"[]"))
    with traffic_through([rule]), attempted():
        for library in LIBRARIES:
            await library.post(f"{service.url}/ok")
    gc.collect()  # an unclosed response would warn, and warnings are errors
