"""The functions of a run, summed up from its folder."""

from __future__ import annotations

import pytest

from arkdev.harness.functions_report import FUNCTION_EVENT, functions_of
from arkdev.runs.function_records import FunctionCallRecord, FunctionInstanceRecord
from arkdev.runs.reader import RunReader
from arkdev.runs.writer import RunWriter

LIMITS = {
    "name": "one",
    "instance": "container",
    "max_concurrency": 2,
    "min_replicas": 0,
    "max_replicas": 3,
    "timeout_s": 5.0,
    "num_cpus": 1,
    "memory_mb": 2048,
    "enforced_cpus": 1.0,
    "enforced_memory_mb": 2048,
    "notes": [],
}


@pytest.fixture
def writer(tmp_path):
    return RunWriter.create(tmp_path, kind="test", settings={}, hashes={}, versions={})


def at(second):
    return f"2026-01-01T00:00:{second:09.6f}Z"


def call(writer, *, queued_s=0.0, cold_start_s=0.0, service_s=1.0, status="ok", instance_id="i"):
    record = FunctionCallRecord(
        at=at(0),
        function="one",
        request_id="r",
        trajectory_ids=("0.0",),
        attempt=0,
        grader="one",
        step=None,
        instance_id=instance_id,
        status=status,
        queued_s=queued_s,
        cold_start_s=cold_start_s,
        service_s=service_s,
        num_concurrent=1,
    )
    writer.invocation(record)
    return record


def instance(writer, start, end, *, ending="closed", memory_peak_mb=100.0, cpu_s=1.0):
    record = FunctionInstanceRecord(
        function="one",
        instance_id="i",
        started_at=at(start),
        ended_at=at(end),
        ready_s=0.5,
        import_s=0.2,
        ending=ending,
        num_invocations=1,
        memory_peak_mb=memory_peak_mb,
        cpu_s=cpu_s,
    )
    writer.instance(record)
    return record


def summary(writer):
    writer.event(FUNCTION_EVENT, **LIMITS)
    (found,) = functions_of(RunReader(writer.folder))
    return found


def test_a_run_without_functions_has_none(writer):
    writer.event("limits")
    assert functions_of(RunReader(writer.folder)) == ()


def test_records_are_read_back_as_they_were_written(writer):
    records = call(writer), instance(writer, 0, 1)
    reader = RunReader(writer.folder)
    assert (next(reader.invocations()), next(reader.instances())) == records


def test_calls_are_counted_and_timed(writer):
    call(writer, queued_s=1.0, cold_start_s=1.0, service_s=2.0)
    call(writer, queued_s=6.0, service_s=4.0)
    call(writer, status="crashed", service_s=3.0)
    call(writer, status="not_started", instance_id="", service_s=0.0)
    found = summary(writer)
    assert (found.num_calls, found.num_cold_calls, found.num_queued_longer) == (4, 1, 1)
    assert found.statuses == {"crashed": 1, "not_started": 1}
    assert (found.queue.count, found.queue.max_s) == (4, 6.0)
    assert (found.service.count, found.service.p50_s) == (3, 3.0)  # of those that one took


def test_instances_over_time_are_counted_exactly(writer):
    instance(writer, 0, 10)
    instance(writer, 2, 4, ending="idle")
    instance(writer, 4, 6, ending="timeout", memory_peak_mb=None, cpu_s=None)
    found = summary(writer)
    assert [(p.at_s, p.num_instances) for p in found.instances_over_time] == [
        (0, 1),
        (2, 2),
        (4, 2),
        (6, 1),
        (10, 0),
    ]
    assert (found.num_instances, found.max_instances) == (3, 2)
    assert found.endings == {"timeout": 1}
    assert (found.memory_peak_mb, found.cpu_s) == (100.0, 2.0)
    assert found.cpu_used == pytest.approx(2 / 12)
    assert (found.start.p50_s, found.import_mean_s) == (0.5, pytest.approx(0.2))


def test_many_instances_over_time_are_a_few_points_that_keep_the_peak(writer):
    for number in range(50):
        instance(writer, number, number + 1.5)
    instance(writer, 20.1, 20.2)
    found = summary(writer)
    assert len(found.instances_over_time) <= 61
    assert max(point.num_instances for point in found.instances_over_time) == 3
    assert found.max_instances == 3


def test_instances_whose_end_a_killed_arkdev_never_wrote_are_told(writer):
    instance(writer, 0, 1)
    call(writer, instance_id="i")
    call(writer, status="not_started", instance_id="")
    assert summary(writer).notes == ()
    for instance_id in ("gone", "gone", "gone too"):
        call(writer, instance_id=instance_id)
    (note,) = summary(writer).notes
    assert note.startswith("one: 2 more instances took calls")


def test_a_function_without_a_call_or_an_end_is_there(writer):
    found = summary(writer)
    assert (found.num_calls, found.queue, found.start, found.memory_peak_mb) == (
        0,
        None,
        None,
        None,
    )
    assert found.instances_over_time == ()
