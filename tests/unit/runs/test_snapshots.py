"""Folders that are whole or not at all, whatever happens while they are written."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from arkdev.errors import OutputError
from arkdev.runs.snapshots import SNAPSHOT, Snapshots, damage_of

KILLED_WHILE_SAVING = """
import os, sys
from pathlib import Path
from arkdev.runs.snapshots import Snapshots

def half(folder):
    (folder / "a").write_text("new", encoding="utf-8")
    os.kill(os.getpid(), 9)

Snapshots(Path(sys.argv[1]), run_id="mine").save(12, half)
"""

FULL_DISK = """
import resource, sys
from pathlib import Path
from arkdev.errors import OutputError
from arkdev.runs.snapshots import Snapshots

resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

def much(folder):
    (folder / "a").write_bytes(b"a" * 10)
    (folder / "b").write_bytes(b"b" * 5000)

try:
    Snapshots(Path(sys.argv[1]), run_id="mine").save(12, much)
except OutputError as error:
    print(error, error.hint)
"""


def fill(text):
    def write(folder: Path) -> None:
        (folder / "a").write_text(text, encoding="utf-8")
        (folder / "inner").mkdir()
        (folder / "inner" / "b").write_text(text * 2, encoding="utf-8")

    return write


def steps(snapshots):
    return [snapshot.step for snapshot in snapshots.all()]


@pytest.fixture
def mine(tmp_path):
    return Snapshots(tmp_path / "checkpoints", run_id="mine")


def test_a_snapshot_is_found_again_with_its_facts_and_is_whole(mine):
    mine.save(10, fill("x"), facts={"score": 0.5})
    latest = mine.latest_whole()
    assert latest is not None
    assert (latest.step, latest.facts) == (10, {"score": 0.5})
    assert damage_of(latest.folder) is None
    assert (latest.folder / "inner" / "b").read_text(encoding="utf-8") == "xx"


@pytest.mark.parametrize("files", [None, ["a"], {"a": 3}, {"a": {"size": 1}}])
def test_a_description_without_its_files_is_left_out(mine, files):
    mine.save(1, fill("x"))
    path = mine.save(2, fill("x")).folder / SNAPSHOT
    document = {**json.loads(path.read_text(encoding="utf-8")), "files": files}
    path.write_text(json.dumps(document), encoding="utf-8")
    problems = []
    latest = mine.latest_whole(problems)
    assert latest is not None
    assert latest.step == 1
    assert "step-2 is not whole" in problems[0]


def test_a_folder_that_was_removed_with_its_run_is_not_made_again(mine):
    mine.save(1, fill("x"))
    run = mine.root.parent
    shutil.rmtree(run)
    with pytest.raises(OutputError, match="run folder was removed"):
        mine.save(2, fill("x"))
    assert not run.exists()


def test_10000_is_newer_than_9900_and_another_runs_20000_does_not_count(mine):
    """Field case 8.2."""
    Snapshots(mine.root, run_id="other").save(20000, fill("theirs"))
    mine.save(9900, fill("x"))
    mine.save(10000, fill("y"))
    mine.keep(steps(mine)[:1])
    assert steps(mine) == [10000]
    assert sorted(path.name for path in mine.root.iterdir()) == ["step-10000", "step-20000"]
    assert mine.latest_whole().step == 10000


def test_a_process_killed_while_saving_leaves_the_one_before_and_it_is_said(mine):
    """Field case 8.1."""
    mine.save(10, fill("x"))
    killed = subprocess.run([sys.executable, "-c", KILLED_WHILE_SAVING, mine.root], check=False)
    assert killed.returncode == -signal.SIGKILL
    problems = []
    assert mine.latest_whole(problems).step == 10
    assert problems == [
        "checkpoints/step-12.partial is not whole and is left out: "
        "it was cut short while it was being saved"
    ]
    mine.save(12, fill("again"))
    assert sorted(path.name for path in mine.root.iterdir()) == ["step-10", "step-12"]


def test_a_full_disk_is_an_error_that_hurts_nothing_older(mine):
    """Field case 8.1; a limit on a file's size is refused as a full disk is."""
    mine.save(10, fill("x"))
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, mine.root], check=True, capture_output=True, text=True
    )
    assert "step-12 cannot be saved: File too large" in done.stdout
    assert "--resume" in done.stdout
    assert [path.name for path in mine.root.iterdir()] == ["step-10"]
    assert mine.latest_whole().step == 10


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda folder: (folder / "a").unlink(), "a is gone"),
        (lambda folder: (folder / "a").write_text("z", encoding="utf-8"), "not what was saved"),
        (lambda folder: os.truncate(folder / "inner" / "b", 1), "inner/b has 1 bytes of 2"),
        (lambda folder: (folder / SNAPSHOT).unlink(), "no readable snapshot.json"),
        (lambda folder: (folder / SNAPSHOT).write_text("{", encoding="utf-8"), "no readable"),
        (lambda folder: folder.rename(folder.with_name("step-13")), "not that of its step"),
    ],
)
def test_a_damaged_one_is_left_out_with_its_reason_and_later_replaced(mine, harm, said):
    mine.save(10, fill("x"))
    harm(mine.save(12, fill("y")).folder)
    problems = []
    assert mine.latest_whole(problems).step == 10
    assert len(problems) == 1
    assert said in problems[0]
    mine.save(12, fill("again"))
    assert mine.latest_whole().step == 12


def test_a_folder_of_another_run_is_not_replaced(mine):
    Snapshots(mine.root, run_id="other").save(12, fill("theirs"))
    with pytest.raises(OutputError, match="of another run"):
        mine.save(12, fill("mine"))
    assert (mine.root / "step-12" / "a").read_text(encoding="utf-8") == "theirs"


def test_what_is_of_later_steps_goes_when_a_run_goes_back(mine):
    for step in (2, 4, 6):
        mine.save(step, fill("x"))
    assert mine.remove_after(3) == [4, 6]
    assert steps(mine) == [2]


def test_what_fails_while_it_is_written_leaves_nothing(mine):
    def broken(folder):
        (folder / "a").touch()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        mine.save(1, broken)
    assert list(mine.root.iterdir()) == []
