"""Threads of synchronous plugins."""

import asyncio
import contextvars
import gc
import threading
import time
import weakref

import pytest

from arkdev.plugin import threads
from arkdev.plugin.threads import call_in_thread

variable = contextvars.ContextVar("variable", default="unset")


@pytest.fixture
def no_idle_threads(monkeypatch):
    """Begin without idle threads of other tests."""
    monkeypatch.setattr(threads, "_idle", type(threads._idle)())


def plugin_threads():
    return {thread for thread in threading.enumerate() if thread.name == "arkdev-plugin"}


async def test_many_calls_by_n_slots_take_n_threads(no_idle_threads):
    before = plugin_threads()

    async def slot():
        for _ in range(50):
            await call_in_thread(threading.get_ident)

    await asyncio.gather(*(slot() for _ in range(8)))
    started = plugin_threads() - before
    assert 1 <= len(started) <= 8
    assert all(thread.daemon for thread in started)


async def test_one_slot_takes_one_thread(no_idle_threads):
    used = {await call_in_thread(threading.get_ident) for _ in range(50)}
    assert len(used) == 1


async def test_context_variables_come_along_and_do_not_leak():
    variable.set("mine")

    def changes():
        seen = variable.get()
        variable.set("changed by the plugin")
        return seen

    assert [await call_in_thread(changes) for _ in range(3)] == ["mine"] * 3
    assert variable.get() == "mine"
    context = contextvars.Context()
    assert await asyncio.create_task(call_in_thread(variable.get), context=context) == "unset"


async def test_arguments_results_and_exceptions_pass():
    assert await call_in_thread(lambda a, *, b: (a, b), 1, b=2) == (1, 2)
    with pytest.raises(KeyError, match="gone"):
        await call_in_thread({}.__getitem__, "gone")
    with pytest.raises(RuntimeError, match="StopIteration"):
        await call_in_thread(next, iter([]))
    with pytest.raises(SystemExit):
        await call_in_thread(exit)


async def test_an_abandoned_thread_does_not_block_and_its_result_is_dropped(no_idle_threads):
    release = threading.Event()
    stuck = asyncio.create_task(call_in_thread(release.wait, 60))
    await asyncio.sleep(0.01)
    stuck.cancel()
    started = time.perf_counter()
    with pytest.raises(asyncio.CancelledError):
        await stuck
    assert await call_in_thread(lambda: "next") == "next"
    assert time.perf_counter() - started < 30
    release.set()
    await asyncio.sleep(0.01)
    assert stuck.cancelled()
    assert await call_in_thread(lambda: "again") == "again"


async def test_an_idle_thread_keeps_nothing_alive(no_idle_threads):
    class Trajectory:
        pass

    made = []

    def plugin(argument):
        trajectory = Trajectory()
        made.extend([weakref.ref(trajectory), weakref.ref(argument)])
        return trajectory

    await call_in_thread(plugin, Trajectory())
    async with asyncio.timeout(60):
        while any(reference() is not None for reference in made):
            await asyncio.sleep(0.005)
            gc.collect()


def test_a_result_for_a_loop_that_is_closed_is_dropped():
    release, ended = threading.Event(), threading.Event()

    def plugin():
        release.wait(60)
        ended.set()

    async def gives_up():
        task = asyncio.create_task(call_in_thread(plugin))
        await asyncio.sleep(0)
        task.cancel()

    asyncio.run(gives_up())
    release.set()
    assert ended.wait(60)
    assert asyncio.run(call_in_thread(lambda: "alive")) == "alive"
