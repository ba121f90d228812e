"""Results and nothing else on stdout, whatever plugins do, and whichever streams are closed."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

from tests.integration.workspace import Workspace

WRITES_PAST_PYTHON = """
    import atexit, os, subprocess, sys
    from arkdev import rollout

    os.write(1, b"import, past Python\\n")
    atexit.register(lambda: print("at exit"))
    atexit.register(lambda: sys.__stdout__.write("at exit, the first stdout\\n"))

    @rollout
    def answer(context, proxy, sample):
        os.write(1, b"rollout, past Python\\n")
        sys.__stdout__.write("the first stdout\\n")
        sys.__stdout__.flush()
        subprocess.run([sys.executable, "-c", "print('a program')"], check=True)
        client = proxy.rollout_client()
        client.chat.completions.create(model="m", messages=sample.model_dump()["messages"])
"""


@pytest.fixture
def writing(workspace: Workspace) -> Workspace:
    workspace.write("plugins/rollout.py", WRITES_PAST_PYTHON)
    return workspace


def shell(workspace: Workspace, command: str) -> subprocess.CompletedProcess[bytes]:
    """Run a shell command in the workspace; `arkdev` in it is this one."""
    arkdev = f"'{sys.executable}' -m arkdev"
    return subprocess.run(
        ["sh", "-c", command.replace("arkdev", arkdev, 1)],
        cwd=workspace.root,
        capture_output=True,
        env=workspace.environment(),
        timeout=300,
        check=False,
    )


def test_json_is_one_document_whatever_plugins_write(writing: Workspace) -> None:
    told = shell(writing, "arkdev test plugin --json")
    assert told.returncode == 0
    assert json.loads(told.stdout)["exit_code"] == 0
    for text in (b"import, past", b"rollout, past", b"the first", b"a program", b"at exit"):
        assert text in told.stderr


def test_the_report_has_nothing_of_what_plugins_write(writing: Workspace) -> None:
    told = shell(writing, "arkdev test plugin")
    assert told.stdout.startswith(b"1 of 1 rollout graded")
    for text in (b"past Python", b"stdout", b"a program", b"at exit"):
        assert text not in told.stdout


@pytest.mark.parametrize(
    ("command", "exit_code"),
    [
        ("arkdev --version >&-", 0),
        ("arkdev test plugin >&-", 0),
        ("arkdev test plugin 2>&-", 0),
        ("arkdev test plugin --limit 0 2>&-", 2),
        ("arkdev test plugin --json >&- 2>&- <&-", 0),
    ],
)
def test_closed_streams_change_no_exit_code(
    workspace: Workspace, command: str, exit_code: int
) -> None:
    told = shell(workspace, command)
    assert told.returncode == exit_code
    assert b"fault" not in told.stdout + told.stderr


def test_no_columns_is_not_a_width(workspace: Workspace) -> None:
    told = shell(workspace, "COLUMNS=0 arkdev test plugin")
    assert max(map(len, told.stdout.decode().splitlines())) > 60


def test_a_thread_of_a_plugin_does_not_keep_the_process(workspace: Workspace) -> None:
    workspace.write(
        "plugins/rollout.py",
        """
        import asyncio, threading, time
        from arkdev import Runtime, rollout

        @rollout(runtime=Runtime(timeout=0.2))
        async def answer(context, proxy, sample):
            threading.Thread(target=time.sleep, args=(600,)).start()
            await asyncio.to_thread(time.sleep, 600)
        """,
    )
    started = time.monotonic()
    told = shell(workspace, "arkdev test plugin --json")
    assert time.monotonic() - started < 60
    assert told.returncode == 1
    assert json.loads(told.stdout)["exit_code"] == 1
