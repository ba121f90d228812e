"""Rate, tokens and calls under way: one budget over both event loops."""

import asyncio
import time

import pytest

from arkdev.endpoints.endpoint import ModelRequest
from arkdev.endpoints.limits import LimitedEndpoint
from arkdev.endpoints.pace import Gate, TokenBudget, even_rate
from arkdev.endpoints.spec import EndpointLimits
from arkdev.errors import EndpointResponseError
from arkdev.sessions.background import BackgroundLoop
from tests.running import QUESTION, FakeEndpoint, answer
from tests.unit.faas_emulator.fake_instances import run_virtually


class Watched(FakeEndpoint):
    """Knows when calls came and how many were under way at most."""

    def __init__(self, answers=("fine",), *, delay_s=0.0):
        super().__init__(answers, delay_s=delay_s)
        self.times, self.under_way, self.peak = [], 0, 0

    async def complete(self, request):
        self.times.append(time.monotonic())
        self.under_way += 1
        self.peak = max(self.peak, self.under_way)
        try:
            return await super().complete(request)
        finally:
            self.under_way -= 1


@pytest.fixture
def background():
    background = BackgroundLoop()
    background.start()
    yield background
    background.stop()


def request():
    return ModelRequest(body=dict(QUESTION))


async def until(holds):
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 (the limits' loop tells nobody)
            await asyncio.sleep(0.005)


async def on_both_loops(limited, background, count):
    """Half of the calls from this loop, half from the other one."""
    here = [limited.complete(request()) for _ in range(count // 2)]
    there = [background.call(limited.complete(request())) for _ in range(count // 2)]
    return await asyncio.gather(*here, *there, return_exceptions=True)


def limited(endpoint, background, **limits):
    return LimitedEndpoint(endpoint, EndpointLimits(**limits), loop=background.loop)


async def test_requests_go_out_evenly_from_both_loops_together(background):
    endpoint = Watched()
    calls = limited(endpoint, background, requests_per_minute=3000)  # one in 20 ms
    await on_both_loops(calls, background, 12)
    # five (0.1 s worth) at once, then one by one
    assert max(endpoint.times) - min(endpoint.times) > 0.05
    assert calls.use().waited_s["requests_per_minute"] > 0.05
    assert 0 < calls.use().num_held_back <= 7


async def test_calls_under_way_are_counted_over_both_loops(background):
    endpoint = Watched(delay_s=0.01)
    calls = limited(endpoint, background, max_in_flight=3)
    answers = await on_both_loops(calls, background, 20)
    assert all(isinstance(each, dict) for each in answers)
    assert (endpoint.peak, calls.use().peak_in_flight) == (3, 3)


async def test_a_call_that_blocks_a_loop_does_not_wait_for_calls_that_need_that_loop(background):
    calls = limited(Watched(delay_s=0.1), background, max_in_flight=1)
    here = asyncio.create_task(calls.complete(request()))
    await asyncio.sleep(0.05)
    there = asyncio.run_coroutine_threadsafe(calls.complete(request()), background.loop)
    assert there.result(timeout=60)  # this loop stands still
    assert await here
    assert calls.use().peak_in_flight == 1


async def test_the_wait_of_a_call_that_is_given_up_counts(background):
    calls = limited(Watched(delay_s=60), background, max_in_flight=1)
    tasks = [asyncio.create_task(calls.complete(request())) for _ in range(3)]
    await until(lambda: len(calls._gate._waiting) == 2)
    await asyncio.sleep(0.1)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await until(lambda: calls.use().waited_s["max_in_flight"] > 0.15)
    assert calls.use().num_held_back == 2


async def test_waiting_is_no_part_of_a_call_s_time_and_its_timeout_begins_after_it(background):
    calls = limited(Watched(delay_s=0.4), background, max_in_flight=1)
    requests = [request() for _ in range(8)]
    for each in requests:
        each.clock.timeout_s = 2.0
    await asyncio.gather(*(each.clock.limited(calls.complete(each)) for each in requests))
    waited = sorted(each.clock.waited_s for each in requests)
    assert waited[0] < waited[-1] / 2
    assert waited[-1] > 2.0


async def test_a_call_that_is_cancelled_while_it_waits_or_runs_gives_its_place_back(background):
    calls = limited(Watched(delay_s=0.03), background, max_in_flight=2)
    for _ in range(15):  # each time at another moment of the way to the limits' loop and back
        tasks = [asyncio.create_task(calls.complete(request())) for _ in range(5)]
        await asyncio.sleep(0.0002 * _)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    async with asyncio.timeout(60):
        await on_both_loops(calls, background, 4)
    assert calls.use().peak_in_flight <= 2


async def test_tokens_are_paid_by_what_answers_really_took(background):
    usage = {"prompt_tokens": 80, "completion_tokens": 20, "total_tokens": 100}
    endpoint = Watched([answer(usage=usage)])
    calls = limited(endpoint, background, tokens_per_minute=12_000)  # 100 take 0.5 s
    for _ in range(4):
        await calls.complete(request())
    # the first goes at once, and 0.1 s worth is free; then each waits for the one before it
    waited_s = calls.use().waited_s["tokens_per_minute"]
    assert 0.4 < waited_s < 6  # by their estimates it were 8 s


async def test_an_answer_that_an_endpoint_refused_took_no_tokens(background):
    refused = EndpointResponseError("no", status=400)
    calls = limited(Watched([refused]), background, tokens_per_minute=600)
    async with asyncio.timeout(60):
        for _ in range(2):
            with pytest.raises(EndpointResponseError):
                await calls.complete(request())


def test_a_request_is_estimated_by_its_bytes_and_the_mean_answer(background):
    calls = limited(Watched(), background, tokens_per_minute=100)
    body = {"model": "m", "messages": [{"role": "user", "content": "x" * 400}]}
    one = calls._estimate(ModelRequest(body=body, sampling={"max_new_tokens": 100}))
    assert one == pytest.approx(100 + 100, abs=15)
    assert calls._estimate(ModelRequest(body=body)) == pytest.approx(100 + 512, abs=15)


def test_quiet_time_pays_a_debt_and_saves_nothing_up():
    async def calls():
        now = asyncio.get_running_loop().time
        budget = TokenBudget(60_000)  # 100 in 0.1 s
        await budget.take(100)
        budget.settle(100)
        await asyncio.sleep(0.2)
        started = now()
        await budget.take(100)
        assert now() - started < 0.05
        for _ in range(5):
            budget.settle(-100)
        await budget.take(100)
        await budget.take(100)
        await budget.take(200)
        started = now()
        await budget.take(1)
        assert now() - started > 0.1

    run_virtually(calls())


async def test_a_gate_serves_in_order_and_follows_its_limit():
    limit, order = [1], []
    gate = Gate(lambda: limit[0])

    async def visit(name):
        await gate.enter()
        order.append(name)

    await gate.enter()
    tasks = [asyncio.create_task(visit(name)) for name in "abcd"]
    await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.sleep(0)
    assert (order, gate.is_waited_for, gate.has_place) == ([], True, False)
    limit[0] = 2
    gate.let_in()
    await asyncio.sleep(0)
    assert order == ["a"]
    gate.leave()
    gate.leave()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == ["a", "c", "d"]
    assert not gate.is_waited_for


def test_a_rate_lets_at_most_a_tenth_of_a_second_s_worth_out_at_once():
    assert even_rate(60).max_rate == 1
    assert even_rate(60).time_period == 1
    assert (even_rate(60_000).max_rate, even_rate(60_000).time_period) == (100, 0.1)
