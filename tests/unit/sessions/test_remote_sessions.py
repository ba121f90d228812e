"""A proxy in another process reaches its session through the gateway as if it were here."""

import asyncio
import random

import pytest

from arkdev.errors import EndpointUnreachableError, LateCallError, PluginError
from arkdev.observe.attempt import AttemptPlace
from arkdev.plugin.loopback_http import AsyncPoster, BlockingPoster
from arkdev.plugin.remote_access import GatewayConnections, RemoteAccess
from arkdev.sessions.remote_sessions import _Turnstile
from tests.running import answer, running, with_tokens


@pytest.fixture
async def connections():
    made = GatewayConnections()
    yield made
    made.close()
    await asyncio.sleep(0.01)


@pytest.fixture
def remote(connections):
    return lambda session: RemoteAccess(
        session.url,
        jwt_token=session.jwt_token,
        attempt={"name": session.name, "number": session.number},
        place=AttemptPlace(("request",), 0),
        connections=connections,
    )


def body(text):
    return {"model": "m", "messages": [{"role": "user", "content": text}]}


async def test_what_is_read_of_a_remote_conversation_is_the_sessions(remote):
    async with running([with_tokens([1], [2], [-0.5])]) as run:
        session = run.session()
        access = remote(session)
        assert access.conversation.usage is None
        await access.complete(body("x"), timeout_s=None)
        there, here = access.conversation, session.conversation
        assert there.messages == here.messages
        assert (there.usage, there.finish_reason) == (here.usage, "stop")
        assert there.tokens == here.tokens
        assert (there.num_calls, there.evidence_problem) == (1, None)


async def test_overlapping_calls_begin_in_the_order_in_which_they_were_made(remote):
    async with running(lambda request: answer(str(request.seed))) as run:
        session, again = run.session(), run.session()
        access = remote(session)
        calls = [access.complete(body(f"call {n}"), timeout_s=None) for n in range(20)]
        tasks = [asyncio.ensure_future(call) for call in calls]
        there = [made["choices"][0]["message"]["content"] for made in await asyncio.gather(*tasks)]
        here = [await again.complete(body(f"call {n}")) for n in range(20)]
        assert there == [made["choices"][0]["message"]["content"] for made in here]
        assert session.conversation.messages[0].content == "call 19"


async def test_a_turnstile_lets_numbers_pass_in_order_whatever_order_they_come_in():
    turnstile, passed = _Turnstile(), []

    async def go(number):
        await turnstile.turn_of(number)
        if number != 3:
            passed.append(number)
        turnstile.passed(number)

    numbers = random.Random(5).sample(range(10), 10)
    await asyncio.gather(*map(go, numbers))
    assert passed == [0, 1, 2, 4, 5, 6, 7, 8, 9]


async def test_a_call_that_is_given_up_holds_no_later_one_up(remote):
    async with running(delay_s=0.3) as run:
        access = remote(run.session())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(access.complete(body("x"), timeout_s=None), 0.05)
        async with asyncio.timeout(60):
            await access.complete(body("y"), timeout_s=None)
        assert len(access.conversation.messages) == 2


async def test_calls_of_an_attempt_that_is_over_are_late_and_notes_are_dropped(remote):
    async with running() as run:
        session = run.session()
        access = remote(session)
        run.gateway.close(session)
        access.note("some_code")
        access.refused("text")
        with pytest.raises(LateCallError, match=r"rollout 0\.0 came after the end"):
            await access.complete(body("x"), timeout_s=None)
        with pytest.raises(LateCallError):
            await asyncio.to_thread(access.complete_blocking, body("x"), timeout_s=None)
        with pytest.raises(LateCallError):
            access.set_history([])


async def test_a_call_under_way_when_the_attempt_ends_is_late(remote):
    async with running(delay_s=60) as run:
        session = run.session()
        call = asyncio.ensure_future(remote(session).complete(body("x"), timeout_s=None))
        while not session._under_way:  # noqa: ASYNC110 (nothing tells of it)
            await asyncio.sleep(0.01)
        run.gateway.close(session)
        with pytest.raises(LateCallError):
            await call


async def test_branches_made_elsewhere_are_found_and_unknown_ones_are_an_error_here(remote):
    async with running(lambda request: str(len(request.body["messages"]))) as run:
        session = run.session()
        access, other = remote(session), remote(session)
        first = await access.respond({"model": "m", "input": "one"}, timeout_s=None)
        hint = await asyncio.to_thread(
            access.insert, [{"role": "user", "content": "h"}], previous_response_id=first["id"]
        )
        last = await access.respond(
            {"model": "m", "input": "two", "previous_response_id": hint}, timeout_s=None
        )
        for tree in (access.responses, other.responses):
            known, own = tree.node(last["id"]), session.responses.node(last["id"])
            assert (list(known.history), known.key) == (list(own.history), own.key)
            assert tree.conversation(last["id"]).state() == session.branch(last["id"])[0].state()
        with pytest.raises(PluginError, match="no response 'resp_x'") as raised:
            other.responses.node("resp_x")
        assert raised.value.where.startswith(__file__)


async def test_a_gateway_that_is_gone_is_told_from_a_late_call(remote):
    async with running() as run:
        access = remote(run.session())
    with pytest.raises(EndpointUnreachableError, match="cannot reach its run"):
        await access.complete(body("x"), timeout_s=None)
    with pytest.raises(EndpointUnreachableError):
        access.set_history([])


async def test_a_kept_connection_that_the_other_side_closed_is_made_anew():
    async def serve(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r")[0]))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1")
        await writer.drain()
        writer.close()  # without a word

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        poster, blocking = AsyncPoster(url), BlockingPoster(url)
        for _ in range(3):
            assert await poster.post("/", {}, key="k") == (200, 1)
            assert await asyncio.to_thread(blocking.post, "/", {}, key="k") == (200, 1)
            await asyncio.sleep(0.01)
        poster.close()
        blocking.close()
