"""Limits on the hosts that plugins call."""

import asyncio
import threading
import time

import pytest

from arkdev.errors import LateCallError
from arkdev.harness.tool_limits import ToolRule
from arkdev.job.tools import ToolLimits
from arkdev.observe.held_calls import HeldCalls, current_held_calls
from arkdev.plugin.traffic.exchange import HttpFailure, HttpRequest, HttpResponse
from arkdev.plugin.traffic.passage import Passage
from arkdev.sessions.background import BackgroundLoop

DONE = HttpResponse(200, {}, b"")


@pytest.fixture
def background():
    background = BackgroundLoop()
    background.start()
    yield background
    background.stop()


def request(url="http://127.0.0.1:8000/search?q=1"):
    return HttpRequest("httpx", "GET", url, {}, None)


class Calls:
    """Calls through a rule, from an event loop and from threads."""

    def __init__(self, rule, *, duration_s=0.0):
        self.rule, self.duration_s = rule, duration_s
        self.times, self.under_way, self.peak = [], 0, 0
        self._lock = threading.Lock()

    def _begin(self):
        with self._lock:
            self.times.append(time.monotonic())
            self.under_way += 1
            self.peak = max(self.peak, self.under_way)

    def _end(self, one):
        with self._lock:
            self.under_way -= 1
        self.rule.after(one, DONE, duration_s=self.duration_s)

    async def call(self, url):
        one = request(url)
        hold = self.rule.before(one)
        if hold is not None:
            await asyncio.wrap_future(hold)
        self._begin()
        await asyncio.sleep(self.duration_s)
        self._end(one)

    def call_in_thread(self, url):
        one = request(url)
        hold = self.rule.before(one)
        if hold is not None:
            hold.result()
        self._begin()
        time.sleep(self.duration_s)
        self._end(one)

    async def many(self, url, count=6):
        here = [self.call(url) for _ in range(count // 2)]
        there = [asyncio.to_thread(self.call_in_thread, url) for _ in range(count // 2)]
        await asyncio.gather(*here, *there)


@pytest.mark.parametrize("name", ["127.0.0.1", "127.0.0.1:8000"])
async def test_calls_of_a_host_under_way_are_limited_over_loops_and_threads(background, name):
    rule = ToolRule({name: ToolLimits(max_in_flight=2)}, loop=background.loop)
    calls = Calls(rule, duration_s=0.2)
    await calls.many("http://127.0.0.1:8000/a")
    assert calls.peak == 2
    (use,) = rule.use()
    assert (use.host, use.num_calls) == (name, 6)
    assert 1 <= use.num_held_back <= 4
    assert use.waited_s > 0.03


async def test_a_host_and_its_port_both_limit_a_call(background):
    limits = {
        "127.0.0.1": ToolLimits(max_in_flight=3),
        "127.0.0.1:8000": ToolLimits(max_in_flight=1),
        "127.0.0.1:9": ToolLimits(max_in_flight=9),
    }
    rule = ToolRule(limits, loop=background.loop)
    narrow, wide = Calls(rule, duration_s=0.01), Calls(rule, duration_s=0.01)
    await asyncio.gather(
        narrow.many("http://127.0.0.1:8000/a"), wide.many("http://127.0.0.1:8001/a")
    )
    assert (narrow.peak, wide.peak) <= (1, 3)
    assert {use.host for use in rule.use()} == {"127.0.0.1", "127.0.0.1:8000"}


async def test_requests_of_a_host_go_out_evenly(background):
    rule = ToolRule({"localhost:80": ToolLimits(requests_per_minute=1200)}, loop=background.loop)
    calls = Calls(rule)
    await calls.many("http://localhost/a", count=4)
    assert max(calls.times) - min(calls.times) > 0.03  # two at once, then 0.05 s apart


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://api.example.com/v1", "api.example.com:443"),
        ("https://user:word@API.example.com:444/v1", "api.example.com:444"),
        ("http://[::1]:81/", "[::1]:81"),
        ("http://[::1]:81/", "[::1]"),
    ],
)
async def test_a_host_is_known_by_name_and_port(background, url, name):
    rule = ToolRule({name: ToolLimits(max_in_flight=1)}, loop=background.loop)
    await Calls(rule).call(url)
    assert [use.host for use in rule.use()] == [name]


def test_other_hosts_are_left_alone(background):
    rule = ToolRule({"a.example": ToolLimits(max_in_flight=1)}, loop=background.loop)
    one = request("http://b.example/")
    assert rule.before(one) is None
    rule.after(one, DONE, duration_s=0.0)
    assert rule.answer(one) is None
    assert rule.changed(one, DONE) is DONE
    assert rule.use() == ()


async def test_a_call_that_is_given_up_while_it_waits_takes_no_place(background):
    rule = ToolRule({"h": ToolLimits(max_in_flight=1)}, loop=background.loop)
    inside = request("http://h/")
    await asyncio.wrap_future(rule.before(inside))
    for delay_s in (0, 0, 0.0002, 0.0005, 0.002):
        waiting = request("http://h/")
        hold = rule.before(waiting)
        await asyncio.sleep(delay_s)
        hold.cancel()
        rule.after(waiting, HttpFailure("cancelled", "given up"), duration_s=0.0)
    rule.after(inside, DONE, duration_s=0.0)
    async with asyncio.timeout(60):
        for _ in range(3):
            await Calls(rule).call("http://h/")


def sent(calls):
    def send():
        calls.append(time.monotonic())
        return None, DONE

    return send


async def test_a_call_that_blocks_an_event_loop_goes_over_the_places_and_is_counted(background):
    rule = ToolRule({"h": ToolLimits(max_in_flight=1)}, loop=background.loop)
    passage, calls = Passage([rule]), []
    inside = request("http://h/")
    await asyncio.wrap_future(rule.before(inside))  # its answer needs this loop
    passage.through(request("http://h/"), sent(calls), failure=None)
    assert len(calls) == 1
    rule.after(inside, DONE, duration_s=0.0)
    await asyncio.to_thread(passage.through, request("http://h/"), sent(calls), failure=None)
    (use,) = rule.use()
    assert (len(calls), use.num_calls, use.num_over) == (2, 3, 1)


@pytest.mark.parametrize("way", ["thread", "event loop"])
async def test_a_held_call_of_an_ended_attempt_is_refused_and_leaves_the_queue(background, way):
    rule = ToolRule({"h": ToolLimits(max_in_flight=1)}, loop=background.loop)
    passage, calls, held = Passage([rule]), [], HeldCalls()
    inside = request("http://h/")
    await asyncio.wrap_future(rule.before(inside))
    current_held_calls.set(held)

    async def send():
        return sent(calls)()

    if way == "thread":
        call = asyncio.to_thread(passage.through, request("http://h/"), sent(calls), failure=None)
    else:
        call = passage.async_through(request("http://h/"), send, failure=None)
    waiting = asyncio.create_task(call)
    async with asyncio.timeout(60):
        while not held.is_holding:  # noqa: ASYNC110 (nothing tells of it)
            await asyncio.sleep(0.01)
        held.close()
        with pytest.raises(LateCallError, match="after the end of its attempt"):
            await waiting
        rule.after(inside, DONE, duration_s=0.0)
        with pytest.raises(LateCallError):  # and so is one that comes later
            await passage.async_through(request("http://h/"), send, failure=None)
        await Calls(rule).call("http://h/")
    assert calls == []
