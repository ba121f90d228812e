"""One function in a container of its own: what it is given, what it cannot do, how it ends."""

import asyncio
import time

import pytest

from arkdev.errors import InstanceError
from arkdev.faas_emulator.containers.container_usage import usage_of_stats
from arkdev.faas_emulator.images.image_plan import FUNCTION_UID
from arkdev.faas_emulator.records import InvocationStatus
from tests.docker.asking import ask, ask_its_last
from tests.docker.conftest import function

pytestmark = pytest.mark.docker


async def end_of(instance):
    for _ in range(1200):
        if (end := await instance.ended()) is not None:
            return end
        await asyncio.sleep(0.05)
    raise AssertionError("it goes on")


async def test_a_function_is_given_its_declared_variables_and_nothing_of_the_host(
    deploy, monkeypatch
):
    monkeypatch.setenv("SEARCH_API_KEY", "the-hosts-own")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    which = function(envs={"DECLARED": "as it was declared"}, timeout=7)
    deployed = await deploy(which)
    instance = await deployed.start(which)
    given = await ask(instance, "environment")
    assert given["DECLARED"] == "as it was declared"
    assert given["_FAAS_RUNTIME_PORT"] == "8000"
    assert given["_FAAS_FUNC_TIMEOUT"] == "7"
    assert given["ARKDEV_FUNCTION"] == "plugins.search:search"
    assert not {"SEARCH_API_KEY", "HTTP_PROXY", "DOCKER_HOST"} & given.keys()
    assert "the-hosts-own" not in given.values()


async def test_a_function_is_nobody_without_capabilities_on_a_root_that_cannot_be_written(deploy):
    which = function()
    deployed = await deploy(which)
    instance = await deployed.start(which)
    uid, gid, pid = await ask(instance, "identity")
    assert (uid, gid) == (FUNCTION_UID, FUNCTION_UID)
    assert pid != 1  # an init process reaps what the plugin leaves behind
    status = dict(
        line.split(":\t", 1)
        for line in (await ask(instance, "status")).splitlines()
        if "\t" in line
    )
    for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[kind], 16) == 0
    assert status["NoNewPrivs"] == "1"
    assert "Read-only file system" in await ask(instance, "write", "/stub")
    assert await ask(instance, "write", "/tmp/file") == "1"


async def test_tmp_holds_no_more_than_half_of_the_memory(deploy):
    which = function(memory_mb=96)
    deployed = await deploy(which)
    instance = await deployed.start(which)
    assert "No space left" in await ask(instance, "fill", 60)
    assert await instance.ended() is None


async def test_over_its_memory_an_instance_ends_with_that_cause_and_its_neighbour_goes_on(deploy):
    which = function(memory_mb=96)
    deployed = await deploy(which)
    leaking, healthy = await asyncio.gather(deployed.start(which), deployed.start(which))
    await ask(leaking, "leak", 300)
    end = await end_of(leaking)
    assert end.status is InvocationStatus.OUT_OF_MEMORY
    assert end.detail == "over its 96 MiB"
    assert (await leaking.usage()).memory_peak_mb == 96
    assert await healthy.ended() is None
    assert await ask(healthy, "identity")


async def test_an_exit_code_and_a_signal_are_told_apart(deploy):
    which = function()
    deployed = await deploy(which)
    exiting, crashing = await asyncio.gather(deployed.start(which), deployed.start(which))
    await ask_its_last(exiting, "exit", 3)
    await ask_its_last(crashing, "signal", "SIGSEGV")
    end = await end_of(exiting)
    assert (end.status, end.detail) == (InvocationStatus.CRASHED, "exit code 3")
    end = await end_of(crashing)
    assert (end.status, end.detail) == (InvocationStatus.CRASHED, "killed by SIGSEGV")


async def test_a_container_that_somebody_removes_is_lost(deploy, engine):
    which = function()
    deployed = await deploy(which)
    instance = await deployed.start(which)
    await engine.remove(instance.id)
    end = await end_of(instance)
    assert end.status is InvocationStatus.LOST
    assert "removed by somebody else" in end.detail


async def test_what_is_stopped_is_gone_at_once_and_nothing_else_is(deploy, engine):
    which = function(timeout=1)
    deployed = await deploy(which)
    endless, healthy = await asyncio.gather(deployed.start(which), deployed.start(which))
    asking = asyncio.ensure_future(ask_its_last(endless, "sleep", 600))
    spinning = asyncio.ensure_future(ask_its_last(endless, "spin", 600))
    await asyncio.sleep(0.5)
    began = time.monotonic()
    await asyncio.gather(endless.stop(), endless.stop())
    assert time.monotonic() - began < 60  # its calls take 600 s
    assert await engine.inspect(endless.id) is None
    assert await endless.ended() is None  # it did not end by itself
    assert await ask(healthy, "identity")
    await asyncio.gather(asking, spinning)


async def test_a_start_that_is_cancelled_leaves_no_container(deploy, engine):
    which = function(envs={"STUB": "hangs"})
    deployed = await deploy(which)
    starting = asyncio.ensure_future(deployed.start(which))
    await asyncio.sleep(0.01)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert await engine.containers({"arkdev.deployment": deployed.id}) == []


async def test_the_plugins_own_import_error_and_its_place_are_what_a_failed_start_says(
    deploy, engine, tmp_path
):
    which = function(envs={"STUB": "fails"}, root=tmp_path)
    deployed = await deploy(which)
    with pytest.raises(InstanceError, match="No module named 'nowhere'") as raised:
        await deployed.start(which)
    assert raised.value.where == f"{tmp_path}/plugins/search.py:3"
    assert await engine.containers({"arkdev.deployment": deployed.id}) == []


@pytest.mark.parametrize(
    ("behaviour", "cause"), [("exits", "exit code 7"), ("leaks", "over its 96 MiB")]
)
async def test_an_instance_that_ends_before_it_is_ready_says_why(deploy, behaviour, cause):
    which = function(envs={"STUB": behaviour})
    deployed = await deploy(which)
    with pytest.raises(InstanceError, match=f"ended before it was ready: {cause}"):
        await deployed.start(which)


async def test_an_instance_that_is_not_ready_in_time_is_an_error_and_is_removed(deploy, engine):
    which = function(envs={"STUB": "hangs"})
    deployed = await deploy(which, start_limit_s=1)
    with pytest.raises(InstanceError, match="not ready after 1 s"):
        await deployed.start(which)
    assert await engine.containers({"arkdev.deployment": deployed.id}) == []


async def test_times_of_the_engine_and_of_the_import_are_told_apart(deploy):
    which = function()
    deployed = await deploy(which)
    instance = await deployed.start(which)
    assert instance.import_s == 0.25  # what the worker says
    assert 0 < instance.engine_s < instance.ready_s


async def test_memory_and_cpu_seconds_are_measured(deploy, engine):
    which = function(memory_mb=128)
    deployed = await deploy(which)
    instance = await deployed.start(which)
    before = await instance.usage()
    await asyncio.gather(ask(instance, "leak", 40), ask(instance, "spin", 0.5))
    async with asyncio.timeout(60):  # it leaks beside its answer
        after = before
        while after.memory_peak_mb < before.memory_peak_mb + 30:
            await asyncio.sleep(0.1)
            after = await instance.usage()
    assert after.cpu_s >= before.cpu_s + 0.3
    by_engine = usage_of_stats(await engine.stats(instance.id))
    assert by_engine.memory_peak_mb == pytest.approx(after.memory_peak_mb, rel=0.2)
    assert by_engine.cpu_s == pytest.approx(after.cpu_s, rel=0.2)
    await instance.stop()
    assert (await instance.usage()).cpu_s >= after.cpu_s


async def test_more_cpus_than_the_machine_has_are_clamped_and_said_once(deploy, engine):
    which = function(instance="CPU16MEM128")
    deployed = await deploy(which)
    limits = deployed.launcher.limits(which)
    assert limits.num_cpus == engine.facts.num_cpus
    (note,) = [note for note in deployed.notes if "CPUs" in note]
    assert note in limits.notes
    instance = await deployed.start(which)
    inspected = await engine.inspect(instance.id)
    assert inspected["HostConfig"]["NanoCpus"] == engine.facts.num_cpus * 10**9


async def test_output_comes_byte_for_byte_by_its_stream(deploy):
    which = function()
    deployed = await deploy(which)
    instance = await deployed.start(which)
    text = "größer 中文 😊 " * 4000
    await ask(instance, "print", f"first\n{text}\nno end")
    await ask(instance, "error", b"\xff\xfe half \xc3\n".hex())
    await instance.stop()
    lines = [(line.stream, line.data) for line in deployed.lines]
    assert ("stdout", b"first") in lines
    assert ("stdout", text.encode()) in lines
    assert ("stdout", b"no end") in lines
    assert ("stderr", b"\xff\xfe half \xc3") in lines


async def test_the_engine_keeps_the_output_and_takes_signals(deploy, engine):
    which = function()
    deployed = await deploy(which)
    instance = await deployed.start(which)
    await ask(instance, "print", "kept\n")
    await ask(instance, "error", b"kept too\n".hex())
    out, err = await engine.logs(instance.id)
    assert out.endswith(b"kept\n")
    assert err == b"kept too\n"
    await engine.kill(instance.id, signal="SIGTERM")
    assert (await end_of(instance)).detail == "killed by SIGTERM"
    await engine.kill(instance.id)  # it has ended: nothing to do
