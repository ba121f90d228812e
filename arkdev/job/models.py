"""The job as ``job.py`` and ``job.yaml`` write it: one set of fields (SURFACE JOB, CT, PIPE, X).

Objects and plain dicts are accepted alike (X-17), numbers and booleans also as text, so that a
YAML file can be read with every scalar kept as its author wrote it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import (
    Field,
    PlainValidator,
    PrivateAttr,
    SecretStr,
    SerializeAsAny,
    ValidationInfo,
    field_validator,
)

from arkdev.errors import ComesLaterError
from arkdev.job.capture import (
    JobSubmitted,
    SubmittedJob,
    current_capture,
    current_submitter,
)
from arkdev.job.data import Data, DatasetReference, PresetDataset, TrainingDataset
from arkdev.job.hyperparameters import check_value
from arkdev.job.methods import DEFAULT_PIPELINE, METHOD_OF_PIPELINE, CustomizationType
from arkdev.job.model import (
    NO_CHARACTER,
    JobModel,
    NoBoolean,
    is_encodable,
    located_errors,
)
from arkdev.job.pipelines import (
    GRPOPipeline,
    OPDPipeline,
    Pipeline,
    PipelinePluginWrapper,
    PluginSpec,
    PPOPipeline,
)
from arkdev.job.problems import KeyPath
from arkdev.job.references import FoundationModelReference, ModelReference, TeacherConfig
from arkdev.job.rules import job_conflicts
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


MAX_SAVED_MODELS = 10
"""The platform's limit of `save_model_limit`."""

_PIPELINES: dict[str, type[Pipeline]] = {
    kind.__name__: kind for kind in (GRPOPipeline, PPOPipeline, OPDPipeline)
}


class Tag(JobModel):
    """A label of the job (X-16)."""

    key: Annotated[str, Field(min_length=1)]
    value: str = ""


class ModelCustomizationJobRLDebugConfig(JobModel):
    """The endpoint of a debug job (DBG-02..04). The key never shows in text or dumps."""

    apikey: SecretStr
    endpoint_id: Annotated[str, Field(min_length=1)]


def _pipeline(value: Any, info: ValidationInfo) -> Pipeline:
    """Make a pipeline of a dict: of the class it names, or of the one that the method needs."""
    if isinstance(value, Pipeline):
        return type(value).model_validate(value)
    if not isinstance(value, dict):
        raise ValueError(f"one of {', '.join(_PIPELINES)} is expected")
    named = value.get("pipeline_type")
    if named is None:
        method = info.data.get("customization_type")
        named = (method and method.pipeline) or DEFAULT_PIPELINE
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
    save_model_limit: Annotated[int, Field(ge=1, le=MAX_SAVED_MODELS), NoBoolean] | None = None
    debug_config: ModelCustomizationJobRLDebugConfig | None = None
    tags: list[Tag] | None = None
    resource_group: Annotated[str, Field(min_length=1)] | None = None
    _submitted: SubmittedJob | None = PrivateAttr(default=None)

    @classmethod
    def conflicts(cls, given: Mapping[str, Any]) -> dict[KeyPath, str]:
        """What the method, the pipeline and the other keys say to each other."""
        return super().conflicts(given) | job_conflicts(given)

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
            if not is_encodable(f"{name}{value}"):
                problems[name] = NO_CHARACTER
                continue
            try:
                checked[name] = check_value(name, value)
            except ValueError as error:
                problems[name] = str(error)
        if problems:
            raise located_errors(problems)
        return checked

    @property
    def method(self) -> CustomizationType:
        """The training method, given or inferred from the pipeline."""
        if self.customization_type is not None:
            return self.customization_type
        return METHOD_OF_PIPELINE[type(self.custom_rl_pipeline).__name__]

    def model_post_init(self, _context: Any) -> None:
        """Let the reader of a job.py know of the job."""
        capture = current_capture()
        if capture is not None:
            capture.made.append(self)

    def submit(self, *, debug: bool = False) -> None:
        """Submit the job (JOB-37, JOB-38): a debug job runs here, to its end, by ``arkdev run``.

        Raises `ComesLaterError` for a training job, and for a debug job in a script that
        ``arkdev run`` does not run.
        """
        capture = current_capture()
        if capture is not None:
            capture.submitted = capture.submitted or self
            raise JobSubmitted
        submitter = current_submitter()
        if not debug:
            raise _comes_later("submit()")
        if submitter is None:
            raise ComesLaterError(
                "ModelCustomizationJob.submit(debug=True) runs in a script that arkdev runs",
                where=callers_place(),
                hint="run the script with `arkdev run FILE`, or the job with `arkdev debug`",
            )
        self._submitted = submitter(self)

    @property
    def url(self) -> str:
        """The job's page (JOB-39): of a debug job the file of its report."""
        return self._after_submit("url").url

    @property
    def id(self) -> str:
        """The job's id (X-15), of a debug job."""
        return self._after_submit("id").id

    @property
    def phase(self) -> str:
        """The job's phase (X-15), of a debug job."""
        return self._after_submit("phase").phase

    def _after_submit(self, name: str) -> SubmittedJob:
        """Raises `ComesLaterError` for a job that was not submitted for debugging."""
        if self._submitted is None:
            raise _comes_later(name)
        return self._submitted

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
