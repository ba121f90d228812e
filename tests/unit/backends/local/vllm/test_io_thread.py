"""The engine's own event loop, and who may be inside when."""

from __future__ import annotations

import asyncio

import pytest

from arkdev.backends.local.vllm.io_thread import Gate, IoThread
from arkdev.errors import PolicyEngineError


async def test_cancelling_the_wait_cancels_what_runs() -> None:
    thread, seen = IoThread("io"), []

    async def run() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    task = asyncio.create_task(thread.call(run()))
    await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait({task})
    await thread.close()
    assert task.cancelled() and seen == ["cancelled"]


async def test_closed_it_cancels_what_runs_and_takes_nothing_more() -> None:
    thread = IoThread("io")
    task = asyncio.create_task(thread.call(asyncio.sleep(60)))
    await asyncio.sleep(0.01)
    await thread.close()
    await asyncio.wait({task})
    assert task.cancelled()
    with pytest.raises(PolicyEngineError, match="closed"):
        await thread.call(asyncio.sleep(0))


async def test_alone_waits_for_those_inside_and_holds_up_those_to_come() -> None:
    gate, order = Gate(), []

    async def visit(name: str, seconds: float) -> None:
        async with gate.together():
            order.append(f"{name} in")
            await asyncio.sleep(seconds)
            order.append(f"{name} out")

    async def change() -> None:
        async with gate.alone():
            order.append("change")

    async with asyncio.TaskGroup() as group:
        group.create_task(visit("a", 0.02))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        group.create_task(change())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        group.create_task(visit("b", 0))
    assert order == ["a in", "a out", "change", "b in", "b out"]


async def test_giving_up_on_being_alone_lets_others_in() -> None:
    gate = Gate()
    async with gate.together():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01), gate.alone():
                pass
        async with asyncio.timeout(5), gate.together():
            pass
