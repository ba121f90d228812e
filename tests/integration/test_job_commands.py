"""`arkdev check`, `plan` and `get foundation-model`, as they are typed and read."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from arkdev.flows.debug_plan import plan_debug
from arkdev.flows.debug_request import DebugRequest
from tests.integration.workspace import Command, Workspace, job_yaml

LOOK_UP = "get foundation-model --model doubao-seed-2-0-lite --version 260428"


@pytest.mark.parametrize(
    ("text", "place", "advice"),
    [
        ("hyperparameters: {leaning_rate: 1}", "job.yaml:1", "did you mean 'lr'"),
        ("learning_rate: 1", "job.yaml:1", "it belongs in hyperparameters"),
        ("hyperparameters: {lr: 1e-5x}", "job.yaml:1", "'1e-5x' is not a number"),
        ("name: a\nname: b", "job.yaml:2", "first on line 1"),
    ],
)
def test_check_ends_with_2_and_names_the_place_and_the_remedy(
    workspace: Workspace, arkdev: Command, text: str, place: str, advice: str
) -> None:
    rest = json.loads(job_yaml())
    for key in ("name", "hyperparameters"):
        rest.pop(key)
    body = "\n".join(f"{key}: {json.dumps(value)}" for key, value in rest.items())
    workspace.write("job.yaml", f"{text}\n{body}\n")
    told = arkdev("check")
    assert told.exit_code == 2
    [line] = [line for line in told.out.splitlines() if line.startswith("error")]
    assert f"{place}: " in line and advice in line
    assert "1 problem; nothing was run" in told.err
    tested = arkdev("test", "plugin")
    assert (tested.exit_code, tested.out) == (2, "")
    assert advice in tested.err


def test_check_says_what_is_inferred_and_what_was_looked_at(
    workspace: Workspace, arkdev: Command
) -> None:
    job = json.loads(job_yaml())
    del job["customization_type"], job["custom_rl_pipeline"]["rollout"]
    workspace.write("job.yaml", json.dumps(job))
    told = arkdev("check")
    assert told.exit_code == 0, told.err
    assert "customization_type: GRPO, because no pipeline_type is given either" in told.out
    assert "custom_rl_pipeline.rollout: the built-in single-turn one" in told.out
    assert "nothing is wrong with it (GRPO, 1 plugin and 1 data file looked at)" in told.out


def test_what_plugins_print_while_they_are_imported_is_no_part_of_the_document(
    workspace: Workspace, arkdev: Command
) -> None:
    workspace.write(
        "plugins/grader.py",
        """
        from arkdev import single_grader

        print("hello from the grader")

        @single_grader
        def one(context, sample, trajectory):
            return 1.0
        """,
    )
    told = arkdev("check", "--json")
    assert told.document["problems"] == []
    assert told.document["customization_type"] == "GRPO"
    assert "hello from the grader" in told.err


def test_plan_says_where_each_value_comes_from_and_what_it_does(
    workspace: Workspace, arkdev: Command
) -> None:
    workspace.write("job.yaml", job_yaml(resource_group="rg-1"))
    remote = arkdev("plan", "--backend", "remote", "--json")
    assert remote.exit_code == 0, remote.err
    rows = {row["key"]: row for row in remote.document["keys"]}
    assert (rows["backend"]["origin"], rows["backend"]["where"]) == ("flag", "--backend")
    assert rows["resource_group"]["support"] == "used"
    assert rows["hyperparameters.batch_size"]["where"] == "job.yaml:11"
    assert rows["hyperparameters.max_new_tokens"]["origin"] == "default"
    assert any("not built yet" in note for note in remote.document["notes"])
    differing = {row["what"]: row for row in remote.document["differences"]}
    assert differing["resource_group"]["local"].startswith("refused: ")
    assert "plugins" in differing

    debug = arkdev("plan", "--json")
    assert debug.exit_code == 2
    rows = {row["key"]: row for row in debug.document["keys"]}
    assert rows["backend"]["origin"] == "default"
    assert rows["resource_group"]["support"] == "refused"
    assert "resource_group has no effect on debug" in debug.err
    assert "--backend remote" in debug.err


def test_plan_says_the_work_and_what_is_unusual_on_the_platform(
    workspace: Workspace, arkdev: Command
) -> None:
    values = {"batch_size": 4, "num_generations": 5, "num_steps": 3, "lr": "1e-6"}
    workspace.write("job.yaml", job_yaml(hyperparameters=values))
    told = arkdev("plan", "--backend", "remote")
    assert told.exit_code == 0, told.err
    assert told.out.startswith("GRPO on m 1\n3 steps of 4 samples, 5 rollouts of each\n")
    assert "num_generations is 5; the platform takes one of a list, usually 8, 16, 32" in told.out
    assert "default is not publicly known: " in told.out
    assert "usually" not in arkdev("plan", "--backend", "local").out


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ('kl_estimator = "k1"', "kl_estimator has no effect on local: kl_coefficient is 0"),
        ('loss_agg_mode = "sum"', "loss_agg_mode 'sum': arkdev knows token-mean"),
        ("temperature = 0", "temperature is 0"),
        ('thinking = "custom"', "has enabled, disabled and auto"),
        ("correction_floor = 9", "correction_floor is above correction_cap"),
    ],
)
def test_what_stops_a_training_here_is_told_by_its_plan(
    workspace: Workspace, arkdev: Command, setting: str, said: str
) -> None:
    workspace.write("arkworkspace.toml", f"[train.local]\n{setting}\n")
    told = arkdev("plan", "--backend", "local", "--json")
    assert told.exit_code == 2
    assert said in told.err and "arkworkspace.toml:2" in told.err
    [problem] = told.document["problems"]
    assert said in problem["message"] and "arkworkspace.toml:2" in problem["where"]


def test_a_job_with_problems_is_not_planned(workspace: Workspace, arkdev: Command) -> None:
    workspace.write("job.yaml", job_yaml(nmae="x", save_model_limit=99))
    told = arkdev("plan", "--json")
    assert (told.exit_code, told.out) == (2, "")
    assert "2 problems" in told.err


def test_the_hyperparameters_are_printed_by_method_in_the_documented_shape(
    arkdev: Command,
) -> None:
    told = arkdev(*LOOK_UP.split(), "--fields", "hyperparameters")
    assert told.exit_code == 0, told.err
    heads = [line for line in told.out.splitlines() if line and line.split()[0] == line]
    assert heads == [
        "FinetuneSft",
        "FinetuneLoRA",
        "DPO",
        "DPOLoRA",
        "GRPO",
        "GRPOLoRA",
        "PPO",
        "OPD",
        "OPDLoRA",
    ]
    assert "it does not know which methods and values this" in told.err
    only = arkdev(*LOOK_UP.split(), "OPD", "GRPO", "--json").document
    assert [section["customization_type"] for section in only["methods"]] == ["OPD", "GRPO"]
    assert only["is_live"] is False
    rows = {row["name"]: row for row in only["methods"][0]["hyperparameters"]}
    assert (rows["topk"]["min"], rows["topk"]["max"], rows["topk"]["type"]) == (0, 128, "integer")
    assert rows["topk_type"]["options"] == ["default", "student", "teacher"]
    assert rows["enable_routing_replay"]["default_value"] is True
    assert rows["kl_coefficient"]["default_value"] is None
    assert all(row["sources"] for row in rows.values())


@pytest.mark.parametrize("missing", ["--model", "--version"])
def test_model_and_version_have_to_be_given(arkdev: Command, missing: str) -> None:
    words = LOOK_UP.split()
    at = words.index(missing)
    told = arkdev(*words[:at], *words[at + 2 :])
    assert (told.exit_code, told.out) == (2, "")
    assert missing in told.err


def test_other_fields_come_later(arkdev: Command) -> None:
    told = arkdev(*LOOK_UP.split(), "--fields", "price")
    assert (told.exit_code, told.out) == (2, "")
    assert "--fields price is not built yet" in told.err


def test_the_schema_that_init_wrote_is_the_one_that_is_printed(
    workspace: Workspace, arkdev: Command
) -> None:
    assert arkdev("init", "new", "--template", "minimal").exit_code == 0
    written = (workspace.root / "new/typings/job.schema.json").read_text(encoding="utf-8")
    assert json.loads(written) == arkdev("schema", "job").document


def test_plan_says_what_a_debug_run_takes_for_what_the_job_leaves_open(
    workspace: Workspace, arkdev: Command
) -> None:
    workspace.write("job.yaml", job_yaml(hyperparameters={"num_generations": 4}))
    [_, work, _] = arkdev("plan", "--json").document["work"]
    assert work == (
        "one epoch in steps of 32 samples, 4 rollouts of each; a debug run's own, as the job gives "
        "no num_steps, batch_size"
    )
    work = arkdev("plan", "--backend", "remote", "--json").document["work"][1]
    assert work.startswith("an unknown number of steps of an unknown number of samples, 4 rollouts")


@pytest.mark.parametrize("flag", ["--steps", "--batch-size", "--n-sample"])
def test_a_count_beyond_all_counters_is_refused(
    workspace: Workspace, arkdev: Command, flag: str
) -> None:
    told = arkdev("debug", flag, str(10**20))
    assert told.exit_code == 2
    assert f"{flag} is 100,000,000,000,000,000,000; at most 2,147,483,647" in told.err


def test_a_job_of_very_many_steps_is_planned_at_once(workspace: Workspace) -> None:
    """The rounds of 2 billion steps are counted without going through the steps."""
    values = {"num_steps": 2**31 - 1, "batch_size": 1, "test_every_n_steps": 2}
    data = {"training_set": {"local_files": ["data.jsonl"]}}
    data["validation_set"] = data["training_set"]
    workspace.write("job.yaml", job_yaml(hyperparameters=values, data=data))
    assert plan_debug(DebugRequest(start=workspace.root)).num_rounds == 2**30


def test_a_job_is_rehearsed_from_outside_of_its_workspace(
    tmp_path: Path, arkdev: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    inside = tmp_path / "inside"
    inside.mkdir()
    Workspace(inside)
    outside = tmp_path / "outside"
    outside.mkdir()
    monkeypatch.chdir(outside)
    told = arkdev("debug", "-f", "../inside/job.yaml", "--steps", "1", "--n-sample", "1")
    assert told.exit_code == 0, told.err
    [run] = (inside / "runs").iterdir()
    assert f"arkdevshow{run.resolve()}" in "".join(told.out.split())  # wrapped where it is long
    assert not (outside / "runs").exists()


def test_what_cannot_be_reached_for_a_debug_config_names_where_its_address_is_from(
    workspace: Workspace, arkdev: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:  # bound and not listening: nobody else answers there
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("ARK_BASE_URL", f"http://127.0.0.1:{taken.getsockname()[1]}/api/v3")
        config = {"apikey": "k" * 20, "endpoint_id": "ep-1"}
        workspace.write("job.yaml", job_yaml(debug_config=config))
        told = arkdev("debug")
    assert told.exit_code == 4
    assert "debug_config (job.yaml:" in told.err
    assert "ARK_BASE_URL" in told.err
    assert "base_url in" not in told.err
