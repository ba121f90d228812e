"""The harness's event loop: a few sockets at a time, none lost, none after it was closed."""

import asyncio
import selectors
import socket

import pytest

from arkdev.harness.loop import MAX_EVENTS_PER_TURN, _FairSelector, new_event_loop


@pytest.fixture
def pairs():
    made = [socket.socketpair() for _ in range(7)]
    for _, far in made:
        far.send(b"x")
    yield [near for near, _ in made]
    for pair in made:
        for end in pair:
            end.close()


@pytest.fixture
def selector(pairs):
    with _FairSelector() as selector:
        for near in pairs:
            selector.register(near, selectors.EVENT_READ)
        yield selector


def turns(selector, number):
    return [[key.fileobj for key, _ in selector.select(0)] for _ in range(number)]


def test_ready_sockets_come_a_few_at_a_time_and_each_once_in_a_round(selector, pairs):
    rounds = turns(selector, 4)
    assert [len(turn) for turn in rounds] == [MAX_EVENTS_PER_TURN] * 3 + [1]
    assert sorted(s.fileno() for turn in rounds for s in turn) == sorted(s.fileno() for s in pairs)


def test_a_socket_that_is_not_watched_any_more_is_not_reported(selector, pairs):
    seen = turns(selector, 1)[0]
    gone = next(near for near in pairs if near not in seen)
    selector.unregister(gone)
    assert gone not in [near for turn in turns(selector, 6) for near in turn]


def test_a_socket_that_is_watched_for_something_else_is_asked_for_again(selector, pairs):
    for near in pairs:
        near.recv(1)
    turns(selector, 1)
    for near in pairs:
        selector.modify(near, selectors.EVENT_WRITE)
    events = [event for _ in range(8) for _, event in selector.select(0)]
    assert set(events) == {selectors.EVENT_WRITE}


def test_timers_run_between_the_answers_of_hundreds_of_calls():
    order = []

    async def answered(loop, near):
        await loop.sock_recv(near, 1)
        order.append("answer")

    async def main():
        loop = asyncio.get_running_loop()
        made = [socket.socketpair() for _ in range(40)]
        for near, _ in made:
            near.setblocking(False)
        tasks = [asyncio.create_task(answered(loop, near)) for near, _ in made]
        await asyncio.sleep(0)
        for _, far in made:
            far.send(b"x")
        loop.call_later(0, order.append, "timer")
        await asyncio.gather(*tasks)
        for pair in made:
            for end in pair:
                end.close()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main())
    assert order.count("answer") == 40
    assert order.index("timer") < 10
