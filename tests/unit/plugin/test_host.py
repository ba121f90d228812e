"""Calling a plugin once: results, timeouts, and plugins that try to get out."""

import asyncio
import gc
import re
import sys
import threading
import time

import pytest

from arkdev import Runtime, rollout
from arkdev.errors import PluginError, PluginTimeoutError
from arkdev.observe.held_calls import current_held_calls
from arkdev.plugin.host import InProcessHost
from arkdev.plugin.loading import load_plugin


async def invoke(function, host=None):
    return await (host or InProcessHost()).invoke(load_plugin(function, root=None), (1, 2, 3))


@pytest.mark.parametrize("is_async", [True, False])
async def test_arguments_go_by_position_and_the_result_comes_back_unread(is_async):
    @rollout
    async def asynchronous(c, p, s):
        return (c, p, s)

    @rollout
    def synchronous(c, p, s):
        return (c, p, s)

    assert await invoke(asynchronous if is_async else synchronous) == (1, 2, 3)


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_plugin_that_takes_too_long_is_left_behind(is_async):
    release = threading.Event()

    @rollout(runtime=Runtime(timeout=0.05))
    async def asynchronous(context, proxy, sample):
        await asyncio.sleep(60)

    @rollout(runtime=Runtime(timeout=0.05))
    def synchronous(context, proxy, sample):
        release.wait(60)

    started = time.perf_counter()
    with pytest.raises(PluginTimeoutError, match=r"took longer than 0\.05 s") as late:
        await invoke(asynchronous if is_async else synchronous)
    assert time.perf_counter() - started < 30
    assert late.value.where.startswith(__file__)
    release.set()


@pytest.mark.parametrize(("timeout_s", "held_s", "own_s"), [(2.0, 2.5, 0.0), (0.1, 0.2, 60.0)])
async def test_the_clock_of_a_plugin_stands_still_while_limits_hold_its_calls_back(
    timeout_s, held_s, own_s
):
    @rollout(runtime=Runtime(timeout=timeout_s))
    async def held(context, proxy, sample):
        with current_held_calls.get().timed():
            await asyncio.sleep(held_s)
        await asyncio.sleep(own_s)
        return "in time"

    if not own_s:
        assert await invoke(held) == "in time"
        return
    with pytest.raises(PluginTimeoutError) as late:
        await invoke(held)
    told = re.search(r"0\.1 s besides ([\d.]+) s in which limits held", str(late.value))
    assert told and float(told[1]) >= 0.2


async def test_a_plugin_that_will_not_be_cancelled_is_not_waited_for(caplog):
    may_end, ended = asyncio.Event(), asyncio.Event()

    @rollout(runtime=Runtime(timeout=0.02))
    async def stubborn(context, proxy, sample):
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await may_end.wait()
            ended.set()
            raise ValueError("on its way out") from None

    host = InProcessHost()
    with pytest.raises(PluginTimeoutError):
        await invoke(stubborn, host)
    assert not ended.is_set()
    may_end.set()
    await asyncio.wait_for(ended.wait(), 60)
    await asyncio.sleep(0)
    gc.collect()
    assert host._left_behind == set()
    assert [record for record in caplog.records if "never retrieved" in record.message] == []


async def test_a_cancelled_run_cancels_the_plugin():
    begun, cancelled = asyncio.Event(), asyncio.Event()

    @rollout
    async def waits(context, proxy, sample):
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()

    call = asyncio.create_task(invoke(waits))
    await begun.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await asyncio.wait_for(cancelled.wait(), 60)


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_plugin_that_exits_the_process_is_an_error(is_async):
    @rollout
    async def asynchronous(context, proxy, sample):
        sys.exit(3)

    @rollout
    def synchronous(context, proxy, sample):
        sys.exit(3)

    with pytest.raises(PluginError, match=r"called sys\.exit\(3\)") as refused:
        await invoke(asynchronous if is_async else synchronous)
    assert refused.value.where.startswith(__file__)


async def test_a_plugin_that_cancels_itself_is_an_error_and_not_a_cancelled_run():
    @rollout
    async def cancels_a_part_of_itself(context, proxy, sample):
        part = asyncio.create_task(asyncio.sleep(5))
        await asyncio.sleep(0)
        part.cancel()
        await part

    with pytest.raises(PluginError, match=r"ended with asyncio\.CancelledError") as refused:
        await invoke(cancels_a_part_of_itself)
    assert refused.value.where.startswith(__file__)
