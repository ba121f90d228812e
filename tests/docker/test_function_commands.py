"""`arkdev test pipeline_plugin` and `arkdev faas up` in real containers."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from arkdev.endpoints.scripted.server import ScriptedServer
from arkdev.faas_emulator.engines.deployments import OWNER
from arkdev.faas_emulator.images.image_plan import WORKSPACE_LABEL, workspace_id

pytestmark = pytest.mark.docker

ROLLOUT = """
    import json
    from urllib.request import Request, urlopen
    from arkdev import RolloutResult, rollout

    @rollout
    def answer(context, proxy, sample):
        body = {"model": "m", "messages": sample.model_dump()["messages"]}
        head = {"Content-Type": "application/json", "Authorization": f"Bearer {proxy.jwt_token}"}
        request = Request(f"{proxy.url}/chat/completions", json.dumps(body).encode(), head)
        with urlopen(request, timeout=60) as response:
            said = json.load(response)["choices"][0]["message"]["content"]
        print("asked with", proxy.jwt_token)
        return RolloutResult(extra={"text": said})
"""
SAMPLE = {"messages": [{"role": "user", "content": "2 + 3 = ?"}], "extra": {}}
FN = ("--fn", "plugins.rollout:answer", "--faas-engine", "container")


@pytest.fixture
def workspace(tmp_path, monkeypatch, engine):
    """A rollout that needs no package."""
    root = tmp_path / "ws"
    (root / "plugins").mkdir(parents=True)
    lines = [line.removeprefix("    ") for line in ROLLOUT.splitlines()]
    (root / "plugins/rollout.py").write_text("\n".join(lines), encoding="utf-8")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    yield root
    arkdev(root, "faas", "down", "--all")


@pytest.fixture
async def model():
    server = ScriptedServer()
    yield await server.start()
    await server.stop()


def arkdev(root, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "arkdev", *arguments],
        cwd=root,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


async def of_workspace(engine, root):
    return await engine.containers({WORKSPACE_LABEL: workspace_id(root)})


async def in_thread(function, *arguments):
    return await asyncio.to_thread(function, *arguments)


async def test_a_proxy_on_this_machine_is_mapped_tried_out_and_noted(workspace, engine, model):
    proxy = {"url": model, "jwt_token": "token-of-a-caller"}
    request = json.dumps({"sample": SAMPLE, "proxy": proxy})
    call = ("test", "pipeline_plugin", *FN, "--request")
    told = await in_thread(arkdev, workspace, *call, request)
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout)["extra"]["text"]
    assert " inside the function" in told.stderr
    assert "asked with ***" in told.stderr
    assert await of_workspace(engine, workspace) == []
    nobody = json.dumps({"sample": SAMPLE, "proxy": {"url": "http://localhost:9/v1"}})
    told = await in_thread(arkdev, workspace, *call, nobody)
    assert told.returncode == 4
    assert "nothing listens at localhost:9" in told.stderr


async def test_a_deployment_is_called_and_nothing_of_it_is_left_by_down(workspace, engine, model):
    up = ("faas", "up", *FN, "--detach", "--json")
    told = await in_thread(arkdev, workspace, *up)
    assert told.returncode == 0, told.stderr
    kept = json.loads(told.stdout)
    assert kept["engine"] == "container"
    url = kept["functions"][0]["url"]
    good = {"sample": SAMPLE, "proxy": {"url": model, "jwt_token": "t"}}
    assert (await in_thread(posted, url, good))["result"]["extra"]["text"]
    bad = {"sample": SAMPLE, "proxy": {"url": "http://localhost:9/v1"}}
    refused = await in_thread(posted, url, bad)
    assert refused["error"]["code"] == "InvalidParameter"
    assert len(await of_workspace(engine, workspace)) == 1
    assert (await in_thread(arkdev, workspace, "faas", "down")).returncode == 0
    assert await of_workspace(engine, workspace) == []


async def test_containers_of_a_killed_deployment_are_removed_and_those_of_others_are_not(
    workspace, engine
):
    up = ("faas", "up", *FN, "--detach", "--json")
    killed = json.loads((await in_thread(arkdev, workspace, *up)).stdout)
    kept = json.loads((await in_thread(arkdev, workspace, *up)).stdout)
    os.kill(killed["pid"], signal.SIGKILL)
    await asyncio.sleep(0.5)
    assert len(await of_workspace(engine, workspace)) == 2
    told = await in_thread(arkdev, workspace, "faas", "status", "--json")
    assert [each["id"] for each in json.loads(told.stdout)["deployments"]] == [kept["id"]]
    assert "removed what an arkdev that was killed had left: 1 containers" in told.stderr
    assert f"removed what the deployment {killed['id']} left" in told.stderr
    (left,) = await of_workspace(engine, workspace)
    assert f"/{kept['pid']}/" in left["Labels"][OWNER]


def posted(url, body):
    try:
        with urlopen(url, json.dumps(body).encode(), timeout=60) as response:
            return json.load(response)
    except HTTPError as error:
        with error:
            return json.load(error)
