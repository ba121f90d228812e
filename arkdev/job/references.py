"""Which model is trained, and which ones teach (SURFACE JOB-05..11, PIPE-03)."""

from __future__ import annotations

from pydantic import field_validator

from arkdev.job.model import JobModel


class FoundationModelReference(JobModel):
    """A model of the model plaza by name and version, both text (JOB-08..10)."""

    name: str
    model_version: str


class ModelReference(JobModel):
    """A foundation model or a custom model `cm-…`, exactly one of them (JOB-06..11)."""

    required_one = ("foundation_model", "custom_model_id")

    foundation_model: FoundationModelReference | None = None
    custom_model_id: str | None = None

    @field_validator("custom_model_id")
    @classmethod
    def _is_an_id(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith("cm-"):
            raise ValueError(f"{value!r} is no id of a custom model; those begin with cm-")
        return value


class TeacherConfig(JobModel):
    """The model behind a teacher's name in an OPD pipeline."""

    model: ModelReference
