"""The JSON Schema of job.yaml, for editors: completion, descriptions, errors while typing.

It follows the models, and the reader's habits: text may stand without quotes, so that a number or
a boolean is accepted where text is expected, and numbers may be quoted. What a schema cannot say
(files that exist, plugins that load) `arkdev check` does.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, models_json_schema
from pydantic_core import core_schema

from arkdev.job.capabilities import KEYS
from arkdev.job.catalogue import Hyperparameter, Kind, catalogue
from arkdev.job.data import MAX_LOCAL_FILES
from arkdev.job.methods import CustomizationType
from arkdev.job.models import (
    GRPOPipeline,
    ModelCustomizationJob,
    OPDPipeline,
    PipelinePluginWrapper,
    PluginSpec,
    PPOPipeline,
)

SCHEMA_FILE = "typings/job.schema.json"
"""Where `arkdev init` puts it in a workspace, and job.yaml names it."""

_DEFS = "#/$defs/"
_SET = "data.training_set."
_REFERENCE = {"type": "string", "pattern": r"^[\w.]+:[\w.]+$", "description": "module:function"}
_NUMBER_AS_TEXT = {"type": "string", "pattern": r"^[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$"}
_PRESET_NAMES = ("preset_datasets", "PresetDatasets")


class _Generator(GenerateJsonSchema):
    """Leaves open what the models check in code: pipelines and plugins."""

    def function_plain_schema(
        self, schema: core_schema.PlainValidatorFunctionSchema
    ) -> dict[str, Any]:
        return {}


def job_schema() -> dict[str, Any]:
    """Return the schema (2020-12) of a job.yaml."""
    models: list[type[BaseModel]] = [
        ModelCustomizationJob,
        GRPOPipeline,
        PPOPipeline,
        OPDPipeline,
        PipelinePluginWrapper,
        PluginSpec,
    ]
    mode: JsonSchemaMode = "validation"
    _, schema = models_json_schema(
        [(model, mode) for model in models],
        schema_generator=_Generator,
        ref_template=_DEFS + "{model}",
    )
    parts = schema["$defs"]
    for name, part in parts.items():
        _tidy(part, name=name)
    parts["CustomizationType"] = {"enum": list(CustomizationType.__members__)}
    job = parts.pop("ModelCustomizationJob")
    _open_plugins(parts)
    _open_data(parts)
    job["properties"]["custom_rl_pipeline"] = _pipelines()
    job["properties"]["hyperparameters"] = _hyperparameters()
    job["allOf"] = _methods()
    for prefix, part in (("", job), ("data.", parts["Data"]), (_SET, parts["TrainingDataset"])):
        _describe(part["properties"], prefix=prefix)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "arkdev/job.yaml",
        "title": "A fine-tuning job of arkdev",
        **job,
        "$defs": parts,
    }


def _describe(properties: dict[str, Any], *, prefix: str) -> None:
    """Say of each key what it does on the platform."""
    for name, values in properties.items():
        row = KEYS.get(prefix + name)
        if row is not None:
            values.setdefault("description", row.remote.text)


def _tidy(node: Any, *, name: str = "") -> None:
    """Relax scalars, and take out what only repeats a key."""
    if isinstance(node, list):
        for item in node:
            _tidy(item)
    if not isinstance(node, dict):
        return
    if name:
        node["description"] = " ".join(str(node.get("description", name)).split())
    if not isinstance(node.get("title"), dict):  # else it is a property of that name
        node.pop("title", None)
    if node.get("default", "") is None:
        del node["default"]
    if not _relax(node):
        for value in list(node.values()):
            _tidy(value)


def _relax(node: dict[str, Any]) -> bool:
    """Let a scalar stand with or without quotes; tell whether `node` was one."""
    kind = node.get("type")
    if kind == "string" and not {"enum", "const", "pattern"} & node.keys():
        node.pop("format", None)
        node["type"] = ["string", "number", "boolean"]
        return True
    if kind in ("integer", "number"):
        number = {key: node.pop(key) for key in list(node) if key != "description"}
        node["anyOf"] = [number, _NUMBER_AS_TEXT]
        return True
    return False


def _open_plugins(parts: dict[str, Any]) -> None:
    """A plugin is its reference alone, or a mapping with `plugin`, in either form."""
    wrapper = parts["PipelinePluginWrapper"]
    wrapper["properties"]["plugin"] = {"anyOf": [_REFERENCE, {"$ref": _DEFS + "PluginSpec"}]}
    parts["PluginSpec"]["properties"]["python_func"] = _REFERENCE
    parts["Plugin"] = {"anyOf": [_REFERENCE, {"$ref": _DEFS + "PipelinePluginWrapper"}]}
    for name in ("GRPOPipeline", "PPOPipeline", "OPDPipeline"):
        properties = parts[name]["properties"]
        properties["rollout"] = {
            "description": "one at most; none means a single turn",
            "anyOf": [{"$ref": _DEFS + "Plugin"}, {"type": "null"}],
        }
        properties["graders"] = {
            "description": "at least one",
            "type": "array",
            "minItems": 1,
            "items": {"$ref": _DEFS + "Plugin"},
        }
    parts["OPDPipeline"]["required"] = ["graders", "teachers"]
    parts["OPDPipeline"]["properties"]["teachers"]["minProperties"] = 1


def _open_data(parts: dict[str, Any]) -> None:
    data, dataset = parts["Data"], parts["TrainingDataset"]
    presets = {"$ref": _DEFS + "PresetDataset"}
    for part in (data, dataset):
        for name in ("preset_dataset", *_PRESET_NAMES):
            part["properties"][name] = {"anyOf": [presets, {"type": "array", "items": presets}]}
    for form in dataset["properties"]["local_files"]["anyOf"]:
        if form.get("type") == "array":
            form["maxItems"] = MAX_LOCAL_FILES
    dataset["oneOf"] = [
        {"required": ["local_files"]},
        {"required": ["tos_bucket", "tos_paths"]},
        {"required": ["datasets"]},
    ]
    data["allOf"] = [
        _not_both("validation_set", "validation_percentage"),
        _not_both("max_invalid_records_ratio", "max_invalid_records_number"),
    ]
    parts["DatasetReference"]["allOf"] = [_not_both("multiplier", "sample_count")]
    parts["PresetDataset"]["allOf"] = [_not_both("inject_multiplier", "inject_sample_count")]
    parts["ModelReference"]["oneOf"] = [
        {"required": ["foundation_model"]},
        {"required": ["custom_model_id"]},
    ]


def _not_both(*names: str) -> dict[str, Any]:
    return {"not": {"required": list(names)}}


def _pipelines() -> dict[str, Any]:
    names = ("GRPOPipeline", "PPOPipeline", "OPDPipeline")
    return {
        "description": "rollout and graders; RL methods need it, the others take none",
        "anyOf": [{"$ref": _DEFS + name} for name in names],
    }


def _hyperparameters() -> dict[str, Any]:
    return {
        "description": "names that the method and the model take",
        "type": ["object", "null"],
        "properties": {name: _values(entry) for name, entry in catalogue().items()},
        "additionalProperties": {"type": ["string", "number", "boolean"]},
    }


def _values(entry: Hyperparameter) -> dict[str, Any]:
    sentences = [entry.meaning, entry.note, f"for {', '.join(entry.methods)}"]
    described = {"description": "; ".join(filter(None, sentences))}
    if entry.kind in (Kind.INTEGER, Kind.NUMBER):
        number: dict[str, Any] = {"type": entry.kind.value}
        if entry.range and entry.range.minimum is not None:
            key = "exclusiveMinimum" if entry.range.is_open else "minimum"
            number[key] = entry.range.minimum
        if entry.range and entry.range.maximum is not None:
            number["maximum"] = entry.range.maximum
        return {**described, "anyOf": [number, _NUMBER_AS_TEXT]}
    if entry.kind is Kind.BOOLEAN:
        return {**described, "enum": [True, False, "true", "false"]}
    if entry.name == "thinking":  # the word, or the form that a sample has
        word = {"enum": list(entry.options or ())}
        form = {"type": "object", "properties": {"type": word}, "required": ["type"]}
        return {**described, "anyOf": [word, {**form, "additionalProperties": False}]}
    if entry.options:
        return {**described, "enum": list(entry.options)}
    return {**described, "type": ["string", "number", "boolean"]}


def _methods() -> list[dict[str, Any]]:
    """A method needs its own pipeline, or takes none."""
    rules: list[dict[str, Any]] = []
    for method in CustomizationType:
        chosen = {
            "properties": {"customization_type": {"const": method.value}},
            "required": ["customization_type"],
        }
        if method.pipeline is None:
            rules.append({"if": chosen, "then": {"not": {"required": ["custom_rl_pipeline"]}}})
            continue
        pipeline = {"$ref": _DEFS + method.pipeline}
        rule = {"required": ["custom_rl_pipeline"], "properties": {"custom_rl_pipeline": pipeline}}
        rules.append({"if": chosen, "then": rule})
    neither = {"required": ["customization_type"]}
    rules.append({"anyOf": [neither, {"required": ["custom_rl_pipeline"]}]})
    return rules
