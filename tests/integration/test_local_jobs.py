"""`arkdev list|get mcj`, `stop` and `export` on training runs of this machine."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from arkdev.flows.training_runs import PROCESS_FILE, STOP_FILE, begin_process, is_stop_asked
from arkdev.runs.reader import RunReader
from tests.integration import training_folders
from tests.integration.workspace import Command, Workspace

OPEN_AND_WAIT = """
import sys, time
from pathlib import Path
from arkdev.flows.training_runs import begin_process
from tests.integration.training_folders import begin
writer = begin(Path(sys.argv[1]))
begin_process(writer.folder)
print(writer.run_id, flush=True)
time.sleep(600)
"""


@pytest.fixture
def runs(workspace: Workspace) -> Path:
    return workspace.root / "runs"


def test_local_jobs_are_listed_with_the_documented_columns_and_options(
    arkdev: Command, runs: Path
) -> None:
    first = training_folders.finished(runs)
    second = training_folders.begin(runs, customization_type="GRPOLoRA")
    training_folders.write_step(second, 0)
    told = arkdev("list", "mcj", "--json")
    assert told.exit_code == 0
    assert [job["run"] for job in told.document["jobs"]] == [second.run_id, first.run_id]
    job = told.document["jobs"][0]
    assert {name: job[name] for name in ("name", "customization_type", "foundation_model")} == {
        "name": "weather",
        "customization_type": "GRPOLoRA",
        "foundation_model": "tiny",
    }
    assert (job["phase"], job["num_steps_done"], job["num_steps"]) == ("running", 1, 4)
    assert job["job_id"].startswith("mcj-20")
    assert "comes with remote job management" in told.err

    assert arkdev("list", "mcj", "-ps", "1", "-pn", "2", "-t", "RL", "--json").document == {
        **told.document,
        "jobs": told.document["jobs"][1:],
        "page_number": 2,
        "page_size": 1,
    }
    table = arkdev("list", "mcj", "-p", "finished,killed").out
    assert first.run_id in table and second.run_id not in table and "4/4" in table
    for spelling in ("-t", "--customization_type", "--customization-type"):
        assert arkdev("list", "mcj", spelling, "PPO", "--json").document["num_jobs"] == 0
    for wrong in (("-t", "RLHF"), ("-p", "queued")):
        assert arkdev("list", "mcj", *wrong).exit_code == 2
    second.finish("finished", {})


def test_a_local_job_is_shown_by_its_run_or_its_job_id(arkdev: Command, runs: Path) -> None:
    writer = training_folders.finished(runs)
    document = arkdev("get", "mcj", "latest", "--json").document
    assert document["run"] == writer.run_id
    assert document["hyperparameters"] == {"lr": 0.001}
    assert [(m["step"], m["score"], m["is_best"]) for m in document["models"]] == [
        (4, 0.625, True),
        (3, None, False),
        (2, 0.5, False),
    ]
    by_job = arkdev("get", "mcj", document["job_id"])
    assert writer.run_id in by_job.out and "4 of 4 steps" in by_job.out
    assert "after 4 steps: reward 0.625 in validation, the best" in by_job.out
    assert "lr = 0.001" in by_job.out and " UTC" in by_job.out
    assert f"runs/{writer.run_id}/models/step-4" in by_job.out  # as it is written from here


def test_a_job_of_the_platform_and_a_run_that_trains_nothing_are_told_apart(
    arkdev: Command, workspace: Workspace
) -> None:
    assert arkdev("test", "plugin").exit_code == 0
    assert "is a test run, not a training" in arkdev("get", "mcj", runs_of(workspace)[0].name).err
    assert "there are no training runs" in arkdev("stop", "latest").err
    told = arkdev("get", "mcj", "mcj-xxxxxx-xxx")
    assert (told.exit_code, told.out) == (2, "")
    assert "`arkdev get mcj` is not built yet: it comes with remote job management" in told.err


def runs_of(workspace: Workspace) -> list[Path]:
    return sorted((workspace.root / "runs").iterdir())


def test_a_run_is_asked_to_stop_after_its_step(arkdev: Command, runs: Path) -> None:
    writer = training_folders.begin(runs)
    assert "does not say by which process" in arkdev("stop", "mcj", writer.run_id).err
    begin_process(writer.folder)
    told = arkdev("stop", "mcj", writer.run_id, "--json")
    assert (told.exit_code, told.document["has_ended"]) == (0, False)
    assert is_stop_asked(writer.folder)
    begin_process(writer.folder)  # as when it goes on later
    assert not is_stop_asked(writer.folder)
    writer.finish("stopped", {})
    ended = arkdev("stop", writer.run_id)
    assert (ended.exit_code, "is stopped: there is nothing to stop" in ended.err) == (2, True)


def test_stop_now_ends_the_runs_process_and_no_other(
    arkdev: Command, runs: Path, workspace: Workspace
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", OPEN_AND_WAIT, runs],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).resolve().parents[2],
    )
    try:
        assert process.stdout is not None
        run_id = process.stdout.readline().strip()
        noted = runs / run_id / PROCESS_FILE
        owner = noted.read_text(encoding="utf-8")
        noted.write_text(owner.strip() + "0\n", encoding="utf-8")  # a later process of that number
        told = arkdev("stop", run_id, "--now")
        assert (told.exit_code, process.poll()) == (2, None)
        noted.write_text(owner, encoding="utf-8")
        waiting = Reaper(process)
        assert arkdev("stop", run_id, "--now").exit_code == 0
        assert waiting.code() == -signal.SIGTERM
        assert RunReader(runs / run_id).status == "killed"
        assert not (runs / run_id / STOP_FILE).exists()
    finally:
        process.kill()
        process.communicate()


class Reaper:
    """Waits for a child beside the test, as the shell that started a run does."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        from threading import Thread

        self._thread = Thread(target=process.wait, daemon=True)
        self._thread.start()

    def code(self) -> int | None:
        self._thread.join(60)
        return self._process.returncode


def test_an_exported_model_is_a_folder_of_its_own_with_its_card(
    arkdev: Command, runs: Path, workspace: Workspace
) -> None:
    writer = training_folders.finished(runs)
    told = arkdev("export", "latest", "--to", "out", "--json")
    assert told.exit_code == 0, told.err
    exported = told.document
    assert (exported["step"], exported["base_model"], exported["is_merged"]) == (4, "tiny", False)
    assert exported["best_step"] == 4
    folder = workspace.root / "out"
    assert sorted(path.name for path in folder.iterdir()) == exported["files"]
    assert exported["files"] == [
        "README.md",
        "chat_template.jinja",
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    ]
    assert (folder / "model.safetensors").read_bytes() == b"weights of step 4"
    card = (folder / "README.md").read_text(encoding="utf-8")
    for said in ("tiny", "weather", writer.run_id, "4 of 4", "data/train.jsonl"):
        assert f"| {said} |" in card
    assert "| `test/reward->final_reward.mean` | 0.625 |" in card

    again = arkdev("export", "latest", "--to", "out")
    assert (again.exit_code, "not empty" in again.err) == (2, True)
    third = arkdev("export", "latest", "--to", "step2", "--step", "2")
    assert "arkdev test plugin --endpoint local --model step2" in third.out
    assert (third.exit_code, "after 2 steps" in third.out) == (0, True)
    assert "the model after 4 steps is the best in validation" in third.out
    for wrong, said in (("5", "has no saved model of 5 steps"), ("first", "a number of steps")):
        told = arkdev("export", "latest", "--to", "no", "--step", wrong)
        assert (told.exit_code, said in told.err) == (2, True)
    assert not (workspace.root / "no").exists()


def test_a_model_that_was_not_saved_is_answered_with_those_that_were_for_any_command(
    arkdev: Command, runs: Path
) -> None:
    training_folders.finished(runs)
    told = arkdev("export", "latest", "--to", "no", "--step", "5")
    for said in ("step 4, step 3, step 2", "RUN@4", "--step"):
        assert said in told.err


def test_a_damaged_model_is_not_exported(arkdev: Command, runs: Path, workspace: Workspace) -> None:
    writer = training_folders.finished(runs)
    (writer.folder / "models" / "step-4" / "model.safetensors").write_bytes(b"weights of step 5")
    told = arkdev("export", "latest", "--to", "out")
    assert (told.exit_code, "is not what was saved" in told.err) == (2, True)
    assert not (workspace.root / "out").exists()
