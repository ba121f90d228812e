"""Plugins that run out of time: nothing of theirs counts, and the command ends (decision 4)."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from arkdev.runs.reader import RunReader
from tests.integration.loopback import listening
from tests.integration.workspace import Command, Workspace

HEAD = """
    import asyncio, concurrent.futures, threading, time
    from arkdev import Runtime, group_rollout, rollout, single_grader

    def ask(proxy, text):
        client = proxy.rollout_client()
        client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": text}]
        )

    SHORT = Runtime(timeout=0.3)
"""
STAYS = {
    "a thread": """
    @rollout(runtime=SHORT)
    def answer(context, proxy, sample):
        ask(proxy, "in time")
        time.sleep(600)
    """,
    "a thread that prints without end": """
    @rollout(runtime=SHORT)
    def answer(context, proxy, sample):
        ask(proxy, "in time")
        while True:
            print("x" * 1000)
            time.sleep(0.0005)
    """,
    "a coroutine that swallows its cancellation": """
    @rollout(runtime=SHORT)
    async def answer(context, proxy, sample):
        while True:
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                pass
    """,
    "a task of the plugin's that swallows its cancellation": """
    async def never():
        while True:
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                pass

    @rollout(runtime=SHORT)
    async def answer(context, proxy, sample):
        await asyncio.create_task(never())
    """,
    "an asynchronous generator that does not close": """
    async def endless():
        try:
            yield 1
            await asyncio.sleep(600)
        finally:
            await asyncio.sleep(600)

    @rollout(runtime=SHORT)
    async def answer(context, proxy, sample):
        kept.append(endless())
        await kept[-1].__anext__()
        await asyncio.sleep(600)

    kept = []
    """,
    "threads of an executor": """
    pool = concurrent.futures.ThreadPoolExecutor(4)

    @rollout(runtime=SHORT)
    def answer(context, proxy, sample):
        pool.submit(time.sleep, 600).result()
    """,
    "a thread of asyncio.to_thread": """
    @rollout(runtime=SHORT)
    async def answer(context, proxy, sample):
        await asyncio.to_thread(time.sleep, 600)
    """,
    "a thread that is no daemon": """
    @rollout(runtime=SHORT)
    async def answer(context, proxy, sample):
        threading.Thread(target=time.sleep, args=(600,)).start()
        await asyncio.sleep(600)
    """,
}


def ended(workspace: Workspace, *arguments: str) -> tuple[int, str, str, Path]:
    """Run the command to its end, which must come soon."""
    out = workspace.root / "out"
    process = workspace.start("test", "plugin", "--out", str(out), *arguments)
    try:
        told, said = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        raise AssertionError("the command did not end") from None
    finally:
        process.kill()
        process.communicate()
    return process.returncode, told.decode(), said.decode(), out


@pytest.mark.parametrize("case", STAYS)
def test_the_command_ends_whatever_a_plugin_leaves_behind(workspace: Workspace, case: str) -> None:
    workspace.write("plugins/rollout.py", HEAD + STAYS[case])
    code, told, said, out = ended(workspace)
    assert "Traceback" not in said
    assert "Fatal" not in said
    assert "destroyed" not in said
    assert code == 1, said
    assert "time limits" in told
    assert "4 plugin calls ran out of time" in told
    (record,) = RunReader(out).trajectories()
    assert [attempt.error for attempt in record.attempts] == [record.attempts[0].error] * 4
    assert "PluginTimeoutError" in str(record.attempts[0].error)


LEAVES_A_PROGRAM = """
    import asyncio, pathlib
    from arkdev import Runtime, rollout

    @rollout(runtime=Runtime(timeout=1.5))
    async def answer(context, proxy, sample):
        program = await asyncio.create_subprocess_exec("sleep", "211")
        with pathlib.Path("pids").open("a", encoding="utf-8") as pids:
            pids.write(f"{program.pid}\\n")
        await asyncio.sleep(600)
"""


def test_programs_of_plugins_that_ran_out_of_time_end_with_the_command(
    workspace: Workspace,
) -> None:
    workspace.write("plugins/rollout.py", LEAVES_A_PROGRAM)
    workspace.samples("hello")
    process = workspace.start("test", "plugin")
    _, said = process.communicate(timeout=300)
    assert process.returncode == 1
    assert b"ended 4 programs that plugins had started" in said
    pids = (workspace.root / "pids").read_text(encoding="utf-8").split()
    assert len(pids) == 4
    alive = subprocess.run(["ps", "-p", ",".join(pids)], capture_output=True, check=False)
    assert alive.returncode != 0


IMPATIENT = """
    import httpx
    import openai
    from arkdev import rollout

    @rollout
    def answer(context, proxy, sample):
        client = openai.OpenAI(
            base_url=proxy.url,
            api_key=proxy.jwt_token,
            timeout=httpx.Timeout(60, read=0.7),
            max_retries=0,
        )
        client.chat.completions.create(model="m", messages=sample.model_dump()["messages"])
"""


def test_a_raw_client_s_own_timeout_is_a_fault_of_the_call_and_no_unreachable_endpoint(
    workspace: Workspace, arkdev: Command
) -> None:
    released = threading.Event()

    def late(_number: int, _body: dict[str, Any]) -> tuple[int, Any]:
        released.wait(60)
        return 0, {}

    workspace.write("plugins/rollout.py", IMPATIENT)
    workspace.samples("hello")
    with listening(late) as server:
        told = arkdev("test", "plugin", "--endpoint", server.url, "--out", "out")
        released.set()
    assert told.exit_code == 1
    (trajectory,) = RunReader(workspace.root / "out").trajectories()
    for attempt in trajectory.attempts:
        assert [(fault.side, fault.kind) for fault in attempt.faults] == [("model", "timeout")]
        assert "APITimeoutError" in attempt.error
        assert "the plugin's client hung up before the answer came" in attempt.error
