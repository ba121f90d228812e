"""Job files as the documents write them: one set of fields in Python and in YAML."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from arkdev.errors import JobError
from arkdev.job.job import Job
from arkdev.job.models import TeacherConfig
from arkdev.job.reader import read_job
from arkdev.plugin import ark_sdk
from tests.integration.workspace import Workspace, away_from_the_user

PYTHON = """
    from ark_sdk.resources.model_customization_job import ModelCustomizationJob
    from ark_sdk.resources.pipeline_plugin import GRPOPipeline, PipelinePluginWrapper
    from ark_sdk.types.model_customization_job import (
        CustomizationType, Data, FoundationModelReference, ModelCustomizationJobRLDebugConfig,
        ModelReference, Tag, TrainingDataset,
    )

    mcj = ModelCustomizationJob(
        name="whole",
        project="default",
        description="every field",
        customization_type=CustomizationType.GRPOLoRA,
        model_reference=ModelReference(
            foundation_model=FoundationModelReference(
                name="doubao-seed-2-0-lite", model_version="260428"
            )
        ),
        data=Data(
            training_set=TrainingDataset(local_files=["data.jsonl"]),
            validation_set=TrainingDataset(tos_bucket="b", tos_paths=["p.jsonl"]),
            preset_dataset={"dataset_version_id": "v", "inject_sample_count": 5},
            max_invalid_records_ratio=0.1,
        ),
        custom_rl_pipeline=GRPOPipeline(
            rollout=PipelinePluginWrapper(plugin="plugins.rollout:answer", envs={"foo": "bar"}),
            graders=[
                PipelinePluginWrapper(plugin="plugins.grader:one", envs={"foo": "bar"}, weight=0.5)
            ],
        ),
        enable_trajectory=True,
        hyperparameters={"lr": "0.000001", "batch_size": "32", "lora_rank": "32"},
        save_model_limit=1,
        debug_config=ModelCustomizationJobRLDebugConfig(apikey="your_api_key", endpoint_id="ep"),
        tags=[Tag(key="team", value="search")],
        resource_group="rg-1",
    )
"""
YAML = """\
name: whole
project: default
description: every field
customization_type: GRPOLoRA
model_reference:
  foundation_model:
    name: doubao-seed-2-0-lite
    model_version: 260428
data:
  training_set: {local_files: [data.jsonl]}
  validation_set: {tos_bucket: b, tos_paths: [p.jsonl]}
  preset_dataset: {dataset_version_id: v, inject_sample_count: 5}
  max_invalid_records_ratio: 0.1
custom_rl_pipeline:
  rollout: {plugin: "plugins.rollout:answer", envs: {foo: bar}}
  graders:
    - {plugin: "plugins.grader:one", envs: {foo: bar}, weight: 0.5}
enable_trajectory: true
hyperparameters: {lr: 1e-6, batch_size: 32, lora_rank: 32}
save_model_limit: 1
debug_config: {apikey: your_api_key, endpoint_id: ep}
tags: [{key: team, value: search}]
resource_group: rg-1
"""
OPD = """
    from ark_sdk.resources.model_customization_job import ModelCustomizationJob
    from ark_sdk.resources.pipeline_plugin import OPDPipeline
    from ark_sdk.types.model_customization_job import (
        Data, FoundationModelReference, ModelReference, TeacherConfig, TrainingDataset,
    )
    from plugins.grader import one
    from plugins.rollout import answer

    teachers = {
        "teacher_math": TeacherConfig(
            model=ModelReference(
                foundation_model=FoundationModelReference(
                    name="doubao-seed-2-0-mini", model_version="260428"
                )
            )
        )
    }
    mcj = ModelCustomizationJob(
        model_reference=ModelReference(custom_model_id="cm-20251019092329-rxxxv"),
        data=Data(training_set=TrainingDataset(local_files=["data.jsonl"])),
        custom_rl_pipeline=OPDPipeline(rollout=answer, graders=[one], teachers=teachers),
    )
"""


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    monkeypatch.chdir(tmp_path)
    with away_from_the_user(tmp_path / "config", monkeypatch):
        ark_sdk.install()
        yield Workspace(tmp_path)


def read(workspace: Workspace, name: str, text: str) -> Job:
    workspace.write(name, text)
    job = read_job(workspace.root, workspace.root / name)
    assert job is not None
    return job


def test_python_objects_and_yaml_of_every_field_are_one_job(workspace: Workspace) -> None:
    python, yaml = read(workspace, "job.py", PYTHON), read(workspace, "job.yaml", YAML)
    assert python.config == yaml.config
    config = yaml.config
    assert (config.name, config.project, config.description) == (
        "whole",
        "default",
        "every field",
    )
    model = config.model_reference.foundation_model
    assert model is not None
    assert (model.name, model.model_version) == ("doubao-seed-2-0-lite", "260428")
    assert config.data.validation_set is not None
    assert config.data.validation_set.tos_paths == ["p.jsonl"]
    assert config.data.preset_dataset is not None
    assert config.data.preset_dataset[0].inject_sample_count == 5
    assert config.enable_trajectory is True
    assert (config.save_model_limit, config.resource_group) == (1, "rg-1")
    assert config.debug_config is not None
    assert config.debug_config.endpoint_id == "ep"
    assert config.debug_config.apikey.get_secret_value() == "your_api_key"
    for job in (python, yaml):
        assert job.rollout is not None and job.rollout.envs == {"foo": "bar"}
        assert [(grader.name, grader.weight) for grader in job.graders] == [("one", 0.5)]
        assert job.hyperparameters == {"lr": 1e-6, "batch_size": 32, "lora_rank": 32}


def test_an_opd_pipeline_has_its_teachers_by_name(workspace: Workspace) -> None:
    job = read(workspace, "job.py", OPD)
    assert job.customization_type == "OPD"
    assert "customization_type: OPD, because a OPDPipeline trains by it" in job.inferred
    pipeline = job.config.custom_rl_pipeline
    assert pipeline is not None
    [(name, teacher)] = pipeline.teachers.items()  # type: ignore[attr-defined]
    assert name == "teacher_math" and isinstance(teacher, TeacherConfig)
    assert teacher.model.foundation_model is not None
    assert teacher.model.foundation_model.name == "doubao-seed-2-0-mini"
    assert job.rollout is not None and job.rollout.name == "answer"


def test_a_pipeline_has_at_most_one_rollout_and_at_least_one_grader(workspace: Workspace) -> None:
    """PIPE-08, PIPE-09: without a rollout the built-in single turn runs."""
    head = YAML.partition("custom_rl_pipeline")[0] + "custom_rl_pipeline:\n"
    graders = "  graders: [plugins.grader:one, {plugin: 'plugins.grader:one', weight: 2}]\n"
    job = read(workspace, "job.yaml", head + graders)
    assert job.rollout is None
    assert "the built-in single-turn one, because none is given" in job.inferred[-1]
    assert [grader.weight for grader in job.graders] == [1.0, 2.0]
    for bad, message in (
        (graders + "  rollout: [plugins.rollout:answer, plugins.rollout:answer]\n", "only one"),
        ("  graders: []\n", "at least one grader"),
    ):
        with pytest.raises(JobError, match=message):
            read(workspace, "job.yaml", head + bad)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("{custom_model_id: cm-20251019092329-rxxxv}", ""),
        ("{foundation_model: {name: m, model_version: '1'}}", ""),
        ("{foundation_model: {name: m}}", "model_version: Field required"),
        ("{foundation_model: {name: m, model_version: 1}, custom_model_id: cm-1}", "exclude"),
        ("{}", "one of foundation_model and custom_model_id is missing"),
    ],
)
def test_the_model_is_named_in_one_of_two_ways(
    workspace: Workspace, reference: str, message: str
) -> None:
    head = YAML.partition("model_reference")[0] + f"model_reference: {reference}\n"
    text = head + "data" + YAML.partition("\ndata")[2]
    if not message:
        job = read(workspace, "job.yaml", text)
        of_model = (job.model_name, job.model_version, job.custom_model_id)
        is_custom = "custom" in reference
        assert of_model == (
            (None, None, "cm-20251019092329-rxxxv") if is_custom else ("m", "1", None)
        )
        return
    with pytest.raises(JobError, match=message):
        read(workspace, "job.yaml", text)
