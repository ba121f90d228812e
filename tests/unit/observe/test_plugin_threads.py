"""Which attempt the threads of plugins belong to."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.pool import ThreadPool

import pytest

from arkdev.observe.attempt import attempt_here, current_attempt, in_flight
from arkdev.observe.plugin_threads import threads_follow


@dataclass(frozen=True)
class NamedAttempt:
    name: str


@contextmanager
def attempt(name):
    under_way = NamedAttempt(name)
    token = current_attempt.set(under_way)
    in_flight[under_way] = True
    try:
        yield
    finally:
        in_flight.pop(under_way)
        current_attempt.reset(token)


def name_here():
    here = attempt_here()
    return here.name if here is not None else None


@pytest.fixture(autouse=True)
def following():
    with threads_follow():
        yield


def in_thread():
    names = []
    thread = threading.Thread(target=lambda: names.append(name_here()))
    thread.start()
    thread.join()
    return names


def in_thread_of_a_thread():
    names = []
    thread = threading.Thread(target=lambda: names.extend(in_thread()))
    thread.start()
    thread.join()
    return names


def in_executor():
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda _: name_here(), range(4)))


def in_thread_pool():
    with ThreadPool(2) as pool:
        return pool.map(lambda _: name_here(), range(4))


def in_executor_of_a_loop():
    async def main():
        return await asyncio.get_running_loop().run_in_executor(None, name_here)

    return [asyncio.run(main())]


@pytest.mark.parametrize(
    "ask", [in_thread, in_thread_of_a_thread, in_executor, in_thread_pool, in_executor_of_a_loop]
)
def test_what_an_attempt_starts_in_threads_belongs_to_it(ask):
    with attempt("7.1"):
        names = ask()
    assert set(names) == {"7.1"}
    assert set(ask()) == {None}


def test_a_call_belongs_to_who_submitted_it_whichever_thread_of_the_pool_runs_it():
    with ThreadPoolExecutor(1) as pool:
        names = []
        for name in ("7.0", "7.1"):
            with attempt(name):
                names.append(pool.submit(name_here).result())
        names.append(pool.submit(name_here).result())
    assert names == ["7.0", "7.1", None]


def test_a_thread_that_outlives_its_attempt_belongs_to_none():
    is_over, names = threading.Event(), []

    def lives_on():
        is_over.wait(60)
        names.append(name_here())

    thread = threading.Thread(target=lives_on)
    with attempt("7.1"):
        thread.start()
    is_over.set()
    thread.join()
    assert names == [None]
