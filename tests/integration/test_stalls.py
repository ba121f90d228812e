"""`arkdev test plugin` names what holds it up, with file, line, time and who waited (5.1)."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from arkdev.harness.stalls import StallKind, StallRecord
from arkdev.runs.reader import RunReader
from tests.integration.loopback import listening
from tests.integration.workspace import GIVE_ONE, Command, Run, Workspace, job_yaml

HEAD = """
import asyncio
import json
import re
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import openai
import requests
from arkdev import rollout, single_grader

URL = "{url}"
POOL = ThreadPoolExecutor(2)
TEXT = json.dumps([{{"a": i, "b": str(i)}} for i in range(200_000)])


def ask(proxy, sample):
    client = proxy.async_rollout_client()
    messages = sample.model_dump()["messages"]
    return client.chat.completions.create(model="m", messages=messages)


def search():
    time.sleep(0.2)


def count(n):
    total = 0
    for i in range(n):
        total += i * i
    return total


"""
PARSE = "json.loads(TEXT)"
ASYNC = "@rollout\nasync def answer(context, proxy, sample):\n    await ask(proxy, sample)\n"
SYNC = """@rollout
def answer(context, proxy, sample):
    messages = sample.model_dump()["messages"]
    proxy.rollout_client().chat.completions.create(model="m", messages=messages)
"""
GIVE_SLOWLY = """
@single_grader
async def one(context, sample, trajectory):
    search()
    return 1.0
"""


@pytest.fixture
def slow_url() -> Iterator[str]:
    """A server that takes 0.4 s for each answer."""

    def policy(_number: int, _body: object) -> tuple[int, object]:
        time.sleep(0.4)
        return 200, {"found": True}

    with listening(policy) as server:
        yield server.url


def of_users(run: Run) -> list[StallRecord]:
    return [record for record in run.summary.stalls if record.kind is not StallKind.HARNESS]


def line_of(workspace: Workspace, text: str) -> str:
    path = workspace.root / "plugins" / "rollout.py"
    lines = path.read_text(encoding="utf-8").splitlines()
    return f"{path}:{next(i for i, line in enumerate(lines, start=1) if text in line)}"


def stalled(
    workspace: Workspace, code: str, *, url: str = "", samples: int = 6, **request: object
) -> list[StallRecord]:
    """Run `code` as the rollout on a few samples at once; what users are said to have stalled."""
    workspace.write("plugins/rollout.py", HEAD.format(url=url) + code)
    workspace.samples(*map(str, range(samples)))
    run = workspace.run(concurrency=samples, **request)
    assert [t.verdict for t in run.trajectories] == ["success"] * samples
    return of_users(run)


def interrupt_when_told(process: subprocess.Popen[bytes]) -> None:
    """Wait for the warning of what blocks, then press Ctrl-C."""
    assert process.stderr is not None
    told = b""
    while b"blocked the event loop" not in told:
        line = process.stderr.readline()
        assert line, told
        told += line
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=300)


def check_blocking_line(workspace: Workspace, line: str, *, called: str, url: str) -> None:
    records = stalled(workspace, f"{ASYNC}    {line}\n", url=url)
    worst = records[0]
    assert worst.kind is StallKind.BLOCKS_LOOP
    assert (worst.function, worst.called, worst.plugin) == ("answer", called, "answer")
    assert worst.where == line_of(workspace, line)
    assert 1 <= worst.count <= 6
    assert 0 < worst.num_waiting <= 6
    assert worst.waited


@pytest.mark.parametrize(
    ("line", "called"),
    [
        ("time.sleep(0.21)", "time.sleep"),
        (f"{PARSE}, {PARSE}, {PARSE}", "json.loads"),
        ('re.match(r"(a+)+$", "a" * 23 + "b")', "re.match"),
    ],
)
def test_a_blocking_line_of_an_async_rollout_is_named(
    workspace: Workspace, line: str, called: str
) -> None:
    check_blocking_line(workspace, line, called=called, url="")


@pytest.mark.parametrize("client", ["requests", "httpx"])
def test_a_synchronous_http_client_in_an_async_rollout_is_named(
    workspace: Workspace, slow_url: str, client: str
) -> None:
    line = f"{client}.post(URL, json={{}})"
    check_blocking_line(workspace, line, called=f"{client}.post", url=slow_url)


def test_a_computation_of_an_async_rollout_is_named_where_it_computes(workspace: Workspace) -> None:
    worst = stalled(workspace, f"{ASYNC}    count(4_000_000)\n")[0]
    assert worst.kind is StallKind.BLOCKS_LOOP
    assert (worst.function, worst.called, worst.plugin) == ("count", "", "answer")


def test_a_slow_function_of_an_async_grader_is_named(workspace: Workspace) -> None:
    grader = {"graders": ("plugins.rollout:one",)}
    worst = stalled(workspace, ASYNC + GIVE_SLOWLY, **grader)[0]
    assert worst.kind is StallKind.BLOCKS_LOOP
    assert (worst.function, worst.called, worst.plugin) == ("search", "time.sleep", "one")


@pytest.mark.parametrize(
    "call",
    [
        "proxy.rollout_client().chat.completions.create",
        "openai.OpenAI(base_url=proxy.url, api_key=proxy.jwt_token).chat.completions.create",
    ],
)
def test_a_model_call_by_a_sync_client_in_an_async_rollout_is_answered_and_named(
    workspace: Workspace, call: str
) -> None:
    def policy(_number: int, _body: object) -> tuple[int, object]:
        time.sleep(0.4)
        message = {"role": "assistant", "content": "fine"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return 200, {"id": "1", "object": "chat.completion", "model": "m", "choices": [choice]}

    code = f"""
@rollout
async def answer(context, proxy, sample):
    messages = sample.model_dump()["messages"]
    {call}(model="m", messages=messages)
"""
    with listening(policy) as server:
        records = stalled(workspace, code, samples=3, endpoint=f"{server.url}/v1", model="m")
    worst = records[0]
    assert worst.kind is StallKind.BLOCKS_LOOP
    assert worst.called.endswith(".create")
    assert (worst.function, worst.count) == ("answer", 3)


@pytest.mark.parametrize(
    ("line", "function"),
    [
        ("count(6_000_000)", "count"),
        (f"{PARSE}, {PARSE}, {PARSE}", "answer"),
    ],
)
def test_a_sync_rollout_that_keeps_the_interpreter_is_named(
    workspace: Workspace, line: str, function: str
) -> None:
    records = stalled(workspace, f"{SYNC}    {line}\n", samples=8)
    assert {record.kind for record in records} == {StallKind.HOLDS_INTERPRETER}, records
    assert records[0].function == function


@pytest.mark.parametrize(
    ("line", "function"),
    [
        ("await asyncio.to_thread(search)", "search"),
        ("await asyncio.to_thread(time.sleep, 0.2)", "answer"),
        ("await asyncio.get_running_loop().run_in_executor(POOL, search)", "search"),
    ],
)
def test_a_starved_thread_pool_is_named(workspace: Workspace, line: str, function: str) -> None:
    samples = 3 * (os.cpu_count() or 1) + 12
    worst = stalled(workspace, f"{ASYNC}    {line}\n", samples=samples)[0]
    assert worst.kind is StallKind.EXECUTOR_STARVED
    assert (worst.function, worst.called) == (function, "time.sleep")
    assert worst.num_waiting > 1
    assert worst.waited


def test_a_pool_that_sync_rollouts_share_is_named(workspace: Workspace) -> None:
    worst = stalled(workspace, f"{SYNC}    POOL.submit(search).result()\n")[0]
    assert (worst.kind, worst.function) == (StallKind.EXECUTOR_STARVED, "search")


@pytest.mark.parametrize(
    "code",
    [
        f"{ASYNC}    await asyncio.sleep(0.3)\n    json.loads('[1]')\n",
        f"{SYNC}    time.sleep(0.3)\n    json.loads('[1]')\n",
    ],
    ids=["async", "sync"],
)
def test_a_plugin_that_does_it_right_is_never_blamed(workspace: Workspace, code: str) -> None:
    assert stalled(workspace, code, samples=128) == []


def test_sync_graders_do_not_wait_for_each_other(workspace: Workspace) -> None:
    together = GIVE_ONE.replace("return 1.0", "all_grade.wait(60)\n        return 1.0")
    head = "    import threading\n    all_grade = threading.Barrier(64)\n"
    workspace.write("plugins/grader.py", f"{head}{together}")
    workspace.samples(*map(str, range(64)))
    run = workspace.run(concurrency=64)
    assert run.summary.num_graded == 64
    assert of_users(run) == []


def test_the_command_warns_while_it_runs_and_reports_with_advice(
    workspace: Workspace, arkdev: Command
) -> None:
    workspace.write("plugins/rollout.py", f"{HEAD.format(url='')}{ASYNC}    time.sleep(0.5)\n")
    workspace.samples("a", "b")
    told = arkdev("test", "plugin")
    place = line_of(workspace, "time.sleep(0.5)")
    assert f"warning: {place} answer blocked the event loop for" in told.err
    assert "What held the run up" in told.out
    assert "await asyncio.sleep(...)" in told.out
    shown = arkdev("show", "latest")
    assert "What held the run up" in shown.out

    document = arkdev("show", "latest", "--json").document
    record = document["run"]["summary"]["stalls"][0]
    assert record["kind"] == "blocks_loop"
    assert record["where"] == place
    assert 0.3 < record["max_s"] <= record["total_s"]
    (grader,) = document["run"]["summary"]["graders"]
    assert grader["place"].startswith(str(workspace.root / "plugins" / "grader.py"))


@pytest.mark.parametrize("text", ["off", "0"])
def test_the_watch_can_be_switched_off(workspace: Workspace, arkdev: Command, text: str) -> None:
    workspace.write("plugins/rollout.py", f"{HEAD.format(url='')}{ASYNC}    time.sleep(0.3)\n")
    document = arkdev("test", "plugin", "--stall-threshold", text, "--json").document
    assert document["summary"]["stalls"] == []


def test_a_stall_below_the_threshold_is_none(workspace: Workspace, arkdev: Command) -> None:
    workspace.write("plugins/rollout.py", f"{HEAD.format(url='')}{ASYNC}    time.sleep(0.3)\n")
    document = arkdev("test", "plugin", "--stall-threshold", "20s", "--json").document
    assert document["summary"]["stalls"] == []


@pytest.mark.parametrize("text", ["soon", "-5", "1ms", "2m", ""])
def test_a_threshold_that_cannot_be_is_refused(arkdev: Command, text: str) -> None:
    told = arkdev("test", "plugin", f"--stall-threshold={text}")
    assert told.exit_code == 2
    assert "--stall-threshold" in told.err


def test_a_plugin_that_blocks_for_good_is_named_before_the_process_ends(
    workspace: Workspace,
) -> None:
    workspace.write("plugins/rollout.py", f"{HEAD.format(url='')}{ASYNC}    time.sleep(600)\n")
    process = workspace.start("test", "plugin")
    interrupt_when_told(process)
    assert process.returncode == 130


def test_a_resumed_run_adds_what_its_interrupted_part_found(workspace: Workspace) -> None:
    code = f"{ASYNC}    time.sleep(0.21)\n    while (ROOT / 'stop').exists():\n"
    code = f"import pathlib\nROOT = pathlib.Path({str(workspace.root)!r})\n{code}"
    workspace.write(
        "plugins/rollout.py", HEAD.format(url="") + code + "        await asyncio.sleep(9)"
    )
    workspace.write("job.yaml", job_yaml(hyperparameters={"batch_size": 2}))
    workspace.samples("a", "b")
    (workspace.root / "stop").touch()
    process = workspace.start("test", "plugin", "--out", "part")
    interrupt_when_told(process)
    earlier = RunReader(workspace.root / "part").manifest.summary
    assert earlier is not None
    before_s = earlier["stalls"][0]["total_s"]
    (workspace.root / "stop").unlink()
    (record,) = of_users(workspace.run(resume=str(workspace.root / "part")))
    assert record.count == 4
    assert record.total_s > before_s + 0.3
