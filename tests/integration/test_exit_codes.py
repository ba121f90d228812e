"""What a command ends with, and what it says where (9.2, 9.3, decisions 16 and 17)."""

from __future__ import annotations

import os
import pty
import select
import socket
import sys
import time

import pytest

from tests.integration.workspace import Command, Workspace

BY_QUESTION = '''
    from arkdev import PluginStatus, RolloutResult, rollout

    @rollout
    def answer(context, proxy, sample):
        """Ends as the question says."""
        client = proxy.rollout_client()
        client.chat.completions.create(model="m", messages=sample.model_dump()["messages"])
        return RolloutResult(status=PluginStatus(sample.messages[0].content), error="as asked")
'''


@pytest.mark.parametrize(
    ("questions", "exit_code", "headline"),
    [
        (["success", "success"], 0, "2 of 2 rollouts graded, mean reward 1.00"),
        (["success", "failure"], 1, "1 of 2 rollouts graded, mean reward 1.00; 1 failed"),
        (["failure", "failure"], 1, "0 of 2 rollouts graded; 2 failed: a job would fail"),
        (["success", "retry"], 1, "1 used up their retries"),
        (["discard", "discard"], 0, "0 of 2 rollouts graded; 2 discarded"),
    ],
)
def test_the_exit_code_tells_failures_from_discards(
    workspace: Workspace, arkdev: Command, questions: list[str], exit_code: int, headline: str
) -> None:
    workspace.write("plugins/rollout.py", BY_QUESTION)
    workspace.samples(*questions)
    told = arkdev("test", "plugin")
    assert told.exit_code == exit_code
    assert headline in told.out.splitlines()[0]


def test_a_bad_configuration_is_2_and_runs_nothing(workspace: Workspace, arkdev: Command) -> None:
    workspace.write("job.yaml", "name: x\nhyperparameters: {}\n")
    told = arkdev("test", "plugin")
    assert (told.exit_code, told.out) == (2, "")
    assert "job.yaml:1" in told.err
    assert not (workspace.root / "runs").exists()


@pytest.mark.parametrize(
    "arguments", [("--limit", "0"), ("--skill", "2"), ("--no-such-flag",), ("--sample", "99")]
)
def test_a_bad_flag_is_2(arkdev: Command, arguments: tuple[str, ...]) -> None:
    told = arkdev("test", "plugin", *arguments)
    assert (told.exit_code, told.out) == (2, "")
    assert arguments[0] in told.err


def test_a_dead_endpoint_is_4_at_once_and_leaves_no_run(
    workspace: Workspace, arkdev: Command
) -> None:
    with socket.socket() as taken:  # as long as it is, nobody else listens there
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        started = time.monotonic()
        told = arkdev("test", "plugin", "--endpoint", f"http://127.0.0.1:{port}/v1", "--model", "m")
    assert time.monotonic() - started < 30
    assert (told.exit_code, told.out) == (4, "")
    assert f"no connection to 127.0.0.1:{port}: Connection refused" in told.err
    assert "Is the server running?" in told.err
    assert not (workspace.root / "runs").exists()


@pytest.mark.parametrize("status", [401, 403, 404])
def test_an_endpoint_that_refuses_the_first_calls_ends_the_run_with_4(
    workspace: Workspace, arkdev: Command, status: int
) -> None:
    workspace.samples(*[f"question {number}" for number in range(40)])
    workspace.script({"error": {"status": status, "code": "Refused", "message": "not for you."}})
    told = arkdev("test", "plugin", "--script", "script.json", "--concurrency", "2")
    assert (told.exit_code, told.out) == (4, "")
    assert f"the endpoint answered {status}: Refused: not for you." in told.err
    assert "the first 4 model calls were all refused" in told.err
    assert "Traceback" not in told.err
    (run,) = arkdev("runs", "--json").document["runs"]
    assert run["status"] == "stopped"
    assert run["summary"]["num_rollouts"] < 4


def test_a_refusal_after_a_good_answer_does_not_end_the_run(
    workspace: Workspace, arkdev: Command
) -> None:
    workspace.samples("good", *["bad"] * 3)
    refused = {"error": {"status": 404, "code": "NotFound", "message": "no such thing."}}
    workspace.script({"match": "bad", **refused}, {"content": "hello"})
    told = arkdev("test", "plugin", "--script", "script.json", "--concurrency", "1")
    assert told.exit_code == 1
    assert "1 of 4 rollouts graded" in told.out


def test_an_endpoint_that_goes_away_in_the_middle_is_4(workspace: Workspace) -> None:
    """Nothing answers any call, although a connection could be made at first."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        # the listener accepts nothing: the kernel completes the probe's handshake all the same
        port = listener.getsockname()[1]
        workspace.write(
            "plugins/rollout.py",
            """
            from arkdev import rollout

            @rollout
            def answer(context, proxy, sample):
                client = proxy.rollout_client()
                messages = sample.model_dump()["messages"]
                client.chat.completions.create(model="m", messages=messages, timeout=0.05)
            """,
        )
        run = workspace.run(endpoint=f"http://127.0.0.1:{port}/v1", model="m")
    assert run.summary.verdicts == {"failure": 1}
    assert run.exit_code == 4


def test_init_over_an_existing_folder_asks_nothing(workspace: Workspace) -> None:
    before = sorted(workspace.root.rglob("*"))
    process = workspace.start("init", ".", "--template", "rl_demo")
    told, said = process.communicate(timeout=300)  # a question would wait for ever
    assert (process.returncode, told) == (2, b"")
    assert b"is not empty; nothing was changed" in said
    assert b"hint: give the name of a new folder" in said
    assert sorted(workspace.root.rglob("*")) == before


def test_init_on_a_terminal_in_ci_asks_nothing(workspace: Workspace) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(workspace.root)
        arguments = [sys.executable, "-m", "arkdev", "init", "."]
        search_path = os.pathsep.join(sys.path)
        os.execve(sys.executable, arguments, {**os.environ, "CI": "1", "PYTHONPATH": search_path})
    try:
        ready, _, _ = select.select([terminal], [], [], 10)
        assert ready, "it said nothing within 10 s"
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 2
        assert b"not empty" in os.read(terminal, 4096)
    finally:
        os.close(terminal)
