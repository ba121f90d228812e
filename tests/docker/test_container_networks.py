"""What functions reach: this machine's loopback by a mapped address, and no more than allowed."""

import asyncio
import socket
from dataclasses import replace

import pytest
from aiohttp import web

from arkdev.errors import EndpointUnreachableError
from arkdev.faas_emulator.choices import NetworkPolicy
from arkdev.faas_emulator.containers.container_launcher import ContainerLauncher
from arkdev.faas_emulator.engines.deployments import deployment
from arkdev.faas_emulator.engines.docker_engine import DockerEngine
from tests.docker.asking import ask
from tests.docker.conftest import function

pytestmark = pytest.mark.docker


@pytest.fixture
async def serve():
    """Start a small web server at an address of this machine; return its port."""
    runners = []

    async def at(address):
        async def hello(request):
            return web.Response(text=f"hello from {request.path}")

        app = web.Application()
        app.router.add_get("/{path:.*}", hello)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await runner.setup()
        runners.append(runner)
        await web.TCPSite(runner, address, 0).start()
        return runner.addresses[0][1]

    yield at
    for runner in runners:
        await runner.cleanup()


@pytest.mark.parametrize("bind", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize("policy", list(NetworkPolicy))
async def test_a_server_of_this_machine_is_reached_by_an_address_that_is_noted(
    deploy, serve, bind, policy
):
    port = await serve(bind)
    which = function(envs={"MODEL_URL": f"http://localhost:{port}/v1", "PLAIN": "localhost"})
    deployed = await deploy(which, network=policy)
    instance = await deployed.start(which)
    given = await ask(instance, "environment")
    assert given["PLAIN"] == "localhost"  # no URL
    assert "localhost" not in given["MODEL_URL"]
    assert given["MODEL_URL"].endswith("/v1")
    assert await ask(instance, "get", given["MODEL_URL"]) == "hello from /v1"
    address = given["MODEL_URL"].removeprefix("http://").removesuffix("/v1")
    assert f"localhost:{port} -> {address} inside the function" in deployed.notes


async def test_an_address_that_comes_later_is_mapped_too_and_noted_once(deploy, serve):
    port = await serve("127.0.0.1")
    which = function()
    deployed = await deploy(which)
    instance = await deployed.start(which)
    url = await deployed.launcher.inside(f"http://127.0.0.1:{port}/api/v3")
    assert url == await deployed.launcher.inside(f"http://127.0.0.1:{port}/api/v3")
    assert await ask(instance, "get", url) == "hello from /api/v3"
    assert len([note for note in deployed.notes if " -> " in note]) == 1
    assert await deployed.launcher.inside("https://ark.example/v3") == "https://ark.example/v3"


async def test_where_nothing_listens_the_error_names_both_addresses_and_how_to_bind(deploy):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        which = function(envs={"MODEL_URL": f"http://localhost:{port}/v1"})
        with pytest.raises(EndpointUnreachableError) as raised:
            await deploy(which)
    assert f"nothing listens at localhost:{port} on this machine" in raised.value.message
    assert "which functions would reach as 172." in raised.value.message
    assert "--host 0.0.0.0" in raised.value.hint


async def test_what_takes_connections_and_closes_them_at_once_is_not_reached(deploy):
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    # it closes at once what it takes, as an engine's forwarding does where nothing listens
    which = function(envs={"MODEL_URL": f"http://localhost:{port}"})
    with pytest.raises(EndpointUnreachableError) as raised:
        await deploy(which)
    server.close()
    assert f"localhost:{port} answers on this machine" in raised.value.message
    assert "closed at once" in raised.value.message


async def test_host_only_functions_reach_neither_other_machines_nor_each_other_nor_name_servers(
    deploy, engine
):
    which = function()
    deployed = await deploy(which, network=NetworkPolicy.HOST_ONLY)
    one, other = await asyncio.gather(deployed.start(which), deployed.start(which))
    inspected = await engine.inspect(other.id)
    ((name, network),) = inspected["NetworkSettings"]["Networks"].items()
    assert (await engine.network(name))["Internal"] is True
    assert "connected" not in await ask(one, "connect", "192.0.2.77", 80)
    assert "connected" not in await ask(one, "connect", network["IPAddress"], 8000)
    assert "gaierror" in await ask(one, "resolve", "example.org")


async def test_the_network_of_a_deployment_goes_with_it(deploy, engine):
    deployed = await deploy(function(), network=NetworkPolicy.HOST_ONLY)
    labels = {"arkdev.deployment": deployed.id}
    assert len(await engine.networks(labels)) == 1
    await deployed.launcher.close()
    await deployed.launcher.close()
    assert await engine.networks(labels) == []


async def test_where_containers_have_no_address_here_a_port_is_published_on_the_loopback(
    engine, stub_image, tmp_path
):
    virtual = DockerEngine(engine._client, replace(engine.facts, is_virtual=True))
    which = function()

    async def build():
        return stub_image

    async with deployment(virtual, workspace=tmp_path) as made:
        launcher = ContainerLauncher(
            [which], engine=virtual, deployment=made, build=build, on_note=print
        )
        await launcher.prepare()
        instance = await launcher.start(which, on_log=print)
        assert instance.url.startswith("http://127.0.0.1:")
        assert await ask(instance, "identity")
        await launcher.close()
