"""What holds the loops up is named, and nobody who does not."""

import asyncio
import gc
import inspect
import os
import sysconfig
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from arkdev import rollout
from arkdev.harness.stall_frames import attempt_on, users_place
from arkdev.harness.stall_watch import StallWatch
from arkdev.harness.stalls import StallKind
from tests.running import QUESTION, lines, running

THRESHOLD_S = 0.1


@contextmanager
def watched(run=None):
    watch = StallWatch(THRESHOLD_S)
    watch.start(run.services.blocking_loop if run else None)
    try:
        yield watch
    finally:
        watch.stop()


def users(watch):
    return [record for record in watch.records() if record.kind is not StallKind.HARNESS]


def line_of(function, text):
    source, first = inspect.getsourcelines(function)
    number = next(index for index, line in enumerate(source) if text in line)
    return f"{inspect.getsourcefile(function)}:{first + number}"


def parse_slowly(seconds):
    time.sleep(seconds)


LIBRARY = """
import sys

class Shop:
    async def __aenter__(self):
        told.append(look(sys._getframe()))

    async def __aexit__(self, *error):
        pass

    def __enter__(self):
        told.append(look(sys._getframe()))

    def __exit__(self, *error):
        pass
"""


async def test_what_is_awaited_is_told_apart_from_what_is_called():
    """A coroutine function is nothing to put into a thread."""
    told: list = []
    shop = {"__name__": "shop", "told": told, "look": users_place}
    exec(compile(LIBRARY, f"{sysconfig.get_path('purelib')}/shop.py", "exec"), shop)
    async with shop["Shop"]():
        pass
    with shop["Shop"]():
        pass
    assert [place.called for place in told] == ["await shop.Shop.__aenter__", "shop.Shop.__enter__"]


async def test_a_sleep_on_the_loop_is_named_with_its_time_and_who_waited():
    begun = asyncio.Barrier(4)

    @rollout
    async def answer(context, proxy, sample):
        await begun.wait()
        if sample.extra["index"] == 2:
            parse_slowly(0.8)

    async with running() as run:
        with watched(run) as watch:
            started = time.perf_counter()
            await run.samples(answer, lines=lines(4), concurrency=4)
            (record,) = users(watch)
            took_s = time.perf_counter() - started
    assert record.kind is StallKind.BLOCKS_LOOP
    assert (record.function, record.called) == ("parse_slowly", "time.sleep")
    assert record.where == line_of(parse_slowly, "time.sleep")
    assert record.plugin.endswith("answer")
    assert record.count == 1
    assert 0.5 < record.total_s <= took_s + 0.1
    assert record.num_waiting == 3
    assert set(record.waited) == {"0.0", "1.0", "3.0"}


def waits_for_a_lock():
    lock = threading.Lock()
    lock.acquire()
    threading.Timer(0.8, lock.release).start()
    with lock:
        pass


def waits_for_lines():
    read, write = os.pipe()
    threading.Timer(0.8, os.close, (write,)).start()
    with open(read, encoding="utf-8") as pipe:
        for _ in pipe:
            pass


@pytest.mark.parametrize(
    ("wait", "statement"), [(waits_for_a_lock, "with lock"), (waits_for_lines, "for _ in pipe")]
)
async def test_a_statement_that_blocks_the_loop_is_named(wait, statement):
    @rollout
    async def answer(context, proxy, sample):
        wait()

    async with running() as run:
        with watched(run) as watch:
            started = time.perf_counter()
            await run.rollout(answer)
            (record,) = users(watch)
            took_s = time.perf_counter() - started
    assert record.kind is StallKind.BLOCKS_LOOP
    assert (record.function, record.where) == (wait.__name__, line_of(wait, statement))
    assert 0.4 < record.total_s <= took_s + 0.1


async def test_each_attempt_that_blocks_is_counted_though_they_block_in_a_row():
    begun = asyncio.Barrier(3)

    @rollout
    async def answer(context, proxy, sample):
        await begun.wait()
        parse_slowly(0.5)

    async with running() as run:
        with watched(run) as watch:
            await run.samples(answer, lines=lines(3), concurrency=3)
            (record,) = users(watch)
    assert record.count == 3
    assert record.max_s < record.longest_stall_s - 0.5


async def test_a_call_of_a_synchronous_client_on_the_loop_is_answered_and_named():
    @rollout
    async def answer(context, proxy, sample):
        proxy.rollout_client().chat.completions.create(**QUESTION)

    async with running(delay_s=0.6) as run:
        await run.rollout(answer)  # imports the client
        with watched(run) as watch:
            finished = await run.rollout(answer)
            (record,) = users(watch)
    assert finished.record.verdict == "success"
    assert record.called == "proxy.rollout_client().chat.completions.create"


async def test_a_full_pool_is_named_with_what_its_threads_do_and_who_waited():
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))

    @rollout
    async def answer(context, proxy, sample):
        await asyncio.to_thread(parse_slowly, 0.4)

    async with running() as run:
        with watched(run) as watch:
            await run.samples(answer, lines=lines(6), concurrency=6)
            # a busy machine may hold up the loop as well
            starved = [one for one in users(watch) if one.kind is StallKind.EXECUTOR_STARVED]
    record = max(starved, key=lambda one: one.num_waiting)
    assert (record.function, record.called) == ("parse_slowly", "time.sleep")
    assert record.num_waiting >= 2
    assert set(record.waited) <= {f"{index}.0" for index in range(6)}
    assert record.waited


async def test_a_pool_that_one_rollout_makes_for_itself_is_its_own_affair():
    @rollout
    def answer(context, proxy, sample):
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(parse_slowly, [0.1] * 6))

    async with running() as run:
        with watched(run) as watch:
            await run.samples(answer, lines=lines(2), concurrency=2)
            assert users(watch) == []


async def test_neither_threads_that_wait_nor_a_late_loop_of_arkdev_s_own_blame_a_plugin():
    released = threading.Event()

    @rollout
    def answer(context, proxy, sample):
        released.wait(60)

    async with running() as run:
        with watched(run) as watch:
            ran = asyncio.ensure_future(run.samples(answer, lines=lines(4), concurrency=4))
            await asyncio.sleep(0.05)
            asyncio.get_running_loop().call_soon(released.wait, 0.25)  # no frame of the user's
            await asyncio.sleep(0.1)
            released.set()
            await ran
            assert users(watch) == []


async def test_watching_leaves_nothing_behind():
    callbacks, threads = list(gc.callbacks), set(threading.enumerate())
    with watched():
        (watcher,) = set(threading.enumerate()) - threads
    assert gc.callbacks == callbacks
    assert not watcher.is_alive()


async def test_a_sync_plugin_s_thread_knows_its_attempt_and_its_place():
    seen = {}

    @rollout
    def answer(context, proxy, sample):
        import sys

        frame = sys._current_frames()[threading.get_ident()]
        seen["attempt"], seen["place"] = attempt_on(frame), users_place(frame)

    async with running() as run:
        await run.rollout(answer)
    assert seen["attempt"].name == "0.0"
    assert seen["place"].function.endswith("answer")
    assert not seen["place"].is_waiting


async def test_what_defeats_the_watch_ends_the_watch_and_not_the_run(caplog, monkeypatch):
    with watched() as watch:
        monkeypatch.setattr(watch, "_end_stalls", None)
        assert watch.records() == ()
    assert "the run goes on without it" in caplog.text
