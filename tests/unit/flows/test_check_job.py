"""`arkdev check`: job, plugins and data, all that is wrong with them at once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from arkdev.errors import JobError
from arkdev.flows.check_job import FIRST_LINES, JobCheck, check_job
from arkdev.job.data import TrainingDataset
from arkdev.job.reader import read_job
from tests.integration.workspace import Workspace, away_from_the_user, job_yaml

BAD = """\
customization_type: GRPO
model_reference: {custom_model_id: cm-1}
data:
  training_set:
    local_files:
      - data.jsonl
      - nothing.jsonl
  validation_set: {local_files: [broken.jsonl]}
custom_rl_pipeline:
  rollout: plugins.grader:one
  graders:
    - plugins.grader:two
    - plugins.none:f
    - plugins.rollout:answer
hyperparameters: {leaning_rate: 1}
nmae: x
"""


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    monkeypatch.chdir(tmp_path)
    with away_from_the_user(tmp_path / "config", monkeypatch):
        yield Workspace(tmp_path)


def places(found: JobCheck) -> list[str]:
    return [problem.where for problem in found.problems]


def test_a_good_job_has_nothing_wrong_with_it(workspace: Workspace) -> None:
    found = check_job(workspace.root)
    assert (found.problems, found.warnings) == ((), ())
    assert (found.num_plugins, found.num_files) == (2, 1)
    assert found.job is not None and found.job.inferred


def test_everything_is_told_at_once_with_its_place(workspace: Workspace) -> None:
    workspace.write("job.yaml", BAD)
    workspace.write("broken.jsonl", '{"messages": []}\n{"message": 1}\n')
    found = check_job(workspace.root)
    assert found.job is None
    text = "\n".join(f"{p.where}: {p.message}" for p in found.problems)
    assert "job.yaml:15: hyperparameters.leaning_rate" in text
    assert "job.yaml:16: nmae: unknown key 'nmae'; did you mean 'name'?" in text
    assert "named in job.yaml:10: plugins.grader:one is a single_grader, not a rollout" in text
    assert "named in job.yaml:12: plugins.grader has no 'two'" in text
    assert "job.yaml:13: no module plugins.none" in text
    assert "named in job.yaml:14: plugins.rollout:answer is a single_rollout, not a grader" in text
    assert "job.yaml:7: nothing.jsonl: there is no such data file" in text
    assert "broken.jsonl:1: messages is empty" in text
    assert "broken.jsonl:2: messages is missing" in text
    assert len(found.problems) == 9


WRONG_KEYS = """\
model_reference: {custom_model_id: cm-1}
data: {training_set: {local_files: [data.jsonl]}}
custom_rl_pipeline:
  rollout: {plugin: {python_func: "plugins.rollout:nothing", envs: {A: x, B: ~}}}
  graders:
    - {plugin: {python_func: "plugins.grader:reads", envs: {A: x}, runtime: {timeout: -1}}}
    - {plugin: "plugins.rollout:two", weight: .inf}
"""


def test_a_plugin_is_looked_at_also_where_another_key_of_it_is_wrong(workspace: Workspace) -> None:
    workspace.write("job.yaml", WRONG_KEYS)
    workspace.write(
        "plugins/grader.py",
        "import os\nfrom arkdev import single_grader\nA = os.environ['A']\n"
        "@single_grader\ndef reads(context, sample, trajectory): return 1.0\n",
    )
    found = check_job(workspace.root)
    text = "\n".join(f"{p.where}: {p.message}" for p in found.problems)
    assert found.num_plugins == 3
    for key in ("plugin.envs.B", "plugin.runtime", "weight"):
        assert key in text
    assert "plugins.rollout has no 'nothing'" in text
    assert "plugins.rollout has no 'two'" in text
    assert "KeyError" not in text, "variables that are right are set while it is imported"


@pytest.mark.parametrize(
    ("plugin", "message"),
    [
        ("@single_grader\ndef one(context): ...", "makes it be called with"),
        ("def one(context, sample, trajectory): ...", "not a plugin"),
        ("raise RuntimeError('no')", "RuntimeError: no"),
        ("import no_such_package", "No module named"),
    ],
)
def test_a_plugin_that_cannot_be_used_is_told_with_its_own_line(
    workspace: Workspace, plugin: str, message: str
) -> None:
    workspace.write("plugins/grader.py", f"from arkdev import single_grader\n{plugin}\n")
    [problem] = check_job(workspace.root).problems
    assert "grader.py:" in problem.where
    assert "named in job.yaml:" in problem.where
    assert message in problem.message


def test_a_variable_of_the_job_is_there_when_its_plugin_is_imported(workspace: Workspace) -> None:
    """PIPE-05: as in a function, whose environment is made before any module is imported."""
    workspace.write(
        "plugins/grader.py",
        "import os\nfrom arkdev import single_grader\nKEY = os.environ['GRADER_KEY']\n"
        "@single_grader\ndef one(context, sample, trajectory): return float(KEY == 'abc')\n",
    )
    graders = [{"plugin": "plugins.grader:one", "envs": {"GRADER_KEY": "abc"}}]
    pipeline = {"rollout": {"plugin": "plugins.rollout:answer"}, "graders": graders}
    workspace.write("job.yaml", job_yaml(custom_rl_pipeline=pipeline))
    assert check_job(workspace.root).problems == ()
    assert "GRADER_KEY" not in os.environ
    assert workspace.run(limit=1).rewards == [(1.0,)]


def test_a_runtime_of_the_job_that_contradicts_the_decorator_s_is_told(
    workspace: Workspace,
) -> None:
    workspace.write(
        "plugins/grader.py",
        """
        from arkdev import Runtime, single_grader

        @single_grader(runtime=Runtime(max_replicas=2))
        def one(context, sample, trajectory):
            return 1.0
        """,
    )
    grader = {"plugin": {"python_func": "plugins.grader:one", "runtime": {"min_replicas": 3}}}
    workspace.write("job.yaml", job_yaml(custom_rl_pipeline={"graders": [grader]}))
    [problem] = check_job(workspace.root).problems
    assert "min_replicas (3) is larger than max_replicas (2)" in problem.message


def test_what_the_table_for_this_machine_cannot_hold_is_told(workspace: Workspace) -> None:
    workspace.write("arkworkspace.toml", "[train.local]\nlr = 1e-4\nleaning_rate = 1e-4\n")
    (wrong,) = check_job(workspace.root).problems
    assert wrong.where.endswith("arkworkspace.toml:3")
    assert "leaning_rate" in wrong.message


def test_only_the_first_lines_of_a_file_are_looked_at(workspace: Workspace) -> None:
    workspace.samples(*["hello"] * FIRST_LINES)
    with (workspace.root / "data.jsonl").open("a", encoding="utf-8") as file:
        file.write("broken\n")
    assert check_job(workspace.root).problems == ()


def test_a_job_py_is_checked_too(workspace: Workspace) -> None:
    (workspace.root / "job.yaml").unlink()
    workspace.write(
        "job.py",
        """
        from arkdev.job.models import ModelCustomizationJob

        mcj = ModelCustomizationJob(
            model_reference={"custom_model_id": "cm-1"},
            data={"training_set": {"local_files": ["none.jsonl"]}},
            custom_rl_pipeline={"graders": ["plugins.rollout:answer"]},
            hyperparameters={"num_generations": 1},
        )
        """,
    )
    found = check_job(workspace.root)
    assert [problem.message.partition(":")[0] for problem in found.problems] == [
        "plugins.rollout",
        "none.jsonl",
    ]
    assert places(found)[0].endswith("named in job.py:7")
    assert places(found)[1] == "job.py:6"
    [warning] = found.warnings
    assert warning.where == "job.py:8"
    assert "a group of one compares with nothing" in warning.message
    workspace.write("job.py", "from arkdev.job.models import *\nModelCustomizationJob(nmae=1)\n")
    found = check_job(workspace.root)
    assert set(places(found)) == {"job.py:2"}
    assert any("did you mean 'name'" in problem.message for problem in found.problems)


OBJECTS = """
    from arkdev.job.models import *

    training = TrainingDataset(
        local_files=["none.jsonl"], tos_bucket="b"
    )
    model = ModelReference(
        foundation_model=FoundationModelReference(name="m", model_verison="1"),
    )
    pipeline = GRPOPipeline(
        rollout="plugins.grader:one",
        graders=[PipelinePluginWrapper(plugin="plugins/none.py", weight="heavy")],
    )
    unused = Data(training_sets=training)
    mcj = ModelCustomizationJob(
        name="objects",
        model_reference=model,
        data=Data(training_set=training, validation_percentage=120),
        custom_rl_pipeline=pipeline,
        hyperparameters={"lr": "much"},
        save_model_limit=99,
    )
    """


@pytest.mark.parametrize("end", ["mcj.submit()", "pass", "mcj.nothing.at.all"])
def test_every_wrong_object_of_a_job_py_is_told_with_the_line_that_made_it(
    workspace: Workspace, end: str
) -> None:
    (workspace.root / "job.yaml").unlink()
    workspace.write("job.py", OBJECTS + end)
    found = check_job(workspace.root)
    told = {(problem.where, problem.message.split(" (", 1)[0]) for problem in found.problems}

    def tells(line: int, words: str) -> bool:
        return any(where == f"job.py:{line}" and words in text for where, text in told)

    assert tells(4, "give exactly one of local_files, tos_bucket")
    assert tells(8, "did you mean 'model_version'?")
    assert tells(12, "did you mean 'plugins:none'")
    assert tells(12, "weight")
    assert tells(14, "unknown key 'training_sets'")
    assert tells(18, "validation_percentage")
    crashed = end == "mcj.nothing.at.all"
    assert tells(20, "hyperparameters.lr") or (crashed and tells(15, "hyperparameters.lr"))
    assert tells(21, "save_model_limit") or (crashed and tells(15, "save_model_limit"))
    if crashed:
        assert "then the script ended with AttributeError" in found.problems[-1].fix
    else:  # what a job that is none names is looked at all the same
        assert any("none.jsonl" in problem.message for problem in found.problems)
        assert any("plugins/grader.py" in problem.where for problem in found.problems)


def test_reading_a_wrong_job_py_ends_with_all_of_it_and_leaves_nothing_behind(
    workspace: Workspace,
) -> None:
    (workspace.root / "job.yaml").unlink()
    workspace.write("job.py", OBJECTS + "mcj.submit()")
    with pytest.raises(JobError) as caught:
        read_job(workspace.root)
    assert len(caught.value.problems) >= 8
    with pytest.raises(ValidationError):  # outside of the reading Python stops at the first
        TrainingDataset(local_files=["a"], tos_bucket="b")


def test_what_may_not_be_meant_is_a_warning_with_its_line(workspace: Workspace) -> None:
    data = {"training_set": {"local_files": ["data.jsonl"]}, "max_invalid_records_number": 3}
    workspace.write(
        "job.yaml", job_yaml(data=data, hyperparameters={"num_generations": 1, "router_bias": 2})
    )
    workspace.lines([{"messages": [{"role": "user", "content": "hi"}], "extre": {}}])
    found = check_job(workspace.root)
    assert found.problems == ()
    messages = {warning.where.partition(":")[0]: warning.message for warning in found.warnings}
    assert "unknown key 'extre'; did you mean 'extra'?" in messages["data.jsonl"]
    text = "\n".join(warning.message for warning in found.warnings)
    assert "hyperparameters.router_bias: not a name that arkdev knows" in text
    assert "num_generations is 1" in text
    assert "max_invalid_records_number: the platform takes it for models that see images" in text
    assert all(":" in warning.where for warning in found.warnings)


def test_a_concurrency_that_training_would_wait_for_is_a_warning(workspace: Workspace) -> None:
    workspace.write("job.yaml", job_yaml(hyperparameters={"batch_size": 65}))
    found = check_job(workspace.root)
    assert {warning.message for warning in found.warnings} == {
        "answer: request_concurrency 512 is less than batch_size * 8, 520",
        "one: request_concurrency 512 is less than batch_size * 8, 520",
    }
    workspace.write("job.yaml", job_yaml(hyperparameters={"batch_size": 64}))
    assert check_job(workspace.root).warnings == ()


def test_without_a_job_there_is_nothing_to_check(workspace: Workspace) -> None:
    (workspace.root / "job.yaml").unlink()
    with pytest.raises(JobError, match=r"no job\.yaml or job\.py"):
        check_job(workspace.root)
    with pytest.raises(JobError, match="no such job file"):
        check_job(workspace.root, workspace.root / "other.yaml")


def with_data(**data: object) -> str:
    return job_yaml(data={"training_set": {"local_files": ["data.jsonl"]}, **data})


@pytest.mark.parametrize(
    ("tolerance", "is_accepted"),
    [
        ({}, False),
        ({"max_invalid_records_number": 1}, False),
        ({"max_invalid_records_number": 2}, True),
        ({"max_invalid_records_ratio": 0.01}, True),
    ],
)
def test_invalid_lines_that_the_job_leaves_out_are_no_problem(
    workspace: Workspace, tolerance: dict[str, float], is_accepted: bool
) -> None:
    """Only the whole file tells its share of them."""
    good = (workspace.root / "data.jsonl").read_text(encoding="utf-8").splitlines()[0]
    workspace.write("data.jsonl", "\n".join(["{}", "{}", good]) + "\n")
    workspace.write("job.yaml", with_data(**tolerance))
    found = check_job(workspace.root)
    assert (found.problems == ()) is is_accepted
    if is_accepted:
        [told] = [w for w in found.warnings if w.message.startswith("passed over")]
        assert told.where.endswith("data.jsonl:1")


def test_files_that_stand_for_datasets_are_looked_at(workspace: Workspace) -> None:
    workspace.write("arkworkspace.toml", '[datasets]\nds-1 = "gone.jsonl"\ndsv-2 = "bad.jsonl"\n')
    workspace.write("bad.jsonl", '{"messages": []}\n')
    workspace.write(
        "job.yaml",
        job_yaml(
            data={
                "training_set": {"datasets": [{"dataset_id": "ds-1"}, {"dataset_id": "ds-9"}]},
                "preset_dataset": {"dataset_version_id": "dsv-2"},
            }
        ),
    )
    found = check_job(workspace.root)
    text = "\n".join(f"{p.where}: {p.message}" for p in found.problems)
    assert "gone.jsonl: there is no such data file" in text
    assert "bad.jsonl:1: messages is empty" in text
    assert (len(found.problems), found.num_files) == (2, 2)


def test_a_file_that_is_named_again_is_warned_of(workspace: Workspace) -> None:
    files = {"local_files": ["data.jsonl", "./data.jsonl"]}
    data = {"training_set": files, "validation_set": {"local_files": ["data.jsonl"]}}
    workspace.write("job.yaml", job_yaml(data=data))
    found = check_job(workspace.root)
    assert [(w.message.partition(" is ")[0], w.fix) for w in found.warnings] == [
        ("data.training_set.local_files[1]", "it counts twice"),
        (
            "data.validation_set.local_files[0]",
            "validation then measures what was trained on",
        ),
    ]


def test_a_path_that_is_none_is_told_and_the_rest_is_checked(workspace: Workspace) -> None:
    files = ["tos://b/a.jsonl", "x" * 300, "gone.jsonl"]
    workspace.write("job.yaml", job_yaml(data={"training_set": {"local_files": files}}))
    text = "\n".join(p.message for p in check_job(workspace.root).problems)
    assert "is no local file" in text
    assert "File name too long" in text
    assert "gone.jsonl: there is no such data file" in text
