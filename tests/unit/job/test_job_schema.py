"""The JSON Schema of job.yaml says what the reader says, as far as a schema can."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML

from arkdev.errors import JobError
from arkdev.flows.init_workspace import TEMPLATES, templates_root
from arkdev.job.catalogue import catalogue
from arkdev.job.reader import read_job
from arkdev.job.schema import SCHEMA_FILE, job_schema

HEAD = """\
model_reference: {foundation_model: {name: m, model_version: 250115}}
customization_type: GRPO
data: {training_set: {local_files: [data/train.jsonl]}}
custom_rl_pipeline: {graders: [{plugin: 'p.g:f'}]}
"""
GOOD = [
    HEAD,
    HEAD + "tags: [{key: a, value: 1}]\nresource_group: rg\nenable_trajectory: true\n",
    HEAD + "hyperparameters: {lr: 1e-6, batch_size: '32', my_own: x}\nsave_model_limit: '2'\n",
    HEAD + "hyperparameters: {thinking: {type: enabled}}\n",
    HEAD + "hyperparameters:\nname: 012345\ndebug_config: {apikey: k, endpoint_id: e}\n",
    HEAD.replace("graders:", "rollout: p.r:go, pipeline_type: GRPOPipeline, graders:"),
    HEAD.replace("{plugin: 'p.g:f'}", "p.g:f, {plugin: 'p.g:f', weight: 0.5, envs: {A: no}}"),
    HEAD.replace("{plugin: 'p.g:f'}", "{plugin: {python_func: 'p.g:f', runtime: {timeout: 3}}}"),
    HEAD.replace("{local_files: [data/train.jsonl]}", "{tos_bucket: b, tos_paths: [p]}"),
    HEAD.replace(
        "{local_files: [data/train.jsonl]}", "{datasets: [{dataset_id: d, multiplier: 2}]}"
    ),
    HEAD.replace("}}\ncustom_rl", "}, preset_dataset: {dataset_version_id: v}}\ncustom_rl"),
    HEAD.replace("}}\ncustom_rl", "}, validation_percentage: 10}\ncustom_rl"),
    HEAD.replace("customization_type: GRPO\n", ""),
    HEAD.replace("GRPO", "OPD").replace(
        "graders:", "teachers: {t: {model: {custom_model_id: cm-1}}}, graders:"
    ),
    HEAD.partition("custom_rl")[0].replace("GRPO", "FinetuneSft") + "hyperparameters: {epoch: 1}\n",
]
BAD = [
    HEAD + "nmae: x\n",
    HEAD + "learning_rate: 1\n",
    HEAD + "save_model_limit: 11\n",
    HEAD + "hyperparameters: {lr: 1e-5x}\n",
    HEAD + "hyperparameters: {topk_type: somebody}\n",
    HEAD + "hyperparameters: {a: [1]}\n",
    HEAD + "debug_config: {apikey: k}\n",
    HEAD.replace("GRPO", "grpo"),
    HEAD.replace("GRPO", "FinetuneSft"),
    HEAD.replace("GRPO", "OPD"),
    HEAD.replace("graders:", "pipeline_type: PPOPipeline, graders:"),
    HEAD.replace("{plugin: 'p.g:f'}", ""),
    HEAD.replace("p.g:f", "plugins/g.py"),
    HEAD.replace("{plugin: 'p.g:f'}", "{plugin: 'p.g:f', wieght: 1}"),
    HEAD.partition("custom_rl")[0],
    HEAD.replace("{local_files: [data/train.jsonl]}", "{tos_bucket: b}"),
    HEAD.replace("[data/train.jsonl]", "[data/train.jsonl], tos_bucket: b, tos_paths: [p]"),
    HEAD.replace("[data/train.jsonl]", f"[{', '.join('x' * 21)}]"),
    HEAD.replace(
        "}}\ncustom_rl",
        "}, validation_percentage: 10, validation_set: {local_files: [a]}}\ncustom_rl",
    ),
    HEAD.replace(
        "{local_files: [data/train.jsonl]}",
        "{datasets: [{dataset_id: d, multiplier: 2, sample_count: 3}]}",
    ),
    HEAD.replace("{foundation_model:", "{custom_model_id: cm-1, foundation_model:"),
]
SCHEMA = job_schema()


def errors_in(text: str) -> list[str]:
    """What an editor would underline: the file by YAML 1.2, against the schema."""
    document: Any = YAML(typ="safe", pure=True).load(io.StringIO(text))
    validator = jsonschema.Draft202012Validator(SCHEMA)
    return [error.message for error in validator.iter_errors(document)]


def read_of(folder: Path, text: str) -> object:
    (folder / "job.yaml").write_text(text, encoding="utf-8")
    return read_job(folder)


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("text", GOOD, ids=range(len(GOOD)))
def test_what_the_reader_takes_the_schema_takes(tmp_path: Path, text: str) -> None:
    assert errors_in(text) == []
    assert read_of(tmp_path, text) is not None


@pytest.mark.parametrize("text", BAD, ids=range(len(BAD)))
def test_what_the_schema_refuses_the_reader_refuses(tmp_path: Path, text: str) -> None:
    assert errors_in(text)
    with pytest.raises(JobError):
        read_of(tmp_path, text)


def test_hyperparameters_are_completed_with_their_meaning() -> None:
    values = SCHEMA["properties"]["hyperparameters"]["properties"]
    assert set(values) == set(catalogue())
    assert values["lr"]["description"].startswith("learning rate")


@pytest.mark.parametrize("template", sorted(TEMPLATES))
def test_the_job_of_a_template_names_the_schema_and_follows_it(template: str) -> None:
    text = (templates_root() / template / "job.yaml").read_text(encoding="utf-8")
    assert text.startswith(f"# yaml-language-server: $schema={SCHEMA_FILE}\n")
    assert errors_in(text) == []
