"""The lines of a job.py's keys: told where its text tells them, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from arkdev.errors import JobError
from arkdev.job.python_lines import lines_of_job
from arkdev.job.reader import read_job

TEXT = """\
from arkdev.job.models import *

steps = {"num_steps": 4}
mcj = ModelCustomizationJob(
    name="x",
    model_reference={
        "custom_model_id": "cm-1",
    },
    data=Data(
        training_set=TrainingDataset(local_files=[
            "a.jsonl",
            "b.jsonl",
        ]),
    ),
    custom_rl_pipeline=GRPOPipeline(
        graders=[
            PipelinePluginWrapper(plugin="p:f", weight=2),
        ],
    ),
    hyperparameters={
        "lr": "1e-6", **steps,
    },
    save_model_limit=LIMIT,
)
"""


def test_keys_in_the_call_have_their_own_lines() -> None:
    lines = lines_of_job(TEXT)
    assert lines[("name",)] == 5
    assert lines[("model_reference", "custom_model_id")] == 7
    assert lines[("data", "training_set", "local_files", 1)] == 12
    assert lines[("custom_rl_pipeline", "graders", 0, "weight")] == 17
    assert lines[("hyperparameters", "lr")] == 21
    assert ("hyperparameters", "num_steps") not in lines


@pytest.mark.parametrize("text", ["x = 1", TEXT + TEXT, "def f(:", "\0"])
def test_a_text_that_does_not_tell_has_no_lines(text: str) -> None:
    assert lines_of_job(text) == {}


def test_places_of_a_job_and_of_its_errors_are_these_lines(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_text(TEXT.replace("LIMIT", "3"), encoding="utf-8")
    job = read_job(tmp_path)
    assert job is not None
    assert job.place(("hyperparameters", "lr")) == f"{path}:21"
    assert job.place(("hyperparameters", "num_steps")) == f"{path}:20"
    assert job.place(("tags",)) == str(path)
    assert job.graders[0].where == f"{path}:17"
    path.write_text(TEXT.replace("LIMIT", "30").replace('"lr"', '"l_rate"'), encoding="utf-8")
    path.write_text(path.read_text(encoding="utf-8").replace("num_steps", "num_stepz"), "utf-8")
    with pytest.raises(JobError) as caught:
        read_job(tmp_path)
    assert [problem.partition(": ")[0] for problem in caught.value.problems] == [
        f"{path}:23",
        f"{path}:20",
    ]
