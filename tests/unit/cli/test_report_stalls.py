"""What the report says of stalls: who, how long, and what to do."""

import dataclasses

import pytest

from arkdev.cli.report_stalls import advice, sentence
from arkdev.harness.stalls import StallKind, StallRecord
from arkdev.harness.statistics import RunStatistics
from arkdev.runs.records import Attempt, TrajectoryRecord, TurnRecord, Verdict
from tests.unit.cli.test_report import shown

SLEEP = StallRecord(
    kind=StallKind.BLOCKS_LOOP,
    where="plugins/rollout.py:9",
    function="answer.<locals>.parse",
    called="time.sleep",
    plugin="answer",
    count=8,
    total_s=4.0,
    max_s=0.5,
    longest_stall_s=2.0,
    num_waiting=7,
    waited=("0.0", "3.1"),
)


def test_a_sentence_has_the_place_the_function_and_the_times():
    assert sentence(SLEEP) == (
        "plugins/rollout.py:9 parse (in answer) blocked the event loop for 4.00 s, 500 ms at most "
        "and 2.00 s in a row: time.sleep"
    )
    once = dataclasses.replace(SLEEP, function="answer", called="", count=1, total_s=0.5)
    assert sentence(once) == "plugins/rollout.py:9 answer blocked the event loop for 500 ms"


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({}, "await asyncio.sleep"),
        ({"called": "requests.get"}, "httpx.AsyncClient"),
        ({"called": "client.chat.completions.create"}, "async_rollout_client"),
        ({"called": "httpx.AsyncClient"}, "make the client once, outside the plugin"),
        ({"called": "AsyncOpenAI"}, "make the client once, outside the plugin"),
        ({"called": "json.loads"}, "asyncio.to_thread(json.loads"),
        ({"called": ""}, "another process"),
        ({"called": "await shop.Shop.search"}, "it is awaited, but"),
        ({"called": "shop._Context.__enter__"}, "write the plugin as def"),
        ({"called": "queries[0].run"}, "write the plugin as def"),
        ({"kind": StallKind.HOLDS_INTERPRETER}, "ProcessPoolExecutor"),
        ({"kind": StallKind.EXECUTOR_STARVED}, "larger pool"),
        ({"kind": StallKind.HARNESS}, "--concurrency"),
    ],
)
def test_the_advice_fits_the_call(changes, part):
    assert part in " ".join(advice(dataclasses.replace(SLEEP, **changes)).split())


@pytest.mark.parametrize(
    "called",
    ["await aiohttp.client._BaseRequestContextManager.__aenter__", "a._B.__enter__", "(x or y).z"],
)
def test_nothing_is_to_be_put_into_a_thread_that_is_no_function(called):
    assert f"to_thread({called}" not in advice(dataclasses.replace(SLEEP, called=called))


def test_the_section_is_there_when_there_is_something_to_say():
    statistics = RunStatistics(1)
    assert "What held the run up" not in shown(statistics.summary(), width=100)
    statistics.take_stalls(lambda: [SLEEP])
    text = shown(statistics.summary(), width=100, encoding="ascii")
    assert "8 x" in text
    assert "up to 7 attempts waited, e.g. 0.0, 3.1" in text


def test_a_slow_tool_is_named_with_the_trajectories_that_waited_longest():
    statistics = RunStatistics(1)
    for number in range(60):
        tool_s = 0.2 if number < 30 else 0.9
        turn = TurnRecord(0.0, 0.1, tool_calls=("search",), tool_duration_s=tool_s)
        attempts = (Attempt(Verdict.SUCCESS, 1.0),)
        name = f"{number}.0"
        statistics.add_trajectory(
            TrajectoryRecord(name, number, 0, Verdict.SUCCESS, 1.0, attempts, turns=(turn,))
        )
    text = " ".join(shown(statistics.summary(), width=120).split())
    assert "slowest tool search: p95 900 ms of 60 calls longest for" in text
