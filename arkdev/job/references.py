"""Which model is trained, and which ones teach (SURFACE JOB-05..11, PIPE-03)."""

from __future__ import annotations

from pydantic import model_validator

from arkdev.job.model import JobModel


class FoundationModelReference(JobModel):
    """A model of the model plaza by name and version, both text (JOB-08..10)."""

    name: str
    model_version: str


class ModelReference(JobModel):
    """A foundation model or a custom model `cm-…`, exactly one of them (JOB-06..11)."""

    foundation_model: FoundationModelReference | None = None
    custom_model_id: str | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> ModelReference:
        if (self.foundation_model is None) == (self.custom_model_id is None):
            raise ValueError("give exactly one of foundation_model and custom_model_id")
        return self


class TeacherConfig(JobModel):
    """The model behind a teacher's name in an OPD pipeline."""

    model: ModelReference
