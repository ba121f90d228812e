"""`arkdev train` with the embedded model: whole commands, on the template's own task."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from arkdev.errors import ExitCode
from arkdev.runs.reader import RunReader
from tests.integration.conftest import alone  # noqa: F401
from tests.integration.faas_runs import records
from tests.integration.test_json_schemas import check, published
from tests.integration.workspace import Command, Workspace

SMALL = ("--batch-size", "4", "--num-generations", "4", "--set", "max_new_tokens=64")
NO_ROUNDS = ("--validation-limit", "0")


@pytest.fixture
def arkdev(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> Command:
    """The command, typed in a fresh workspace of `rl_demo`."""
    command = Command(capsysbinary)
    monkeypatch.chdir(tmp_path)
    assert command("init", "demo", "--template", "rl_demo").exit_code == 0
    monkeypatch.chdir(tmp_path / "demo")
    return command


def trained(arkdev: Command, *arguments: str) -> dict[str, Any]:
    told = arkdev("train", *SMALL, *arguments, "--json")
    assert told.exit_code == 0, told.err
    return told.document


def reader(document: dict[str, Any]) -> RunReader:
    return RunReader(Path(document["folder"]))


def test_one_command_trains_the_embedded_model_and_another_one_tests_it(arkdev: Command) -> None:
    told = arkdev("train", "--steps", "2", *SMALL, "--validation-limit", "4", "--json")
    assert told.exit_code == 0, told.err
    document = told.document
    check(document, published(arkdev, "train"))
    assert "the embedded model tiny stands for doubao-seed-2-0-mini" in told.err
    assert told.err.index("loading torch and tiny") < told.err.index("parameters are trained")
    assert " in training, " in told.err  # the rewards stand in the last words, too
    assert "lr is 0.0005 here (arkworkspace.toml:" in told.err
    assert {value["name"]: value["where"] for value in document["values"]}["num_steps"] == "--steps"
    run = reader(document)
    metrics = [line for line in run.metrics() if "train/trajectories" in line]
    assert [line["step"] for line in metrics] == [0, 1]
    for line in metrics:
        assert abs(line["train/rollout_off_policy_kl"]) < 1e-4
        assert line["train/sync_gap_max"] < 1e-3
    versions = {(t.step, t.policy_version) for t in run.trajectories() if t.phase == "train"}
    assert versions == {(0, 0), (1, 1)}
    assert document["steps"][-1]["phase"] == "test"
    for name in ("best", "last"):
        assert (Path(document["models"][name]) / "model.safetensors").is_file()
    shown = arkdev("show", "latest")
    assert "Reward by step" in shown.out and "last model" in shown.out
    check(arkdev("show", "latest", "--json").document, published(arkdev, "show"))
    tested = arkdev("test", "plugin", "--endpoint", "local", "--limit", "2", "--json")
    assert tested.exit_code == 0, tested.err
    assert document["run"] in tested.err


def test_a_seed_repeats_a_run_to_the_last_bit(arkdev: Command) -> None:
    flags = ("--steps", "2", "--seed", "2", *NO_ROUNDS)
    runs = [reader(trained(arkdev, *flags)) for _ in range(2)]
    tokens = [{one.trajectory_id: one.token_ids for one in run.tokens()} for run in runs]
    assert tokens[0] == tokens[1]
    assert losses(runs[0]) == losses(runs[1])


def test_debug_and_train_have_the_same_rollouts_and_advantages_with_one_seed(
    arkdev: Command,
) -> None:
    trained(arkdev, "--steps", "1", "--deterministic", "--seed", "3", *NO_ROUNDS)
    ours = arkdev("show", "latest", "--step", "0", "--json").document["groups"]
    told = arkdev(
        *("debug", "--steps", "1", "--batch-size", "4", "--n-sample", "4", "--seed", "3"),
        *("--endpoint", "local", "--model", "tiny", "--max-new-tokens", "64", *NO_ROUNDS, "--json"),
    )
    assert told.exit_code == 0, told.err
    theirs = arkdev("show", "latest", "--step", "0", "--json").document["groups"]

    def by_sample(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return sorted(groups, key=lambda group: group["sample_index"])

    assert by_sample(ours) == by_sample(theirs)


DOWN = """
    import os

    from arkdev import single_grader

    @single_grader
    def even(context, sample, trajectory):
        if str(context.current_training_step) == os.environ.get("DOWN_AT"):
            raise RuntimeError("down")
        return float(len(str(trajectory.messages[-1].content)) % 2)
"""


def test_a_resumed_run_has_the_losses_of_an_uninterrupted_one(
    arkdev: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("plugins/down.py").write_text(dedent(DOWN), encoding="utf-8")
    job = Path("job.yaml")
    text = job.read_text(encoding="utf-8")
    job.write_text(
        text.replace("plugins.random_reward:random_reward_fn", "plugins.down:even"), "utf-8"
    )
    more = (*NO_ROUNDS, "--steps", "4", "--deterministic", "--seed", "1")
    whole = losses(reader(trained(arkdev, *more)))
    monkeypatch.setenv("DOWN_AT", "2")
    cut = arkdev("train", *SMALL, *more, "--json")
    assert cut.exit_code == ExitCode.JOB_FAILED
    assert "down" in cut.document["failure"]
    monkeypatch.delenv("DOWN_AT")
    told = arkdev("train", "--resume", "latest", "--json")
    assert told.exit_code == 0, told.err
    assert told.document["run"] == cut.document["run"]
    again = losses(reader(told.document))
    assert again.keys() == whole.keys() == set(range(4))
    for step, loss in whole.items():
        assert again[step] == pytest.approx(loss, abs=1e-6)


def losses(run: RunReader) -> dict[int, tuple[float, float]]:
    """What each update came to: its loss, and the norm of its gradient."""
    return {
        line["step"]: (line["train/policy_loss"], line["train/grad_norm"]) for line in run.metrics()
    }


def test_adapters_a_reference_and_a_lag_train_together(arkdev: Command) -> None:
    job = Path("job.yaml")
    text = job.read_text(encoding="utf-8").replace("GRPO\n", "GRPOLoRA\n", 1)
    job.write_text(
        text.replace("hyperparameters:\n", "hyperparameters:\n  lora_rank: '4'\n"), "utf-8"
    )
    document = trained(
        arkdev, *NO_ROUNDS, "--steps", "3", "--policy-lag", "1", "--set", "kl_coefficient=0.01"
    )
    lines = list(reader(document).metrics())
    assert lines[0]["train/kl"] == pytest.approx(0, abs=1e-6)
    assert lines[-1]["train/kl"] > 0
    lags = {t.step - t.policy_version for t in reader(document).trajectories()}
    assert lags <= {0, 1}
    assert (Path(document["models"]["last"]) / "adapter_config.json").is_file()
    assert not [text for text in document["warnings"] if "older" in text or "not on the" in text]


def test_ctrl_c_keeps_the_last_checkpoint_and_says_how_to_go_on(arkdev: Command) -> None:
    here = Workspace.at(Path.cwd())
    process = here.start("train", *SMALL, *NO_ROUNDS, "--steps", "200", OMP_NUM_THREADS="1")
    deadline = time.monotonic() + 120
    while not list(Path("runs").glob("*/checkpoints/step-*/snapshot.json")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130
    (folder,) = Path("runs").iterdir()
    assert f"go on with it: arkdev train --resume {folder.name}" in err.decode()
    assert re.search(r"interrupted; the last checkpoint is after \d+ step", err.decode())
    assert RunReader(folder).status == "interrupted"


def test_another_model_folder_is_named_in_the_note_and_what_is_none_is_refused(
    arkdev: Command,
) -> None:
    told = arkdev("train", "--model", "plugins", "--json")
    assert told.exit_code == 2
    assert "plugins" in told.err and not Path("runs").exists()


def test_plugins_in_instances_train_as_those_in_process_do(arkdev: Command) -> None:
    flags = ("--steps", "2", "--deterministic", "--seed", "3", *NO_ROUNDS)
    here = trained(arkdev, *flags)
    apart = trained(arkdev, *flags, "--faas", "--faas-engine", "process")
    assert records(Path(apart["folder"])) == records(Path(here["folder"]))
    runs = [reader(here), reader(apart)]
    tokens = [{one.trajectory_id: one for one in run.tokens()} for run in runs]
    assert tokens[0] == tokens[1]
    assert losses(runs[0]) == losses(runs[1])
    assert [bool(list(run.invocations())) for run in runs] == [False, True]


def test_models_that_were_not_trained_are_not_offered(arkdev: Command) -> None:
    grader = Path("plugins/random_reward.py")
    text = grader.read_text(encoding="utf-8")
    grader.write_text(text.replace('.get("answer")', '.get("answr")'), "utf-8")  # all discarded
    told = arkdev("train", *SMALL, "--steps", "1", *NO_ROUNDS)
    assert "nothing: no group is left in the step" in told.out
    assert "the models are as they were" in told.out
    assert "arkdev export" not in told.out
