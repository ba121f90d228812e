"""Threads belong to the attempt that started them, and what they are given counts as its code's."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from arkdev.observe.plugin_threads import threads_follow
from arkdev.tape.callers import Workspace
from arkdev.tape.clock import clock_read_through
from arkdev.tape.randomness import Generators, random_drawn_from
from arkdev.tape.recording import current_stream
from arkdev.tape.threads import threads_call_for
from tests.unit.tape.attempts import attempt, module_at

SOURCE = """
import asyncio, dataclasses, random, threading, time, uuid
from concurrent.futures import ThreadPoolExecutor
from pydantic import BaseModel, Field
from typing import Any

POOL = ThreadPoolExecutor(1)

@dataclasses.dataclass
class Event:
    at: float = dataclasses.field(default_factory=time.time)
    id: Any = dataclasses.field(default_factory=uuid.uuid4)

class Note(BaseModel):
    at: float = Field(default_factory=time.time)
    id: Any = Field(default_factory=uuid.uuid4)
    luck: float = Field(default_factory=random.random)

def event(): return Event().at, Event().id
def note(): return Note().at, Note().id, Note().luck
def evaluated(): return eval("(random.random(), time.time())")
def pooled(): return POOL.submit(time.time).result(), *POOL.map(random.choice, ["abcdefgh"])
def in_threads():
    async def main():
        loop = asyncio.get_running_loop()
        threads = await asyncio.to_thread(random.random), await asyncio.to_thread(time.time)
        pool = await loop.run_in_executor(POOL, uuid.uuid4)
        return (*threads, pool, await loop.run_in_executor(None, time.time))
    return asyncio.run(main())
"""


class Numbered:
    """A clock of which each reading is the next number."""

    def __init__(self) -> None:
        self.number = 0

    def reading(self, name: str, read: Callable[[], Any]) -> Any:
        self.number += 1
        return float(self.number)


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    workspace = Workspace(tmp_path)
    with threads_call_for(workspace), threads_follow():
        yield workspace


@pytest.mark.parametrize("name", ["event", "note", "evaluated", "pooled", "in_threads"])
def test_what_is_called_for_the_workspaces_code_repeats_itself(
    tmp_path: Path, workspace: Workspace, name: str
) -> None:
    told = []
    for _ in range(2):
        generators = Generators(7)
        with ExitStack() as stack:
            stack.enter_context(clock_read_through(Numbered(), workspace))
            stack.enter_context(random_drawn_from(lambda made=generators: made, workspace))  # type: ignore[misc]
            code = module_at(tmp_path / "plugin.py", SOURCE)
            told.append(code[name]())
            code["POOL"].shutdown()
    assert told[0] == told[1]


def test_a_library_in_a_pool_keeps_the_real_clock(tmp_path: Path, workspace: Workspace) -> None:
    clock = Numbered()
    with clock_read_through(clock, workspace), ThreadPoolExecutor(1) as pool:
        assert pool.submit(time.time).result() > 10**9
        code = module_at(tmp_path / "plugin.py", "def ask(pool, f): return pool.submit(f).result()")
        assert code["ask"](pool, _library) > 10**9
    assert clock.number == 0


def _library() -> float:
    return time.time()


async def test_calls_in_executors_belong_to_their_own_attempts(workspace: Workspace) -> None:
    with ThreadPoolExecutor(1) as pool:
        for name in ("0.0", "1.0 judge"):
            with attempt(name):
                loop = asyncio.get_running_loop()
                assert await loop.run_in_executor(pool, current_stream) == (name, 0)
                assert await loop.run_in_executor(None, current_stream) == (name, 0)
        assert pool.submit(current_stream).result() == ("", 0)


def test_a_thread_belongs_to_the_attempt_that_started_it(workspace: Workspace) -> None:
    streams = []
    with attempt("3.1"):
        thread = threading.Thread(target=lambda: streams.append(current_stream()))
        thread.start()
        thread.join()
    assert streams == [("3.1", 0)]


def test_attempts_and_callers_follow_side_by_side() -> None:
    before = threading.Thread.start, ThreadPoolExecutor.submit
    of_tape = threads_call_for(Workspace(Path.cwd()))
    of_attempts = threads_follow()
    of_tape.__enter__()
    of_attempts.__enter__()
    of_tape.__exit__(None, None, None)  # a tape is closed first, though it began first
    assert before[0] is not threading.Thread.start
    of_attempts.__exit__(None, None, None)
    assert (threading.Thread.start, ThreadPoolExecutor.submit) == before
