"""`arkdev runs` and `arkdev show` on what `arkdev test plugin` left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.workspace import Command, Workspace

FAILS_ON_B = """
    from arkdev import rollout

    @rollout
    def answer(context, proxy, sample):
        client = proxy.rollout_client()
        messages = sample.model_dump()["messages"]
        client.chat.completions.create(model="m", messages=messages)
        if messages[0]["content"] == "b":
            raise RuntimeError("not this one")
"""


@pytest.fixture
def ran(workspace: Workspace, arkdev: Command) -> str:
    """The id of a run of which one rollout of three failed."""
    workspace.write("plugins/rollout.py", FAILS_ON_B)
    workspace.samples("a", "b", "c")
    assert arkdev("test", "plugin").exit_code == 1
    (folder,) = (workspace.root / "runs").iterdir()
    return folder.name


def test_runs_lists_what_ran(ran: str, arkdev: Command) -> None:
    told = arkdev("runs")
    (line,) = [line for line in told.out.splitlines() if ran in line]
    assert line.split()[1] == "finished"
    assert line.split()[-3:] == ["3", "1.000", "1"]
    (run,) = arkdev("runs", "--json").document["runs"]
    assert (run["run_id"], run["summary"]["num_graded"]) == (ran, 2)


def test_show_prints_the_report_again(ran: str, arkdev: Command) -> None:
    told = arkdev("show", ran)
    assert told.exit_code == 0
    assert told.out.splitlines()[0] == (
        "2 of 3 rollouts graded, mean reward 1.00 ± 0.00; 1 failed: a job would fail"
    )
    assert f"arkdev show {ran} 1.0" in told.out


def test_show_prints_one_trajectory_with_its_rewards(ran: str, arkdev: Command) -> None:
    told = arkdev("show", ran, "0.0")
    assert "0.0 success" in told.out
    lines = [line.split() for line in told.out.splitlines() if line.strip()]
    assert ["user"] in lines and ["a"] in lines
    assert ["weighted", "1.000"] in lines
    document = arkdev("show", ran, "0.0", "--json").document
    assert document["reward"] == 1.0
    assert document["trajectory"]["messages"][0]["content"] == "a"


def test_show_failed_lists_the_failures_with_their_place(ran: str, arkdev: Command) -> None:
    told = arkdev("show", ran, "--failed")
    (line,) = told.out.splitlines()
    assert line.split()[:2] == ["1.0", "failure"]
    assert "RuntimeError: not this one" in line
    assert "plugins/rollout.py:10" in line
    (failed,) = arkdev("show", ran, "--failed", "--json").document["trajectories"]
    assert failed["trajectory_id"] == "1.0"


def test_what_show_says_to_type_next_works(ran: str, arkdev: Command) -> None:
    commands = [
        line.partition("arkdev ")[2].split()
        for line in arkdev("show", ran).out.splitlines()
        if "arkdev show" in line
    ]
    assert len(commands) == 2
    for command in commands:
        assert arkdev(*command).exit_code == 0


def test_a_run_or_trajectory_that_is_not_there_is_told_what_is(ran: str, arkdev: Command) -> None:
    told = arkdev("show", "nothing")
    assert told.exit_code == 2
    assert f"there are {ran}" in told.err
    told = arkdev("show", ran, "9.9")
    assert told.exit_code == 2
    assert "9.9" in told.err


def test_a_torn_last_line_is_left_out_and_told(
    ran: str, workspace: Workspace, arkdev: Command
) -> None:
    path: Path = workspace.root / "runs" / ran / "trajectories.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    told = arkdev("show", ran)
    assert told.exit_code == 0
    assert "was cut short and is left out" in told.err
    assert len(json.loads(arkdev("show", ran, "--json").out)["torn"]) == 1


def test_show_failed_lists_gradings_and_what_a_retry_made_good(
    workspace: Workspace, arkdev: Command
) -> None:
    workspace.write(
        "plugins/rollout.py",
        """
        from arkdev import rollout

        SEEN = set()

        @rollout
        def answer(context, proxy, sample):
            client = proxy.rollout_client()
            messages = sample.model_dump()["messages"]
            client.chat.completions.create(model="m", messages=messages)
            question = messages[0]["content"]
            if question == "flaky" and question not in SEEN:
                SEEN.add(question)
                raise RuntimeError("only at first")
        """,
    )
    workspace.write(
        "plugins/grader.py",
        """
        from arkdev import single_grader

        @single_grader
        def one(context, sample, trajectory):
            if sample.messages[0].content == "ungradable":
                raise ValueError("no such answer")
            return 1.0
        """,
    )
    workspace.samples("good", "flaky", "ungradable")
    assert arkdev("test", "plugin").exit_code == 1
    retried, ungraded = arkdev("show", "latest", "--failed").out.splitlines()
    assert retried.split()[:4] == ["1.0", "retried", "2", "attempts"]
    assert "RuntimeError: only at first" in retried
    assert ungraded.split()[:4] == ["2.0", "ungraded", "4", "attempts"]
    assert "one: ValueError: no such answer" in ungraded
    (line,) = [line for line in arkdev("runs").out.splitlines() if "-test-" in line]
    assert line.split()[-1] == "1"
    (group,) = arkdev("show", "--failed", "--json").document["groups"]
    assert group["sample_index"] == 2


def test_a_trajectory_alone_is_one_of_the_latest_run(ran: str, arkdev: Command) -> None:
    assert arkdev("show", "1.0").out == arkdev("show", ran, "1.0").out
    assert arkdev("show", "1.0", "--failed").exit_code == 2


def test_runs_say_what_ran_where_there_is_room(
    ran: str, arkdev: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    (line,) = [line for line in arkdev("runs").out.splitlines() if ran in line]
    assert line.split()[2:4] == ["answer", "scripted"]
    monkeypatch.setenv("COLUMNS", "80")
    (line,) = [line for line in arkdev("runs").out.splitlines() if ran in line]
    assert "scripted" not in line
