"""Adaptive concurrency, followed by hand."""

import asyncio

import pytest

from arkdev.endpoints.adaptive import AdaptiveLimit, is_overload
from arkdev.endpoints.endpoint import ModelRequest
from arkdev.endpoints.limits import LimitedEndpoint
from arkdev.endpoints.spec import EndpointLimits
from arkdev.errors import EndpointResponseError, EndpointUnreachableError
from arkdev.sessions.background import BackgroundLoop
from tests.running import QUESTION, FakeEndpoint


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


class Load:
    """As many calls under way as the limit allows, at any time."""

    def __init__(self, limit):
        self.limit = limit
        self.calls = []

    def fill(self):
        while len(self.calls) < self.limit.limit:
            self.calls.append(self.limit.sent())

    def answers(self, count):
        """After so many answers, the limit."""
        for _ in range(count):
            self.fill()
            self.limit.answered(self.calls.pop(0))
        return self.limit.limit


def test_it_doubles_in_each_round_until_the_first_decrease():
    load = Load(AdaptiveLimit(64))
    assert load.limit.limit == 1
    assert [load.answers(1), load.answers(2), load.answers(4), load.answers(8)] == [2, 4, 8, 16]
    load.fill()
    load.limit.overloaded(load.calls.pop(0))
    assert (load.limit.limit, load.limit.sustained().num_decreases) == (8, 1)


def test_a_limit_that_is_not_used_up_does_not_grow_and_never_leaves_its_bounds():
    limit = AdaptiveLimit(3)
    limit.answered(limit.sent())
    for _ in range(50):
        limit.answered(limit.sent())
    assert limit.limit == 2
    load = Load(limit)
    assert load.answers(50) == 3
    while load.calls:
        limit.dropped(load.calls.pop())
    for _ in range(10):
        limit.overloaded(limit.sent())
    assert limit.limit == 1
    assert limit.sustained().num_decreases == 10


def test_the_calls_of_one_storm_count_once():
    limit = AdaptiveLimit(8)
    load = Load(limit)
    assert load.answers(7) == 8
    load.fill()
    for call in load.calls:
        limit.overloaded(call)
    assert (limit.limit, limit.sustained().num_decreases) == (4, 1)
    limit.overloaded(limit.sent())
    assert (limit.limit, limit.sustained().num_decreases) == (2, 2)


def test_after_a_decrease_one_full_round_adds_one():
    load = Load(AdaptiveLimit(8))
    load.answers(7)
    load.fill()
    load.limit.overloaded(load.calls.pop(0))
    while len(load.calls) > 4:
        load.limit.dropped(load.calls.pop(0))
    assert load.limit.limit == 4
    assert load.answers(4) == 4  # 4 + 1/4 + 1/4.25 + ...: a little less than one
    assert load.answers(1) == 5


def test_what_was_sustained_is_counted_while_the_limit_held_calls_back():
    clock = Clock()
    limit = AdaptiveLimit(8, clock=clock)
    assert limit.sustained().in_flight is None
    limit.overloaded(limit.sent())
    clock.now = 100.0  # nobody waits: this time does not count
    first = limit.sent()
    limit.holds_back(True)
    clock.now = 102.0
    limit.answered(first)
    clock.now = 104.0
    limit.holds_back(False)
    clock.now = 200.0
    seen = limit.sustained()
    assert (seen.in_flight, seen.requests_per_s, seen.num_decreases) == (0.5, 0.25, 1)
    assert seen.settled_at == 2


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (EndpointResponseError("", status=429), True),
        (EndpointResponseError("", status=503), True),
        (EndpointResponseError("", status=500), False),
        (EndpointUnreachableError("", is_timeout=True), True),
        (EndpointUnreachableError(""), False),
    ],
)
def test_an_endpoint_is_overloaded_when_it_says_so_or_does_not_answer(error, expected):
    assert is_overload(error) is expected


class Small(FakeEndpoint):
    """Takes four calls at once and refuses the fifth."""

    under_way = 0

    async def complete(self, request):
        if self.under_way >= 4:
            raise EndpointResponseError("busy", status=429, is_transient=True)
        self.under_way += 1
        try:
            return await super().complete(request)
        finally:
            self.under_way -= 1


async def test_it_settles_near_what_the_endpoint_takes():
    background = BackgroundLoop()
    background.start()
    endpoint = Small(["fine"], delay_s=0.005)
    limited = LimitedEndpoint(
        endpoint, EndpointLimits(), loop=background.loop, adaptive=AdaptiveLimit(32)
    )

    async def caller():
        for _ in range(8):
            try:
                await limited.complete(ModelRequest(body=dict(QUESTION)))
            except EndpointResponseError:
                continue

    await asyncio.gather(*(caller() for _ in range(32)))
    use = limited.use()
    background.stop()
    assert use.sustained.num_decreases >= 2
    assert 1 <= use.sustained.settled_at <= 8
    assert 1 < use.sustained.in_flight < 8
    assert use.sustained.requests_per_s > 1
    assert len(endpoint.requests) > 156  # of 256: the others were refused


async def test_a_timeout_of_the_plugin_s_own_is_a_sign_of_overload():
    background = BackgroundLoop()
    background.start()
    adaptive = AdaptiveLimit(4)
    limited = LimitedEndpoint(
        FakeEndpoint(["fine"], delay_s=5),
        EndpointLimits(),
        loop=background.loop,
        adaptive=adaptive,
    )
    request = ModelRequest(body=dict(QUESTION))
    request.clock.timeout_s = 0.02
    with pytest.raises(EndpointUnreachableError):
        await request.clock.limited(limited.complete(request))
    await background.call(asyncio.sleep(0))
    assert adaptive.sustained().num_decreases == 1
    background.stop()
