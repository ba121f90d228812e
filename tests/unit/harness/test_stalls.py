"""Counting stalls: by culprit, in bounded memory, over the parts of a run."""

import pytest

from arkdev.harness.slowest import SlowCall, SlowestCalls
from arkdev.harness.stalls import (
    HARNESS,
    Culprit,
    Share,
    Stall,
    StallCounts,
    StallKind,
    Taken,
    Waiting,
    merged,
    stalls_of_summary,
)
from arkdev.harness.statistics import RunStatistics
from arkdev.runs.records import (
    Attempt,
    GraderRecord,
    GroupRecord,
    TrajectoryRecord,
    TurnRecord,
    Verdict,
)

SLEEP = Culprit(StallKind.BLOCKS_LOOP, "a.py", "answer", "time.sleep", "answer")


def taken(seconds, *, line=7, waiting=None):
    return Taken({line: seconds}, {1: seconds}, waiting or Waiting())


def test_the_end_of_a_stall_decides_how_long_its_last_slice_was():
    stall = Stall(10.0)
    stall.add(10.2, [Share(SLEEP, 7, 1.0)])
    stall.add(10.4, [Share(SLEEP, 8, 0.5), Share(HARNESS, 0, 0.5)])
    stall.end(10.3)
    assert stall.length_s == pytest.approx(0.3)
    assert stall.of_users()[SLEEP].line_s == pytest.approx({7: 0.2, 8: 0.05})
    assert stall.users_s() == pytest.approx(0.25)


def test_the_time_after_the_last_sample_belongs_to_whom_it_saw():
    stall = Stall(10.0)
    stall.add(10.1, [Share(SLEEP, 7, 1.0)])
    stall.end(10.15)
    assert stall.users_s() == pytest.approx(0.15)


def test_a_culprit_is_shown_at_the_line_that_took_the_most():
    counts = StallCounts()
    counts.add(SLEEP, taken(0.2, line=7))
    record = counts.add(SLEEP, taken(0.5, line=9, waiting=Waiting(3, ("1.0", "2.0"))))
    assert (record.where, record.count) == ("a.py:9", 2)
    assert (record.total_s, record.max_s) == (pytest.approx(0.7), 0.5)
    assert (record.num_waiting, record.waited) == (3, ("1.0", "2.0"))


def test_of_many_culprits_the_cheapest_are_forgotten():
    counts = StallCounts()
    for number in range(1000):
        counts.add(Culprit(StallKind.BLOCKS_LOOP, f"{number}.py"), taken(1.0 + number))
    records = counts.records()
    assert len(records) == 256
    assert records[0].total_s == 1000.0
    assert records[-1].total_s == 745.0


def test_the_parts_of_a_run_are_added_up_as_a_manifest_keeps_them():
    counts = StallCounts()
    counts.add(SLEEP, taken(0.5, waiting=Waiting(3, ("1.0",))))
    statistics = RunStatistics(1)
    statistics.take_stalls(counts.records)
    earlier = stalls_of_summary(statistics.summary().to_json())
    assert earlier == counts.records()
    statistics.take_stalls(lambda: earlier)
    (record,) = statistics.summary().stalls
    assert (record.count, record.total_s, record.max_s) == (2, 1.0, 0.5)
    assert merged([]) == stalls_of_summary(None) == stalls_of_summary({}) == ()


def test_the_longest_calls_are_kept_with_their_trajectories():
    slowest = SlowestCalls()
    for number in range(20):
        slowest.add(f"{number}.0", number % 10 + number / 100)
    assert slowest.summary() == (
        SlowCall("19.0", 9.19),
        SlowCall("9.0", 9.09),
        SlowCall("18.0", 8.18),
    )


def test_a_summary_names_the_slowest_calls_of_tools_and_graders_and_the_graders_place():
    statistics = RunStatistics(1, grader_places={"one": "plugins/grader.py:4"})
    for number in range(4):
        name = f"{number}.0"
        turns = (TurnRecord(0.0, 0.1, tool_calls=("search",), tool_duration_s=float(number)),)
        attempts = (Attempt(Verdict.SUCCESS, 1.0),)
        success = Verdict.SUCCESS
        statistics.add_trajectory(
            TrajectoryRecord(name, number, 0, success, 1.0, attempts, turns=turns)
        )
        graded = GraderRecord("one", 1.0, success, (1.0,), duration_s=10.0 - number)
        statistics.add_group(GroupRecord(number, success, (name,), (1.0,), (graded,)))
    summary = statistics.summary()
    (tool,), (grader,) = summary.tools, summary.graders
    assert tool.slowest[0] == SlowCall("3.0", 3.0)
    assert tool.latency is not None
    assert tool.latency.p95_s == pytest.approx(2.85)
    assert grader.slowest[0] == SlowCall("0.0", 10.0)
    assert grader.place == "plugins/grader.py:4"
