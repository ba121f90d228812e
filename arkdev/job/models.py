"""The job as ``job.py`` and ``job.yaml`` write it: one set of fields (SURFACE JOB, CT, PIPE, X).

Objects and plain dicts are accepted alike (X-17), numbers and booleans also as text, so that a
YAML file can be read with every scalar kept as its author wrote it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import (
    AliasChoices,
    BeforeValidator,
    Field,
    FiniteFloat,
    PlainValidator,
    SecretStr,
    SerializeAsAny,
    ValidationInfo,
    field_validator,
    model_validator,
)

from arkdev.errors import ComesLaterError
from arkdev.job.capture import JobSubmitted, current_capture
from arkdev.job.hyperparameters import check_value
from arkdev.job.model import JobModel, located_errors
from arkdev.job.paths import filesystem_path
from arkdev.job.pipelines import (
    GRPOPipeline,
    OPDPipeline,
    Pipeline,
    PipelinePluginWrapper,
    PluginSpec,
    PPOPipeline,
)
from arkdev.job.references import FoundationModelReference, ModelReference, TeacherConfig
from arkdev.job.spelling import unknown_name
from arkdev.plugin.source import callers_place

__all__ = [
    "CustomizationType",
    "Data",
    "DatasetReference",
    "FoundationModelReference",
    "GRPOPipeline",
    "ModelCustomizationJob",
    "ModelCustomizationJobRLDebugConfig",
    "ModelReference",
    "OPDPipeline",
    "PPOPipeline",
    "PipelinePluginWrapper",
    "PluginSpec",
    "PresetDataset",
    "Tag",
    "TeacherConfig",
    "TrainingDataset",
]


class CustomizationType(StrEnum):
    """The training methods: the seven documented ones (JOB-04), OPD and OPDLoRA (Y-12)."""

    FinetuneSft = "FinetuneSft"
    FinetuneLoRA = "FinetuneLoRA"
    DPO = "DPO"
    DPOLoRA = "DPOLoRA"
    GRPO = "GRPO"
    GRPOLoRA = "GRPOLoRA"
    PPO = "PPO"
    OPD = "OPD"
    OPDLoRA = "OPDLoRA"

    @property
    def is_rl(self) -> bool:
        """True for the methods that need a pipeline (Y-13)."""
        return self in _PIPELINE_OF_TYPE


_PIPELINE_OF_TYPE: dict[CustomizationType, type[Pipeline]] = {
    CustomizationType.GRPO: GRPOPipeline,
    CustomizationType.GRPOLoRA: GRPOPipeline,
    CustomizationType.PPO: PPOPipeline,
    CustomizationType.OPD: OPDPipeline,
    CustomizationType.OPDLoRA: OPDPipeline,
}
_PIPELINES: dict[str, type[Pipeline]] = {
    kind.__name__: kind for kind in (GRPOPipeline, PPOPipeline, OPDPipeline)
}
_INFERRED_TYPE = {
    "GRPOPipeline": CustomizationType.GRPO,
    "PPOPipeline": CustomizationType.PPO,
    "OPDPipeline": CustomizationType.OPD,
}


class Tag(JobModel):
    """A label of the job (X-16)."""

    key: str
    value: str = ""


class DatasetReference(JobModel):
    """A dataset on the platform; `multiplier` or `sample_count` of it (JOB-20..23)."""

    dataset_id: str | None = None
    dataset_version_id: str | None = None
    multiplier: FiniteFloat | None = None
    sample_count: int | None = None


class PresetDataset(JobModel):
    """A preset dataset to mix in (JOB-25..27)."""

    dataset_version_id: str
    inject_multiplier: FiniteFloat | None = None
    inject_sample_count: int | None = None


def _as_list(value: Any) -> Any:
    return value if value is None or isinstance(value, list) else [value]


PresetDatasets = Annotated[
    list[PresetDataset] | None,
    BeforeValidator(_as_list),
    Field(
        validation_alias=AliasChoices("preset_dataset", "preset_datasets", "PresetDatasets"),
    ),
]


class TrainingDataset(JobModel):
    """Where samples come from: exactly one of three forms (JOB-14). Also for validation."""

    local_files: list[str] | None = None
    """Paths relative to the workspace's root."""
    tos_bucket: str | None = None
    tos_paths: list[str] | None = None
    datasets: list[DatasetReference] | None = None
    preset_dataset: PresetDatasets = None

    @field_validator("local_files")
    @classmethod
    def _can_name_files(cls, value: list[str] | None) -> list[str] | None:
        for text in value or []:
            filesystem_path(text)
        return value

    @model_validator(mode="after")
    def _exactly_one_form(self) -> TrainingDataset:
        forms = [
            self.local_files is not None,
            self.tos_bucket is not None or self.tos_paths is not None,
            self.datasets is not None,
        ]
        if sum(forms) != 1:
            raise ValueError(
                "give exactly one of local_files, tos_bucket with tos_paths, and datasets"
            )
        return self


class Data(JobModel):
    """The data of a job (JOB-12..31, nesting by X-23)."""

    training_set: TrainingDataset
    validation_set: TrainingDataset | None = None
    validation_percentage: FiniteFloat | None = None
    preset_dataset: PresetDatasets = None
    max_invalid_records_ratio: FiniteFloat | None = None
    max_invalid_records_number: int | None = None


class ModelCustomizationJobRLDebugConfig(JobModel):
    """The endpoint of a debug job (DBG-02..04). The key never shows in text or dumps."""

    apikey: SecretStr
    endpoint_id: str


def _pipeline(value: Any, info: ValidationInfo) -> Pipeline:
    """Make a pipeline of a dict: of the class it names, or of the one that the method needs."""
    if isinstance(value, Pipeline):
        return type(value).model_validate(value)
    if not isinstance(value, dict):
        raise ValueError(f"one of {', '.join(_PIPELINES)} is expected")
    named = value.get("pipeline_type")
    if named is None:
        kind = _PIPELINE_OF_TYPE.get(info.data.get("customization_type") or CustomizationType.GRPO)
        return (kind or GRPOPipeline).model_validate(value)
    if named not in _PIPELINES:
        raise ValueError(unknown_name("pipeline_type", str(named), known=_PIPELINES))
    return _PIPELINES[named].model_validate(value)


class ModelCustomizationJob(JobModel):
    """A training job (JOB-01). While arkdev reads a job.py, `submit` hands the job over."""

    name: str | None = None
    project: str | None = None
    description: str | None = None
    customization_type: CustomizationType | None = None
    """None in a job whose pipeline says it: GRPOPipeline means GRPO (X-18)."""
    model_reference: ModelReference
    data: Data
    custom_rl_pipeline: SerializeAsAny[Annotated[Pipeline, PlainValidator(_pipeline)]] | None = None
    enable_trajectory: bool | None = None
    hyperparameters: dict[str, Any] = Field(default_factory=dict)
    save_model_limit: int | None = None
    debug_config: ModelCustomizationJobRLDebugConfig | None = None
    tags: list[Tag] | None = None
    resource_group: str | None = None

    @field_validator("customization_type", mode="before")
    @classmethod
    def _known_type(cls, value: Any) -> Any:
        if isinstance(value, str) and value not in CustomizationType.__members__:
            known = CustomizationType.__members__
            raise ValueError(unknown_name("customization_type", value, known=known))
        return value

    @field_validator("hyperparameters")
    @classmethod
    def _usable_values(cls, values: dict[str, Any]) -> dict[str, Any]:
        problems = {}
        checked = {}
        for name, value in values.items():
            try:
                checked[name] = check_value(name, value)
            except ValueError as error:
                problems[name] = str(error)
        if problems:
            raise located_errors(problems)
        return checked

    @model_validator(mode="after")
    def _method_fits_pipeline(self) -> ModelCustomizationJob:
        if self.customization_type is None and self.custom_rl_pipeline is None:
            raise ValueError("customization_type is missing, and no pipeline says it")
        method = self.method
        if method.is_rl and self.custom_rl_pipeline is None:
            raise ValueError(f"{method} needs a custom_rl_pipeline with at least one grader")
        if not method.is_rl and self.custom_rl_pipeline is not None:
            raise ValueError(f"{method} takes no custom_rl_pipeline")
        return self

    @property
    def method(self) -> CustomizationType:
        """The training method, given or inferred from the pipeline."""
        if self.customization_type is not None:
            return self.customization_type
        return _INFERRED_TYPE[type(self.custom_rl_pipeline).__name__]

    def model_post_init(self, _context: Any) -> None:
        """Let the reader of a job.py know of the job."""
        capture = current_capture()
        if capture is not None:
            capture.made.append(self)

    def submit(self, *, debug: bool = False) -> None:
        """Submit the job (JOB-37, JOB-38): not built yet, raises `ComesLaterError`."""
        capture = current_capture()
        if capture is not None:
            capture.submitted = capture.submitted or self
            raise JobSubmitted
        raise _comes_later(f"submit({'debug=True' if debug else ''})")

    @property
    def url(self) -> str:
        """The job's page (JOB-39): not built yet, raises `ComesLaterError`."""
        raise _comes_later("url")

    @property
    def id(self) -> str:
        """The job's id on the platform (X-15): not built yet, raises `ComesLaterError`."""
        raise _comes_later("id")

    @property
    def phase(self) -> str:
        """The job's phase (X-15): not built yet, raises `ComesLaterError`."""
        raise _comes_later("phase")

    @property
    def status(self) -> Any:
        """The job's state (X-15): not built yet, raises `ComesLaterError`."""
        raise _comes_later("status")

    @classmethod
    def get(cls, job_id: str) -> ModelCustomizationJob:
        """Fetch a submitted job (X-15): not built yet, raises `ComesLaterError`."""
        raise _comes_later(f"get({job_id!r})")

    def refresh(self) -> None:
        """Fetch the job's state anew (X-15): not built yet, raises `ComesLaterError`."""
        raise _comes_later("refresh()")


def _comes_later(what: str) -> ComesLaterError:
    return ComesLaterError(
        f"ModelCustomizationJob.{what} is not built yet",
        where=callers_place(),
        hint="`arkdev test plugin` runs this job's plugins; "
        "submission comes with `arkdev train --backend remote`",
    )
