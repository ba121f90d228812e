"""What the keys of a job say to each other, in objects and in plain dicts alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from arkdev.errors import JobError
from arkdev.job.data import MAX_FILE_BYTES, Data, TrainingDataset
from arkdev.job.invalid_objects import describe_errors
from arkdev.job.methods import CustomizationType
from arkdev.job.models import GRPOPipeline, ModelCustomizationJob, ModelReference, PPOPipeline
from arkdev.job.problems import dotted
from arkdev.job.reader import read_job

FILES = {"local_files": ["a.jsonl"]}
PIPELINE = {"graders": ["p:f"]}
TEACHERS = {"t": {"model": {"custom_model_id": "cm-2"}}}


def job(**changes: Any) -> dict[str, Any]:
    """A valid GRPO job with some keys changed; a key that is None is left out."""
    whole = {
        "customization_type": "GRPO",
        "model_reference": {"custom_model_id": "cm-1"},
        "data": {"training_set": FILES},
        "custom_rl_pipeline": PIPELINE,
        **changes,
    }
    return {name: value for name, value in whole.items() if value is not None}


def problems(**changes: Any) -> dict[str, str]:
    """Place → sentence of everything wrong with a job."""
    try:
        ModelCustomizationJob.model_validate(job(**changes))
    except ValidationError as error:
        return {dotted(place): sentence for place, sentence in describe_errors(error)}
    return {}


def of_data(**changes: Any) -> dict[str, str]:
    return problems(data={"training_set": FILES, **changes})


DOCUMENTED_METHODS = (
    *("FinetuneSft", "FinetuneLoRA", "DPO", "DPOLoRA", "GRPO", "GRPOLoRA", "PPO"),
    *("OPD", "OPDLoRA"),
)
"""CT-01 to CT-08, and OPDLoRA, which is seen in public (Y-12)."""


def test_the_methods_are_the_documented_ones() -> None:
    assert tuple(method.value for method in CustomizationType) == DOCUMENTED_METHODS


@pytest.mark.parametrize("method", [CustomizationType(name) for name in DOCUMENTED_METHODS])
def test_rl_methods_demand_a_pipeline_and_the_others_refuse_one(method: CustomizationType) -> None:
    kind = method.pipeline
    own = {**PIPELINE, "pipeline_type": kind} if kind else None
    if kind == "OPDPipeline":
        own = {**own, "teachers": TEACHERS}
    assert problems(customization_type=method.value, custom_rl_pipeline=own) == {}
    if kind:
        missing = problems(customization_type=method.value, custom_rl_pipeline=None)
        assert missing == {"": f"{method} needs a custom_rl_pipeline with at least one grader"}
    else:
        [sentence] = problems(customization_type=method.value).values()
        assert f"{method} takes no custom_rl_pipeline" in sentence


@pytest.mark.parametrize(
    ("method", "kind", "wanted"),
    [
        ("GRPO", "PPOPipeline", "GRPOPipeline"),
        ("GRPOLoRA", "PPOPipeline", "GRPOPipeline"),
        ("PPO", "GRPOPipeline", "PPOPipeline"),
        ("OPD", "GRPOPipeline", "OPDPipeline"),
        ("OPDLoRA", "PPOPipeline", "OPDPipeline"),
    ],
)
def test_a_pipeline_of_another_method_is_refused(method: str, kind: str, wanted: str) -> None:
    found = problems(
        customization_type=method, custom_rl_pipeline={**PIPELINE, "pipeline_type": kind}
    )
    assert found == {"custom_rl_pipeline": f"{method} takes a {wanted}, not a {kind}"}


def test_objects_follow_the_same_rules_as_dicts() -> None:
    with pytest.raises(ValidationError, match="PPO takes a PPOPipeline, not a GRPOPipeline"):
        ModelCustomizationJob(
            customization_type=CustomizationType.PPO,
            model_reference=ModelReference(custom_model_id="cm-1"),
            data=Data(training_set=TrainingDataset(local_files=["a.jsonl"])),
            custom_rl_pipeline=GRPOPipeline(graders=["p:f"]),
        )
    with pytest.raises(ValidationError, match="exclude each other"):
        Data(
            training_set=TrainingDataset(**FILES),
            validation_set=TrainingDataset(**FILES),
            validation_percentage=5,
        )


def test_without_method_and_pipeline_the_method_is_missing() -> None:
    [sentence] = problems(customization_type=None, custom_rl_pipeline=None).values()
    assert sentence == "customization_type is missing, and no pipeline says it"


@pytest.mark.parametrize(
    ("pipeline", "method"),
    [(PIPELINE, "GRPO"), (PPOPipeline(graders=["p:f"]), "PPO")],
)
def test_the_pipeline_says_the_method(pipeline: Any, method: str) -> None:
    made = ModelCustomizationJob.model_validate(
        job(customization_type=None, custom_rl_pipeline=pipeline)
    )
    assert made.method == method


def test_opd_needs_a_teacher() -> None:
    found = problems(customization_type="OPD", custom_rl_pipeline=PIPELINE)
    assert found == {"custom_rl_pipeline.teachers": "at least one is needed: a name and its model"}


@pytest.mark.parametrize(
    ("training_set", "sentence"),
    [
        ({}, "give exactly one of"),
        ({**FILES, "tos_bucket": "b", "tos_paths": ["p"]}, "give exactly one of"),
        ({**FILES, "datasets": [{"dataset_id": "d"}]}, "give exactly one of"),
        ({"tos_bucket": "b"}, "tos_paths is missing"),
        ({"tos_paths": ["p"]}, "tos_bucket is missing"),
        ({"local_files": []}, "at least 1 item"),
        ({"local_files": [""]}, "at least 1 character"),
        ({"datasets": [{"multiplier": 2}]}, "dataset_id or dataset_version_id is missing"),
        ({"datasets": [{"dataset_id": "d", "multiplier": 0}]}, "greater than 0"),
        ({"datasets": [{"dataset_id": "d", "sample_count": 0}]}, "greater than or equal to 1"),
        (
            {"datasets": [{"dataset_id": "d", "multiplier": 2, "sample_count": 1}]},
            "multiplier and sample_count exclude each other",
        ),
        ({"local_files": [f"{n}.jsonl" for n in range(21)]}, "21 files; at most 20"),
    ],
)
def test_a_set_has_exactly_one_source(training_set: dict[str, Any], sentence: str) -> None:
    for name in ("training_set", "validation_set"):
        data = {"training_set": FILES, name: training_set}
        found = problems(data=data)
        assert [text for text in found.values() if sentence in text], found
        assert all(place.startswith(f"data.{name}") for place in found)


@pytest.mark.parametrize(
    "training_set",
    [
        {"local_files": [f"{n}.jsonl" for n in range(20)]},
        {"tos_bucket": "b", "tos_paths": ["p", "q"]},
        {"datasets": [{"dataset_id": "d", "dataset_version_id": "v", "sample_count": 5}]},
        {"datasets": [{"dataset_version_id": "v", "multiplier": "1.5"}]},
    ],
)
def test_each_source_of_a_set_is_accepted(training_set: dict[str, Any]) -> None:
    assert problems(data={"training_set": training_set, "validation_set": training_set}) == {}


@pytest.mark.parametrize(
    ("changes", "place", "sentence"),
    [
        (
            {"validation_set": FILES, "validation_percentage": 10},
            "data.validation_percentage",
            "exclude each other",
        ),
        ({"validation_percentage": 0}, "data.validation_percentage", "greater than 0"),
        ({"validation_percentage": 100}, "data.validation_percentage", "less than 100"),
        ({"validation_percentage": True}, "data.validation_percentage", "not a boolean"),
        (
            {"max_invalid_records_ratio": 0.1, "max_invalid_records_number": 1},
            "data.max_invalid_records_number",
            "exclude each other",
        ),
        ({"max_invalid_records_ratio": 1.5}, "data.max_invalid_records_ratio", "equal to 1"),
        ({"max_invalid_records_number": -1}, "data.max_invalid_records_number", "equal to 0"),
        (
            {
                "preset_dataset": {
                    "dataset_version_id": "v",
                    "inject_multiplier": 2,
                    "inject_sample_count": 3,
                }
            },
            "data.preset_dataset[0].inject_sample_count",
            "exclude each other",
        ),
        (
            {"preset_dataset": [{"inject_multiplier": 2}]},
            "data.preset_dataset[0].dataset_version_id",
            "Field required",
        ),
        (
            {
                "validation_set": {
                    **FILES,
                    "preset_dataset": {"dataset_version_id": "v"},
                }
            },
            "data.validation_set.preset_dataset",
            "for the training set only",
        ),
    ],
)
def test_data_keys_that_exclude_each_other_or_are_out_of_range(
    changes: dict[str, Any], place: str, sentence: str
) -> None:
    found = of_data(**changes)
    assert sentence in found.get(place, ""), found


def test_preset_data_stands_in_one_place() -> None:
    preset = {"dataset_version_id": "v", "inject_sample_count": 3}
    assert of_data(preset_dataset=preset) == {}
    inside = {**FILES, "preset_dataset": preset}
    assert problems(data={"training_set": inside}) == {}
    found = problems(data={"training_set": inside, "preset_dataset": preset})
    assert found == {
        "data.training_set.preset_dataset": "preset_dataset is also given beside training_set"
    }


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"enable_trajectory": True}, "enable_trajectory"),
        ({"enable_trajectory": False}, "enable_trajectory"),
        ({"debug_config": {"apikey": "k", "endpoint_id": "e"}}, "debug_config"),
        (
            {"data": {"training_set": FILES, "max_invalid_records_ratio": 0.1}},
            "data.max_invalid_records_ratio",
        ),
        ({"hyperparameters": {"num_generations": 8}}, "hyperparameters.num_generations"),
    ],
)
def test_what_is_for_rl_only_is_refused_elsewhere(changes: dict[str, Any], place: str) -> None:
    assert problems(**changes) == {}
    sft = problems(customization_type="FinetuneSft", custom_rl_pipeline=None, **changes)
    assert list(sft) == [place]
    assert "FinetuneSft" in sft[place]


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"save_model_limit": 0}, "save_model_limit"),
        ({"save_model_limit": 11}, "save_model_limit"),
        ({"save_model_limit": True}, "save_model_limit"),
        ({"resource_group": ""}, "resource_group"),
        ({"tags": [{"value": "v"}]}, "tags[0].key"),
        ({"debug_config": {"apikey": "k"}}, "debug_config.endpoint_id"),
        ({"model_reference": {"custom_model_id": "m-1"}}, "model_reference.custom_model_id"),
        ({"model_reference": {}}, "model_reference"),
        (
            {"model_reference": {"foundation_model": {"name": "m", "model_version": 260428}}},
            "model_reference.foundation_model.model_version",
        ),
    ],
)
def test_values_out_of_their_limits_are_refused(changes: dict[str, Any], place: str) -> None:
    assert place in problems(**changes)


@pytest.mark.parametrize(
    ("pipeline", "place", "sentence"),
    [
        (
            {"graders": [{"plugin": "p:f", "weight": 0}]},
            "custom_rl_pipeline.graders",
            "every grader has weight 0",
        ),
        (
            {"graders": [{"plugin": f"p:{name}", "weight": 1e308} for name in "fg"]},
            "custom_rl_pipeline.graders",
            "add up to more than the largest float",
        ),
        (
            {**PIPELINE, "rollout": {"plugin": "p:r", "weight": 0.5}},
            "custom_rl_pipeline.rollout",
            "a rollout has no weight",
        ),
        (
            {"graders": [{"plugin": {"python_func": "p:f", "runtime": {"timeout": 901}}}]},
            "custom_rl_pipeline.graders[0].plugin.runtime",
            "at most 900",
        ),
    ],
)
def test_settings_of_plugins_that_cannot_be_meant(
    pipeline: dict[str, Any], place: str, sentence: str
) -> None:
    found = problems(custom_rl_pipeline=pipeline)
    assert sentence in found.get(place, ""), found


def test_a_weight_of_0_beside_others_and_the_public_weight_of_a_rollout_are_fine() -> None:
    graders = [{"plugin": "p:f", "weight": 0}, "p:g"]
    rollout = {"plugin": "p:r", "weight": 1.0}
    assert problems(custom_rl_pipeline={"rollout": rollout, "graders": graders}) == {}


def test_everything_is_told_at_once_whatever_the_level() -> None:
    found = problems(
        customization_type="PPO",
        nmae="x",
        custom_rl_pipeline={**PIPELINE, "pipeline_type": "GRPOPipeline", "rolout": "p:f"},
        data={
            "training_set": {**FILES, "tos_bucket": "b"},
            "validation_set": FILES,
            "validation_percentage": 200,
        },
        hyperparameters={"lr": "x", "topk": 3},
        save_model_limit=0,
    )
    assert set(found) == {
        "nmae",
        "custom_rl_pipeline",
        "custom_rl_pipeline.rolout",
        "data.training_set.tos_bucket",
        "data.validation_percentage",
        "hyperparameters.lr",
        "hyperparameters.topk",
        "save_model_limit",
    }


def test_a_file_of_more_than_2_gb_is_refused_before_anything_starts(tmp_path: Path) -> None:
    text = "\n".join(
        [
            "model_reference: {custom_model_id: cm-1}",
            "data:",
            "  training_set:",
            "    local_files:",
            "      - fits.jsonl",
            "      - large.jsonl",
            "custom_rl_pipeline: {graders: ['p:f']}",
        ]
    )
    (tmp_path / "job.yaml").write_text(text, encoding="utf-8")
    for name, size in (("fits.jsonl", MAX_FILE_BYTES), ("large.jsonl", MAX_FILE_BYTES + 1)):
        with (tmp_path / name).open("wb") as file:
            file.truncate(size)
    with pytest.raises(JobError) as caught:
        read_job(tmp_path)
    assert caught.value.where.endswith("job.yaml:6")
    many = text.replace("      - large.jsonl", "      - fits.jsonl\n" * 20, 1)
    (tmp_path / "job.yaml").write_text(many, encoding="utf-8")
    with pytest.raises(JobError, match="21 files; at most 20"):
        read_job(tmp_path)
    assert "2,147,483,649 bytes; a file may have 2 GB" in caught.value.message
