"""Nothing stays in the engine: at the end, and at the next start after a kill -9."""

import asyncio
import sys

import pytest

from arkdev.faas_emulator.engines.deployments import deployment, remove_deployment, sweep
from arkdev.faas_emulator.engines.engine import ContainerSpec
from tests.docker.conftest import function

pytestmark = pytest.mark.docker


async def what_is_there(engine, deployment_id):
    labels = {"arkdev.deployment": deployment_id}
    return len(await engine.containers(labels)), len(await engine.networks(labels))


async def test_after_kill_9_the_next_start_removes_what_was_left_and_only_that(
    deploy, engine, stub_image
):
    which = function()
    running = await deploy(which)
    mine = await running.start(which)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.docker.left_behind", stub_image, stdout=asyncio.subprocess.PIPE
    )
    left = (await process.stdout.readline()).decode().strip()
    await sweep(engine)  # its owner lives
    assert await what_is_there(engine, left) == (1, 1)
    process.kill()
    await process.wait()
    assert await what_is_there(engine, left) == (1, 1)
    swept = await sweep(engine)
    assert (swept.num_containers, swept.num_networks) == (1, 1)
    assert await what_is_there(engine, left) == (0, 0)
    assert await mine.ended() is None


async def test_a_deployment_that_is_meant_to_last_stays_after_its_process(
    engine, stub_image, tmp_path
):
    async with deployment(engine, workspace=tmp_path, is_lasting=True) as lasting:
        gone = {**lasting.labels, "arkdev.owner": "/".join([*lasting.owner.split("/")[:4], "0"])}
        await engine.create(ContainerSpec(image=stub_image, name="arkdev-lasting", labels=gone))
    try:
        await sweep(engine)
        assert await what_is_there(engine, lasting.id) == (1, 0)
    finally:
        await remove_deployment(engine, lasting.id)
    assert await what_is_there(engine, lasting.id) == (0, 0)


async def test_an_error_in_a_deployment_leaves_nothing(engine, stub_image, tmp_path):
    with pytest.raises(KeyError):
        async with deployment(engine, workspace=tmp_path) as made:
            spec = ContainerSpec(image=stub_image, name="arkdev-failing", labels=made.labels)
            await engine.start(await engine.create(spec))
            raise KeyError
    assert await what_is_there(engine, made.id) == (0, 0)
