"""The table of what each key does on each backend: whole, and what is refused follows from it."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arkdev.backends.local.settings import LoraSettings, UpdateSettings
from arkdev.errors import JobError
from arkdev.flows.debug_request import DEFAULT_BATCH_SIZE, DEFAULT_NUM_GENERATIONS
from arkdev.harness.loss_weights import DEFAULT_MODE
from arkdev.job.capabilities import KEYS, METHODS, PARTS, BackendName, Support, capability_of
from arkdev.job.catalogue import Part, catalogue, local_settings
from arkdev.job.effects import Origin, effects_of, refusals, require_supported, without_default
from arkdev.job.job import Job
from arkdev.job.local_values import OWN_DEFAULTS, SWITCHES, Switch, known_settings, local_job
from arkdev.job.methods import CustomizationType
from arkdev.job.model import JobModel
from arkdev.job.models import ModelCustomizationJob
from arkdev.job.pipelines import OPDPipeline, PipelinePluginWrapper
from arkdev.job.reader import read_job
from arkdev.job.workspace import PlacedValue, read_workspace

WHOLE = """\
name: whole
project: p
description: d
customization_type: OPDLoRA
model_reference: {foundation_model: {name: doubao-seed-2-0-lite, model_version: 260428}}
data:
  training_set: {local_files: [data/train.jsonl]}
  validation_set: {datasets: [{dataset_id: d, multiplier: 2}]}
  preset_dataset: {dataset_version_id: v, inject_multiplier: 2}
  max_invalid_records_ratio: 0.1
custom_rl_pipeline:
  pipeline_type: OPDPipeline
  rollout: {plugin: {python_func: "p.r:go", runtime: {timeout: 5}}, envs: {A: secret}, weight: 1}
  graders:
    - {plugin: {name: g, python_func: "p.g:go", runtime: {timeout: 5}}, envs: {B: x}, weight: 0.5}
    - p.h:go
  teachers: {t: {model: {custom_model_id: cm-1}}}
enable_trajectory: true
hyperparameters: {lr: 1e-6, topk: 8, temperature: 0.7, router_bias: 2}
save_model_limit: 2
debug_config: {apikey: secret, endpoint_id: ep-1}
tags: [{key: team, value: search}]
resource_group: rg-1
"""


GRPO = """\
customization_type: GRPO
model_reference: {custom_model_id: cm-1}
data: {training_set: {local_files: [a]}}
custom_rl_pipeline: {graders: [p.g:go]}
"""


def read(folder: Path, text: str) -> Job:
    (folder / "job.yaml").write_text(text, encoding="utf-8")
    job = read_job(folder)
    assert job is not None
    return job


def model_of(annotation: Any) -> type[JobModel] | None:
    """The model inside of a field's type, if any."""
    if isinstance(annotation, type) and issubclass(annotation, JobModel):
        return annotation
    for part in typing.get_args(annotation):
        if isinstance(part, types.GenericAlias | type) or typing.get_args(part):
            found = model_of(part)
            if found:
                return found
    return None


def keys_of(model: type[JobModel], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every key of the job's models, one level below a row of the table at most."""
    for name, field in model.model_fields.items():
        here = (*path, name)
        inner = OPDPipeline if name == "custom_rl_pipeline" else model_of(field.annotation)
        yield here
        if inner and ".".join(here) not in KEYS and inner is not PipelinePluginWrapper:
            yield from keys_of(inner, here)


CONTAINERS = {"data", "data.training_set", "data.validation_set", "debug_config"} | {
    "custom_rl_pipeline",
    "model_reference",
}


def test_every_key_of_the_job_has_a_row() -> None:
    keys = {".".join(key): key for key in keys_of(ModelCustomizationJob)}
    special = ("customization_type", "hyperparameters", "data.validation_set.preset_dataset")
    rowless = {
        name
        for name, key in keys.items()
        if name not in CONTAINERS and not name.startswith(special) and capability_of(key) is None
    }
    assert rowless == set()
    plugin_rows = {f"custom_rl_pipeline.{kind}" for kind in ("rollout", "graders")}
    of_plugins = {f"{row}.{part}" for row in plugin_rows for part in ("envs", "weight", "runtime")}
    assert set(KEYS) - of_plugins <= set(keys)


def test_every_method_and_every_part_of_the_catalogue_has_a_row() -> None:
    assert set(METHODS) == set(CustomizationType)
    assert set(PARTS) == set(Part) == {entry.part for entry in catalogue().values()}


def test_what_is_refused_names_what_works_and_nothing_else_does() -> None:
    for row in (*KEYS.values(), *METHODS.values(), *PARTS.values()):
        for backend in BackendName:
            effect = row.on(backend)
            assert effect.text
            assert bool(effect.instead) == (effect.support is Support.REFUSED)


def test_the_platform_refuses_nothing_that_its_documents_name() -> None:
    for row in (*KEYS.values(), *METHODS.values(), *PARTS.values()):
        assert row.remote.support is not Support.REFUSED


def test_each_key_of_a_job_has_its_value_place_and_effect(tmp_path: Path) -> None:
    effects = {effect.key: effect for effect in effects_of(read(tmp_path, WHOLE))}
    places = {key: effect.where.rpartition(":")[2] for key, effect in effects.items()}
    given = {key for key, effect in effects.items() if effect.origin is Origin.FILE}
    assert given == {
        "customization_type",
        "name",
        "project",
        "description",
        "model_reference.foundation_model",
        "data.training_set.local_files",
        "data.validation_set.datasets",
        "data.preset_dataset",
        "data.max_invalid_records_ratio",
        "custom_rl_pipeline.pipeline_type",
        "custom_rl_pipeline.rollout",
        "custom_rl_pipeline.rollout.envs",
        "custom_rl_pipeline.rollout.runtime",
        "custom_rl_pipeline.rollout.weight",
        "custom_rl_pipeline.graders[0]",
        "custom_rl_pipeline.graders[0].envs",
        "custom_rl_pipeline.graders[0].runtime",
        "custom_rl_pipeline.graders[0].weight",
        "custom_rl_pipeline.graders[1]",
        "custom_rl_pipeline.teachers",
        "enable_trajectory",
        "hyperparameters.lr",
        "hyperparameters.topk",
        "hyperparameters.temperature",
        "hyperparameters.router_bias",
        "save_model_limit",
        "debug_config.apikey",
        "debug_config.endpoint_id",
        "tags",
        "resource_group",
    }
    assert (places["customization_type"], places["hyperparameters.topk"]) == ("4", "19")
    assert places["custom_rl_pipeline.graders[0].weight"] == "15"
    assert effects["tags"].value == "key=team, value=search"
    assert effects["hyperparameters.topk"].value == "8"
    shown = " ".join(effect.value for effect in effects.values())
    assert "secret" not in shown
    assert effects["debug_config.apikey"].value == "***"
    assert effects["custom_rl_pipeline.rollout.envs"].value == "A"
    weight = effects["custom_rl_pipeline.graders[1].weight"]
    assert (weight.value, weight.origin) == ("1", Origin.DEFAULT)
    replay = effects.get("hyperparameters.enable_routing_replay")
    assert replay is None  # it is not known for OPDLoRA
    tokens = effects["hyperparameters.max_new_tokens"]
    assert (tokens.value, tokens.origin, tokens.where) == ("4096", Origin.DEFAULT, "ROLL-20")


def test_what_is_inferred_says_from_what(tmp_path: Path) -> None:
    text = WHOLE.replace("customization_type: OPDLoRA\n", "")
    effects = {effect.key: effect for effect in effects_of(read(tmp_path, text))}
    method = effects["customization_type"]
    assert (method.value, method.origin, method.where) == (
        "OPD",
        Origin.INFERRED,
        "from OPDPipeline",
    )
    text = WHOLE.replace("  pipeline_type: OPDPipeline\n", "")
    effects = {effect.key: effect for effect in effects_of(read(tmp_path, text))}
    kind = effects["custom_rl_pipeline.pipeline_type"]
    assert (kind.value, kind.origin, kind.where) == (
        "OPDPipeline",
        Origin.INFERRED,
        "from OPDLoRA",
    )


@pytest.mark.parametrize(
    ("backend", "keys"),
    [
        (
            "debug",
            ["router_bias", "resource_group"],
        ),
        (
            "local",
            ["customization_type", "teachers", "topk", "router_bias", "resource_group"],
        ),
        ("remote", []),
    ],
)
def test_a_key_that_a_backend_would_pass_over_is_an_error_with_what_works(
    tmp_path: Path, backend: str, keys: list[str]
) -> None:
    job = read(tmp_path, WHOLE)
    found = refusals(job, BackendName(backend))
    named = [problem.message.partition(" ")[0] for problem in found]
    assert len(named) == len(keys)
    assert all(any(name.endswith(key) for name in named) for key in keys)
    if not keys:
        require_supported(job, BackendName(backend))
        return
    with pytest.raises(JobError) as caught:
        require_supported(job, BackendName(backend))
    assert "job.yaml:23: resource_group has no effect on" in str(caught.value)
    assert ("trains with GRPO so far" in str(caught.value)) == (backend == "local")


@pytest.mark.parametrize("method", ["FinetuneSft", "FinetuneLoRA", "DPO", "DPOLoRA"])
def test_supervised_methods_run_on_the_platform_only(tmp_path: Path, method: str) -> None:
    text = (
        f"customization_type: {method}\nmodel_reference: {{custom_model_id: cm-1}}\n"
        "data: {training_set: {local_files: [a]}}\nhyperparameters: {epoch: 1}\n"
    )
    job = read(tmp_path, text)
    for backend in (BackendName.DEBUG, BackendName.LOCAL):
        [problem] = refusals(job, backend)
        assert problem.where.endswith("job.yaml:1")
        assert "GRPO" in problem.message.partition(";")[2]
    assert refusals(job, BackendName.REMOTE) == []


def test_a_default_that_a_backend_would_pass_over_is_no_error(tmp_path: Path) -> None:
    text = GRPO.replace(
        "{custom_model_id: cm-1}",
        "{foundation_model: {name: doubao-seed-2-0-lite, model_version: 260428}}",
    )
    job = read(tmp_path, text)
    effects = {effect.key: effect for effect in effects_of(job)}
    replay = effects["hyperparameters.enable_routing_replay"]
    assert replay.origin is Origin.DEFAULT
    assert replay.capability.local.support is Support.RECORDED
    assert refusals(job, BackendName.LOCAL) == []
    asked = read(tmp_path, text + "hyperparameters: {enable_routing_replay: true}\n")
    [problem] = refusals(asked, BackendName.LOCAL)
    assert "no model with experts" in problem.message


def test_values_of_this_machine_are_shown_with_their_place_and_the_jobs_own(tmp_path: Path) -> None:
    (tmp_path / "arkworkspace.toml").write_text(
        "[plugin.package]\ninclude = ['*.py']\n\n[train.local]\nlr = 5e-4\nkl_place = 'reward'\n",
        encoding="utf-8",
    )
    job = read(tmp_path, GRPO + "hyperparameters: {lr: 1e-6, top_p: 0.9}\n")
    local = local_job(job, read_workspace(tmp_path), flags={"top_p": PlacedValue("1", "--set")})
    effects = {effect.key.partition(".")[2]: effect for effect in effects_of(job, local)}
    lr, place, top_p, cap = (effects[n] for n in ("lr", "kl_place", "top_p", "correction_cap"))
    assert (lr.value, lr.origin) == ("0.0005", Origin.WORKSPACE)
    assert lr.where.startswith(f"{tmp_path}/arkworkspace.toml:5 [train.local]; the job has 1e-06 (")
    assert (place.value, place.where) == ("reward", f"{tmp_path}/arkworkspace.toml:6 [train.local]")
    assert (top_p.value, top_p.origin) == ("1", Origin.FLAG)
    assert (cap.value, cap.origin) == ("2.0", Origin.DEFAULT)
    assert place.capability.remote.support is Support.REFUSED


@pytest.mark.parametrize("switch", SWITCHES, ids=lambda switch: switch.name)
def test_what_another_setting_switches_off_is_never_called_used(
    tmp_path: Path, switch: Switch
) -> None:
    job = read(tmp_path, GRPO + "hyperparameters: {clip_ratio_low: 0.1}\n")
    off = {switch.name: PlacedValue(switch.off, "--set")}
    for name in switch.names:
        entry = known_settings(job)[name]
        value = entry.options[0] if entry.options else 0.5
        local = local_job(
            job, read_workspace(tmp_path), flags={**off, name: PlacedValue(value, "--set")}
        )
        rows = {effect.key: effect.capability.local for effect in effects_of(job, local)}
        assert rows[f"hyperparameters.{name}"].support is Support.REFUSED
        assert switch.reason in refusals(job, BackendName.LOCAL, local)[0].message
    rows = {
        effect.key: effect.capability.local
        for effect in effects_of(job, local_job(job, read_workspace(tmp_path), flags=off))
    }
    given = [rows[f"hyperparameters.{name}"] for name in switch.names]
    assert {effect.support for effect in given} == {Support.RECORDED}
    assert all(switch.reason in effect.text for effect in given)


def test_hyperparameters_without_a_known_default_are_listed(tmp_path: Path) -> None:
    names = without_default(read(tmp_path, WHOLE))
    assert "kl_coefficient" in names
    assert not {"lr", "topk", "max_new_tokens"} & set(names)


@pytest.mark.parametrize("name", ["test_every_n_steps", "test_num_generations", "test_top_p"])
def test_settings_of_validation_need_a_validation_set(tmp_path: Path, name: str) -> None:
    text = f"hyperparameters: {{{name}: 1}}\n"
    job = read(tmp_path, GRPO + text)
    for backend in (BackendName.DEBUG, BackendName.LOCAL):
        [problem] = refusals(job, backend)
        assert "the job has no validation set" in problem.message
        assert "validation_percentage" in problem.message
    assert refusals(job, BackendName.REMOTE) == []
    split = GRPO.replace("data: {", "data: {validation_percentage: 10, ")
    assert refusals(read(tmp_path, split + text), BackendName.DEBUG) == []


def test_the_defaults_of_this_machine_are_those_that_training_takes() -> None:
    """Two tables of one thing: the job's layer knows no backend."""
    update = UpdateSettings()
    for name in [field.name for field in dataclasses.fields(UpdateSettings)]:
        stated = OWN_DEFAULTS.get(
            name, local_settings()[name].default if name in local_settings() else ...
        )
        if stated is not ...:
            assert stated == getattr(update, name), name
    own = {field.name for field in dataclasses.fields(UpdateSettings)}
    assert own - set(OWN_DEFAULTS) - set(local_settings()) == {"temperature", "num_steps"}
    assert OWN_DEFAULTS["loss_agg_mode"] == DEFAULT_MODE
    assert (OWN_DEFAULTS["batch_size"], OWN_DEFAULTS["num_generations"]) == (
        DEFAULT_BATCH_SIZE,
        DEFAULT_NUM_GENERATIONS,
    )
    lora = LoraSettings()
    assert (OWN_DEFAULTS["lora_rank"], OWN_DEFAULTS["lora_alpha"]) == (lora.rank, lora.alpha)
