"""The flags of `arkdev test plugin`, and an endpoint behind a URL."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from arkdev.flows.init_workspace import create_workspace
from arkdev.runs.reader import RunReader
from tests.integration.workspace import Command, Workspace

KEY = "sk-0123456789-abcdef-do-not-tell"
LENGTHS = """
    from arkdev import group_grader, single_grader

    @single_grader
    def one(context, sample, trajectory):
        return 1.0

    @single_grader
    def length(context, sample, trajectory):
        return float(len(sample.messages[0].content))

    @group_grader
    def place(context, sample, trajectories):
        return [float(number) for number in range(len(trajectories))]
"""


@pytest.fixture
def three(workspace: Workspace) -> Workspace:
    """Three samples and three graders."""
    workspace.write("plugins/grader.py", LENGTHS)
    workspace.samples("a", "bb", "ccc")
    return workspace


def test_one_sample_is_shown_turn_by_turn(three: Workspace, arkdev: Command) -> None:
    told = arkdev("test", "plugin", "--sample", "1")
    assert told.exit_code == 0
    lines = [line.strip() for line in told.out.splitlines()]
    assert lines.index("user") < lines.index("bb")
    assert any(line.startswith("assistant") and "turn 1" in line for line in lines)
    assert any(line.startswith("weighted") and line.endswith("1.000") for line in lines)
    assert "recorded in" in told.err


def test_a_sample_can_be_given_as_json_or_on_standard_input(
    three: Workspace, arkdev: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = json.dumps({"messages": [{"role": "user", "content": "四个字吗"}]})
    document = arkdev(
        "test", "plugin", "--sample", sample, "--grader", "plugins.grader:length", "--json"
    ).document
    assert document["groups"][0]["rewards"] == [4.0]
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(sample.encode() + b"\n")))
    told = arkdev("test", "plugin", "--sample", "-")
    assert "四个字吗" in told.out


def test_an_empty_standard_input_is_told(arkdev: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"")))
    told = arkdev("test", "plugin", "--sample", "-")
    assert told.exit_code == 2
    assert "nothing came on standard input" in told.err


def test_limit_and_n_sample_choose_what_runs(three: Workspace, arkdev: Command) -> None:
    arguments = ("--limit", "2", "--n-sample", "3", "--grader", "plugins.grader:place")
    document = arkdev("test", "plugin", *arguments, "--json").document
    assert document["summary"]["num_rollouts"] == 6
    assert document["summary"]["reward"]["mean"] == 1.0
    assert document["settings"]["num_generations"] == 3


def test_graders_of_the_command_line_carry_their_weights(three: Workspace, arkdev: Command) -> None:
    graders = ("--grader", "plugins.grader:one=0.5", "--grader", "plugins.grader:length=2")
    document = arkdev("test", "plugin", *graders, "--json").document
    assert [(g["name"], g["weight"]) for g in document["settings"]["graders"]] == [
        ("one", 0.5),
        ("length", 2.0),
    ]
    reward = document["summary"]["reward"]
    assert (reward["min"], reward["max"]) == (2.5, 6.5)


def test_the_job_gives_what_no_flag_says(three: Workspace, arkdev: Command) -> None:
    document = arkdev("test", "plugin", "--json").document
    assert document["settings"]["concurrency"] == 8
    assert document["settings"]["rollout"] == "plugins.rollout:answer"
    assert document["settings"]["data"] == [str(three.root / "data.jsonl")]


def test_out_names_the_folder_and_is_never_written_over(three: Workspace, arkdev: Command) -> None:
    told = arkdev("test", "plugin", "--out", "report-run")
    assert told.exit_code == 0
    assert (three.root / "report-run/manifest.json").is_file()
    assert not (three.root / "runs").exists()
    again = arkdev("test", "plugin", "--out", "report-run")
    assert again.exit_code == 2
    assert "the run folder is not empty" in again.err


def test_json_is_one_document_and_nothing_else(three: Workspace, arkdev: Command) -> None:
    three.write(
        "plugins/rollout.py",
        """
        import logging, sys
        from arkdev import rollout

        print("imported")

        @rollout
        def answer(context, proxy, sample):
            print("printed")
            print("to stderr", file=sys.stderr)
            logging.getLogger("mine").warning("logged")
            client = proxy.rollout_client()
            client.chat.completions.create(model="m", messages=sample.model_dump()["messages"])
        """,
    )
    told = arkdev("test", "plugin", "--json")
    assert told.document["schema_version"] == 1
    assert told.document["exit_code"] == told.exit_code == 0
    assert "3 of 3 rollouts graded" in told.err
    lines = list(RunReader(Path(told.document["folder"])).logs())
    said = {(line.level, line.trajectory_ids, line.logger, line.text) for line in lines}
    assert ("PRINT", ("0.0",), "", "printed") in said
    assert ("WARNING", ("1.0",), "mine", "logged") in said


@pytest.fixture(scope="module")
def weather(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    root = tmp_path_factory.mktemp("flags") / "weather"
    create_workspace(root, template="rl_demo")
    return Workspace.at(root)


def test_a_seed_gives_the_same_rewards_at_any_concurrency(weather: Workspace) -> None:
    same = [
        weather.run(limit=24, num_generations=2, seed=7, concurrency=concurrency).rewards
        for concurrency in (1, 32)
    ]
    other = weather.run(limit=24, num_generations=2, seed=8, concurrency=32).rewards
    assert same[0] == same[1]
    assert same[0] != other
    flat = [reward for group in same[0] for reward in group]
    assert {0.0, 1.0} <= set(flat)


@pytest.fixture(scope="module")
def served() -> Iterator[str]:
    """The URL of `arkdev endpoint serve scripted`, in a process of its own."""
    command = [sys.executable, "-m", "arkdev", "endpoint", "serve", "scripted"]
    process = subprocess.Popen(
        [*command, "--port", "0", "--skill", "1", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        document = json.loads(process.stdout.readline())
        assert document["schema_version"] == 1
        yield document["url"]
    finally:
        process.terminate()
        process.communicate(timeout=300)


@pytest.mark.parametrize("rollout", ["weather_rollout", "async_weather_rollout", "raw_rollout"])
def test_a_served_model_is_one_flag_away(weather: Workspace, served: str, rollout: str) -> None:
    run = weather.run(
        endpoint=served,
        model="scripted",
        limit=8,
        rollout=f"plugins.{rollout}:demo_rollout",
        concurrency=8,
    )
    assert run.exit_code == 0
    assert run.rewards == [(1.0,)] * 8
    is_raw = rollout == "raw_rollout"
    assert {turn.via for t in run.trajectories for turn in t.turns} == {
        "raw" if is_raw else "wrapped"
    }
    if is_raw:
        sys.modules["plugins.raw_rollout"].HTTP_CLIENT.close()


def test_the_key_is_told_nowhere(
    three: Workspace, arkdev: Command, served: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    three.write(
        "plugins/rollout.py",
        """
        import os
        from arkdev import rollout

        @rollout
        def answer(context, proxy, sample):
            print("the key is", os.environ["MY_KEY"])
            client = proxy.rollout_client()
            messages = sample.model_dump()["messages"]
            client.chat.completions.create(model="m", messages=messages)
            if len(messages[0]["content"]) == 2:
                raise RuntimeError(os.environ["MY_KEY"])
            assert os.environ["MY_KEY"] not in (proxy.jwt_token, client.api_key)
        """,
    )
    monkeypatch.setenv("MY_KEY", KEY)
    endpoint = ("--endpoint", served, "--model", "scripted", "--api-key-env", "MY_KEY")
    told = arkdev("test", "plugin", *endpoint)
    assert told.exit_code == 1
    assert "2 of 3 rollouts graded" in told.out
    (folder,) = (three.root / "runs").iterdir()
    written = [file.read_text(encoding="utf-8") for file in folder.rglob("*") if file.is_file()]
    written += [told.out, told.err, arkdev("show", "latest", "--failed").out]
    assert KEY not in "".join(written)
    assert "***" in "".join(written)


def test_a_missing_key_is_named_and_nothing_runs(
    three: Workspace, arkdev: Command, served: str
) -> None:
    endpoint = ("--endpoint", served, "--model", "scripted", "--api-key-env", "NO_KEY")
    told = arkdev("test", "plugin", *endpoint)
    assert (told.exit_code, told.out) == (2, "")
    assert "NO_KEY is not set" in told.err
    assert not (three.root / "runs").exists()


def test_a_success_is_what_every_grader_gives_1_unless_a_flag_says_otherwise(
    workspace: Workspace, arkdev: Command
) -> None:
    graders = ("--grader", "plugins.grader:one=0.5", "--grader", "plugins.grader:one=0.25")
    told = arkdev("test", "plugin", "--n-sample", "2", *graders)
    assert "success: weighted reward \u2265 0.75; 1 whole group" in told.out
    assert "success: weighted reward \u2265 0.75; 1 whole group" in arkdev("show").out
    told = arkdev("test", "plugin", "--n-sample", "2", "--success-threshold", "0.9", "--json")
    assert told.document["summary"]["success_threshold"] == 0.9
