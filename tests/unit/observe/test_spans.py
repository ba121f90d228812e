"""Spans: whose they are, in tasks and in threads."""

import asyncio
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from arkdev.flows.tracing import Tracing
from arkdev.observe import spans
from arkdev.observe.plugin_threads import threads_follow


@contextmanager
def recorded():
    found = []
    with spans.recording(found.append) as recording, threads_follow():
        yield recording, found


@contextmanager
def attempt(recording, name="7.1", number=0):
    root = recording.root(f"attempt {name}", trajectory_ids=(name,), attempt=number)
    with spans.opened(root):
        yield root


def tool(recording, name="tool"):
    with spans.opened(recording.child(name)) as span:
        return span


def test_nothing_is_recorded_until_a_recording_begins():
    assert spans.active() is None
    with recorded() as (recording, _):
        assert spans.active() is recording
    assert spans.active() is None


def test_children_belong_to_what_is_open_around_them():
    with recorded() as (recording, found):
        with attempt(recording) as root, spans.opened(recording.child("outer")) as outer:
            inner = tool(recording)
        after = recording.child("late")
    assert [span.name for span in found] == ["tool", "outer", "attempt 7.1"]
    assert (inner.parent_id, outer.parent_id, root.parent_id) == (
        outer.span_id,
        root.span_id,
        None,
    )
    assert {span.trace_id for span in found} == {root.trace_id}
    assert inner.trajectory_ids == ("7.1",)
    assert after is None
    assert root.started_ns <= outer.started_ns <= inner.started_ns <= inner.ended_ns
    assert inner.ended_ns <= outer.ended_ns <= root.ended_ns


def test_a_span_outside_of_every_attempt_is_not_made():
    with recorded() as (recording, found):
        assert recording.child("tool") is None
        with spans.opened(None) as span:
            assert span is None
    assert found == []


def test_an_error_is_kept_and_goes_on():
    with recorded() as (recording, found), pytest.raises(KeyError), attempt(recording):
        raise KeyError("x")
    (span,) = found
    assert (span.error, span.attributes["error.type"]) == ("KeyError: 'x'", "KeyError")


def test_plugins_find_the_random_generator_as_they_left_it():
    random.seed(1)
    expected = random.random()
    random.seed(1)
    with recorded() as (recording, found):
        with attempt(recording):
            tool(recording)
        random.seed(1)
        with attempt(recording):
            tool(recording)
    random.seed(1)
    assert random.random() == expected
    assert len({span.span_id for span in found}) == 4


async def test_256_tasks_at_once_keep_their_spans_apart():
    async def rollout(recording, name):
        with attempt(recording, name):
            for _ in range(3):
                with spans.opened(recording.child(name)):
                    await asyncio.sleep(random.random() / 1000)
                    await asyncio.to_thread(tool, recording, name)

    with recorded() as (recording, found):
        await asyncio.gather(*(rollout(recording, f"{i}.0") for i in range(256)))
    by_id = {span.span_id: span for span in found}
    assert len(found) == 256 * 7
    for span in found:
        assert span.name in (span.trajectory_ids[0], f"attempt {span.trajectory_ids[0]}")
        if span.parent_id is not None:
            parent = by_id[span.parent_id]
            assert parent.trajectory_ids == span.trajectory_ids
            assert parent.trace_id == span.trace_id


def test_calls_of_a_shared_pool_belong_to_who_submitted_them():
    # field case 10.1, the pool form: its threads were started by the first rollout that used it
    with recorded() as (recording, found), ThreadPoolExecutor(2) as pool:

        def rollout(name):
            with attempt(recording, name):
                for _ in range(3):
                    pool.submit(tool, recording, name).result()

        threads = [threading.Thread(target=rollout, args=(f"{i}.0",)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    tools = [span for span in found if not span.name.startswith("attempt")]
    assert len(tools) == 24
    assert all(span.name == span.trajectory_ids[0] for span in tools)


def test_a_thread_that_ends_with_its_attempt_is_the_attempt_s_own():
    with recorded() as (recording, found), attempt(recording) as root:
        inner = threading.Thread(target=tool, args=(recording, "inner"))

        def work():
            tool(recording, "outer")
            inner.start()
            inner.join()

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert found == []  # not before it is known whose they are
    assert [span.name for span in found] == ["outer", "inner", "attempt 7.1"]
    assert {span.parent_id for span in found[:2]} == {root.span_id}
    assert recording.num_foreign == 0


def test_what_a_worker_that_lives_on_records_is_left_out():
    # it was started by one rollout and serves the others as well
    stop, served = threading.Event(), threading.Event()
    with recorded() as (recording, found):

        def work():
            tool(recording, "for somebody")
            served.set()
            stop.wait()

        worker = threading.Thread(target=work)
        with attempt(recording):
            worker.start()
            served.wait()
        stop.set()
        worker.join()
    assert [span.name for span in found] == ["attempt 7.1"]
    assert recording.num_foreign == 1


def test_what_begins_after_its_attempt_has_ended_is_counted():
    stop = threading.Event()
    with recorded() as (recording, found):

        def work():
            stop.wait()
            tool(recording)
            tool(recording)

        worker = threading.Thread(target=work)
        with attempt(recording) as root:
            worker.start()
            recording.child("never ended")
        stop.set()
        worker.join()
        with spans.current_is(root):  # a task that the attempt left running
            tool(recording)
        assert (recording.num_foreign, recording.num_late, recording.num_open) == (2, 1, 1)
    assert [span.name for span in found] == ["attempt 7.1"]
    (warning,) = Tracing(recording, num_open=1).warnings
    assert warning.startswith("spans are left out: 2 were made in threads that outlived")
    assert warning.endswith(
        "; 1 began after their attempt had ended; 1 had not ended when the run did"
    )


def test_threads_are_as_before_afterwards():
    before = threading.Thread.start, ThreadPoolExecutor.submit
    with threads_follow():
        assert threading.Thread.start is not before[0]
    assert (threading.Thread.start, ThreadPoolExecutor.submit) == before
