"""Ctrl-C while plugins sleep: the command ends at once, with whole lines and nothing left (5.7)."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from arkdev.runs.reader import RunReader
from tests.integration.workspace import Workspace

SLEEPS = {
    "sync": """
        import time
        from arkdev import rollout

        @rollout
        def answer(context, proxy, sample):
            client = proxy.rollout_client()
            client.chat.completions.create(model="m", messages=sample.model_dump()["messages"])
            if sample.messages[0].content == "slow":
                print("asleep")
                time.sleep(600)
    """,
    "blocks the loop": """
        import time
        from arkdev import rollout

        @rollout
        async def answer(context, proxy, sample):
            client = proxy.async_rollout_client()
            await client.chat.completions.create(
                model="m", messages=sample.model_dump()["messages"]
            )
            if sample.messages[0].content == "slow":
                print("asleep")
                time.sleep(600)
    """,
    "swallows the cancellation": """
        import asyncio
        from arkdev import rollout

        @rollout
        async def answer(context, proxy, sample):
            if sample.messages[0].content == "slow":
                print("asleep")
            while sample.messages[0].content == "slow":
                try:
                    await asyncio.sleep(600)
                except asyncio.CancelledError:
                    pass
            client = proxy.async_rollout_client()
            await client.chat.completions.create(
                model="m", messages=sample.model_dump()["messages"]
            )
    """,
}


NUM_QUICK, NUM_SLOW = 4, 64


@pytest.fixture(params=SLEEPS)
def sleeping(workspace: Workspace, request: pytest.FixtureRequest) -> Iterator[Sleeping]:
    """A test of which 64 rollouts sleep for a minute."""
    workspace.write("plugins/rollout.py", SLEEPS[request.param])
    workspace.samples(*["quick"] * NUM_QUICK, *["slow"] * NUM_SLOW)
    out = workspace.root / "out"
    process = workspace.start("test", "plugin", "--concurrency", "64", "--out", str(out))
    try:
        wait_for(lambda: b"asleep" in read(out / "logs/plugin.jsonl"), process)
        if request.param != "blocks the loop":  # where that happens, nothing else goes on
            wait_for(lambda: read(out / "trajectories.jsonl").count(b"\n") == NUM_QUICK, process)
        yield Sleeping(process, out)
    finally:
        process.kill()
        process.communicate()


def test_ctrl_c_ends_at_once_with_whole_lines(sleeping: Sleeping) -> None:
    process, out = sleeping.process, sleeping.out
    children = children_of(process.pid)
    process.send_signal(signal.SIGINT)
    told, said = process.communicate(timeout=300)
    assert process.returncode == 130
    assert told == b""
    assert b"Traceback" not in said
    *lines, rest = read(out / "trajectories.jsonl").split(b"\n")
    assert rest == b""
    assert len([json.loads(line) for line in lines]) <= NUM_QUICK
    assert f"interrupted after {len(lines)} of {NUM_QUICK + NUM_SLOW} rollouts".encode() in said
    assert RunReader(out).status in ("interrupted", "killed")
    assert children == []


STARTS_PROGRAMS = """
    import asyncio, signal, subprocess, sys
    from arkdev import rollout

    STUBBORN = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); "

    @rollout
    async def answer(context, proxy, sample):
        line = STUBBORN + "time.sleep(600)"
        for _ in range(2):
            program = await asyncio.create_subprocess_exec(
                sys.executable, "-c", line, stdout=asyncio.subprocess.PIPE
            )
            await program.stdout.readline()
        print("asleep")
        await asyncio.sleep(600)
"""


def test_ctrl_c_ends_the_programs_that_plugins_started(workspace: Workspace) -> None:
    workspace.write("plugins/rollout.py", STARTS_PROGRAMS)
    out = workspace.root / "out"
    process = workspace.start("test", "plugin", "--out", str(out))
    try:
        wait_for(lambda: b"asleep" in read(out / "logs/plugin.jsonl"), process)
        programs = children_of(process.pid)
        assert len(programs) == 2
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=300)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130
    assert b"ended 2 programs that plugins had started" in said
    alive = subprocess.run(["ps", "-p", ",".join(programs)], capture_output=True, check=False)
    assert alive.returncode != 0


@dataclass(frozen=True)
class Sleeping:
    process: subprocess.Popen[bytes]
    out: Path


def wait_for(is_there: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    for _ in range(900):
        if is_there():
            return
        assert process.poll() is None, process.stderr and process.stderr.read()
        time.sleep(0.1)
    raise AssertionError("it never came")


def read(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""


def children_of(pid: int) -> list[str]:
    listed = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False
    )
    return listed.stdout.split()
