"""``--faas`` with containers: the records of a run in process, and nothing left behind."""

from __future__ import annotations

import signal
import time

import pytest

from arkdev.errors import ExitCode
from arkdev.faas_emulator.engines.deployments import WORKSPACE
from arkdev.faas_emulator.images.image_plan import workspace_id
from tests.integration.faas_runs import OPENAI, logged, records
from tests.integration.workspace import Workspace, away_from_the_user

pytestmark = pytest.mark.docker

ROLLOUT = """
    from arkdev import RolloutResult, Runtime, rollout

    @rollout(runtime=Runtime(max_concurrency=1, min_replicas=2, max_replicas=2))
    async def answer(context, proxy, sample):
        client = proxy.async_rollout_client()
        messages = [message.model_dump() for message in sample.messages]
        completion = await client.chat.completions.create(model="m", messages=messages)
        print("asked", sample.extra["number"])
        return RolloutResult(extra={"text": completion.choices[0].message.content})
"""
ENDLESS = """
    import time
    from arkdev import RolloutResult, Runtime, rollout

    @rollout(runtime=Runtime(max_concurrency=1, max_replicas=2, timeout=TIMEOUT))
    async def answer(context, proxy, sample):
        print("asked", sample.extra["number"])
        while sample.extra["number"] == 1:
            time.sleep(0.05)
        return RolloutResult(extra={"text": ""})
"""
GRADER = """
    import os
    from openai import OpenAI
    from arkdev import single_grader

    @single_grader
    def one(context, sample, trajectory):
        client = OpenAI(base_url=os.environ["ARK_BASE_URL"], api_key=os.environ["ARK_API_KEY"])
        asked = [{"role": "user", "content": "Rate it from 0 to 1: " + trajectory.extra["text"]}]
        answer = client.chat.completions.create(model="judge", messages=asked)
        return float(len(answer.choices[0].message.content))
"""


@pytest.fixture
def workspace(engine, tmp_path, monkeypatch):
    with away_from_the_user(tmp_path / "config", monkeypatch):
        workspace = Workspace(tmp_path / "ws")
        workspace.write("requirements.txt", OPENAI)
        workspace.write("plugins/grader.py", GRADER)
        numbers = range(3)
        workspace.lines(
            {"messages": [{"role": "user", "content": f"hello {n}"}], "extra": {"number": n}}
            for n in numbers
        )
        yield workspace


async def left_of(engine, workspace):
    return await engine.containers({WORKSPACE: workspace_id(workspace.root)})


async def running_here(engine, workspace):
    """Start a run that does not end; return it once it has printed something."""
    workspace.write("plugins/rollout.py", ENDLESS.replace("TIMEOUT", "60"))
    run = workspace.start("test", "plugin", "--faas", "--faas-engine", "container", "--out", "r")
    log = workspace.root / "r" / "logs" / "plugin.jsonl"
    limit = time.monotonic() + 240
    while not log.exists() and time.monotonic() < limit:
        time.sleep(0.1)  # noqa: ASYNC251
    assert await left_of(engine, workspace)
    return run


def test_the_records_are_those_of_the_run_in_process(workspace):
    workspace.write("plugins/rollout.py", ROLLOUT)
    here = workspace.run(num_generations=2)
    apart = workspace.run(num_generations=2, faas=True, faas_engine="container")
    assert records(apart.outcome.folder) == records(here.outcome.folder)
    printed = {line for line in logged(apart) if line[0] == "PRINT"}
    assert printed == {line for line in logged(here) if line[0] == "PRINT"} != set()
    answer = apart.summary.functions[0]
    assert answer.instance == "container" and answer.max_instances == 2
    assert answer.memory_peak_mb > 10 and answer.enforced_memory_mb == 2048


def test_only_the_container_of_a_call_that_takes_too_long_is_gone(workspace):
    workspace.write("plugins/rollout.py", ENDLESS.replace("TIMEOUT", "4"))
    run = workspace.run(faas=True, faas_engine="container")
    answer, one = run.summary.functions
    assert answer.statuses == {"timeout": 4} and answer.endings == {"timeout": 4}
    assert one.endings == {}
    by_id = {instance.instance_id: instance for instance in run.reader.instances()}
    for call in run.reader.invocations():
        expected = "timeout" if call.status == "timeout" else by_id[call.instance_id].ending
        assert by_id[call.instance_id].ending == expected
    assert [trajectory.verdict for trajectory in run.trajectories] == [
        "success",
        "failure",
        "success",
    ]


async def test_ctrl_c_leaves_no_container(workspace, engine):
    run = await running_here(engine, workspace)
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=300)
    assert run.returncode == ExitCode.INTERRUPTED
    assert await left_of(engine, workspace) == []


async def test_what_kill_9_leaves_is_removed_by_the_next_run_which_says_so(workspace, engine):
    run = await running_here(engine, workspace)
    run.kill()
    run.communicate(timeout=300)
    assert await left_of(engine, workspace)
    workspace.write("plugins/rollout.py", ROLLOUT)
    again = workspace.start("test", "plugin", "--faas", "--faas-engine", "container")
    _, said = again.communicate(timeout=300)
    assert "removed what an arkdev that was killed had left: " in said.decode()
    assert await left_of(engine, workspace) == []


def test_what_arkdev_asks_of_its_engine_is_no_service_of_the_plugins(workspace):
    workspace.write("plugins/rollout.py", ENDLESS.replace("TIMEOUT", "4"))
    run = workspace.run(faas=True, faas_engine="container", concurrency=3)
    assert run.summary.functions[0].num_instances > 2  # most were started for a call
    assert run.summary.services == ()
