"""`arkdev watch`: a run that is over, one that goes on, one that dies."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from arkdev.cli.documents import json_schema
from arkdev.flows.watching import watch_run
from arkdev.runs.resume import resume_run
from tests.integration import training_folders
from tests.integration.workspace import Command, Workspace

DIE_AFTER_A_STEP = """
import os, sys
from pathlib import Path
from tests.integration.training_folders import begin, write_step
writer = begin(Path(sys.argv[1]))
write_step(writer, 0)
(writer.folder / "output.txt").write_text("what was printed\\n", encoding="utf-8")
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def runs(workspace: Workspace) -> Path:
    return workspace.root / "runs"


def test_a_run_that_is_over_is_shown_as_the_table_that_it_showed(
    arkdev: Command, runs: Path
) -> None:
    writer = training_folders.finished(runs)
    told = arkdev("watch")
    assert told.exit_code == 0
    rows = [line.split() for line in told.out.splitlines()]
    assert rows[0][:2] == ["step", "reward"]
    assert [row[0] for row in rows[1:]] == ["0", "1", "1", "2", "3", "3"]
    assert rows[3][:2] == ["1", "test"]
    assert f"arkdev test plugin --endpoint local --model {writer.run_id}" in told.err
    assert f"arkdev export {writer.run_id}" in told.err


def test_as_json_each_step_is_a_line_and_so_is_the_end(arkdev: Command, runs: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    writer = training_folders.begin(runs)
    training_folders.write_step(writer, 0, reward=0.25)
    writer.finish("failed", {})
    told = arkdev("watch", "latest", "--json")
    lines = [json.loads(line) for line in told.out.splitlines()]
    assert (told.exit_code, [line["kind"] for line in lines]) == (1, ["step", "end"])
    assert lines[0]["metrics"] == {"train/reward->final_reward.mean": 0.25}
    assert lines[1]["status"] == "failed"
    for line in lines:
        jsonschema.validate(line, json_schema("watch"))
        assert line.keys() == json_schema("watch")["properties"].keys()


def test_a_run_that_dies_is_said_to_have_died_with_what_it_printed_last(
    arkdev: Command, runs: Path
) -> None:
    root = Path(__file__).resolve().parents[2]
    subprocess.run([sys.executable, "-c", DIE_AFTER_A_STEP, runs], cwd=root, check=False)
    told = arkdev("watch")
    assert told.exit_code == 1
    assert "has died: its process is gone; `arkdev train --resume" in told.err
    assert "what was printed" in told.err


def test_of_a_run_that_was_told_to_stop_the_table_is_not_repeated_from_its_output(
    arkdev: Command, runs: Path
) -> None:
    writer = training_folders.begin(runs)
    training_folders.write_step(writer, 0)
    (writer.folder / "output.txt").write_text("what was printed\n", encoding="utf-8")
    writer.finish("stopped", {})
    told = arkdev("watch")
    assert "is stopped" in told.err and "what was printed" not in told.err


def test_of_a_run_that_failed_the_failure_is_said(arkdev: Command, runs: Path) -> None:
    writer = training_folders.begin(runs)
    writer.finish("failed", {"failure": "step 0: grading ended on KeyError"})
    told = arkdev("watch")
    assert (told.exit_code, "step 0: grading ended on KeyError" in told.err) == (1, True)
    assert "--resume" not in told.err  # there is no checkpoint to go on from


def test_the_table_says_which_distance_it_shows(arkdev: Command, runs: Path) -> None:
    writer = training_folders.begin(runs, hyperparameters={"kl_coefficient": 0.1})
    training_folders.write_step(writer, 0)
    writer.finish("finished", {})
    assert "kl: from the model that training began with" in arkdev("watch").err


def test_a_run_is_followed_while_it_goes_on_and_when_it_goes_back(runs: Path) -> None:
    writer = training_folders.begin(runs)
    watching = watch_run(writer.folder, look_every_s=0.01)
    for step in (0, 1):
        training_folders.write_step(writer, step)
        watched = next(watching)
        assert (watched.kind, watched.record and watched.record.step) == ("step", step)
    writer.finish("interrupted", {})
    writer = resume_run(writer.folder, from_step=1)
    training_folders.write_step(writer, 1)
    back, again = next(watching), next(watching)
    assert (back.kind, back.from_step, again.kind) == ("resumed", 1, "step")
    writer.finish("finished", {})
    assert [watched.kind for watched in watching] == ["end"]
