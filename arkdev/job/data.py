"""Where a job's samples come from (SURFACE JOB-12..31, nesting by X-23)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AliasChoices, BeforeValidator, Field, FiniteFloat, field_validator

from arkdev.job.model import JobModel, NoBoolean, part_of
from arkdev.job.paths import filesystem_path
from arkdev.job.problems import KeyPath

MAX_LOCAL_FILES = 20
"""Local files of one set (JOB-16)."""
MAX_FILE_BYTES = 2 * 1024**3
"""Size of one local file: 2 GB (JOB-16)."""


_Count = Annotated[int, Field(ge=1), NoBoolean]
_Multiplier = Annotated[FiniteFloat, Field(gt=0), NoBoolean]
_Name = Annotated[str, Field(min_length=1)]


class DatasetReference(JobModel):
    """A dataset on the platform; `multiplier` or `sample_count` of it (JOB-20..23)."""

    excluding = (("multiplier", "sample_count"),)

    dataset_id: _Name | None = None
    dataset_version_id: _Name | None = None
    multiplier: _Multiplier | None = None
    sample_count: _Count | None = None

    @classmethod
    def conflicts(cls, given: Mapping[str, Any]) -> dict[KeyPath, str]:
        """One of the two ids names the dataset."""
        is_named = "dataset_id" in given or "dataset_version_id" in given
        missing: dict[KeyPath, str] = {(): "dataset_id or dataset_version_id is missing"}
        return super().conflicts(given) | ({} if is_named else missing)


class PresetDataset(JobModel):
    """A preset dataset to mix in (JOB-25..27)."""

    excluding = (("inject_multiplier", "inject_sample_count"),)

    dataset_version_id: _Name
    inject_multiplier: _Multiplier | None = None
    inject_sample_count: _Count | None = None


def local_path(text: str) -> Path:
    """Return the path that an entry of ``local_files`` names. Raises ValueError with a sentence."""
    if "://" in text:
        raise ValueError(
            f"{text} is no local file; objects in storage go in tos_bucket and tos_paths"
        )
    return filesystem_path(text)


def _as_list(value: Any) -> Any:
    return value if value is None or isinstance(value, list) else [value]


PresetDatasets = Annotated[
    list[PresetDataset] | None,
    BeforeValidator(_as_list),
    Field(
        validation_alias=AliasChoices("preset_dataset", "preset_datasets", "PresetDatasets"),
    ),
]
_PRESETS = ("preset_dataset", "preset_datasets", "PresetDatasets")


class TrainingDataset(JobModel):
    """Where samples come from: exactly one of three forms (JOB-14). Also for validation."""

    local_files: Annotated[list[_Name], Field(min_length=1)] | None = None
    """Paths relative to the workspace's root."""
    tos_bucket: _Name | None = None
    tos_paths: Annotated[list[_Name], Field(min_length=1)] | None = None
    datasets: Annotated[list[DatasetReference], Field(min_length=1)] | None = None
    preset_dataset: PresetDatasets = None

    @field_validator("local_files")
    @classmethod
    def _can_name_files(cls, value: list[str] | None) -> list[str] | None:
        for text in value or []:
            local_path(text)
        if value and len(value) > MAX_LOCAL_FILES:
            raise ValueError(f"{len(value)} files; at most {MAX_LOCAL_FILES} are allowed")
        return value

    @classmethod
    def conflicts(cls, given: Mapping[str, Any]) -> dict[KeyPath, str]:
        """One form, and the bucket with its paths."""
        problems = super().conflicts(given)
        in_bucket = [name for name in ("tos_bucket", "tos_paths") if name in given]
        forms = [name for name in ("local_files", "datasets") if name in given] + in_bucket[-1:]
        if len(forms) != 1:
            place = (forms[-1],) if forms else ()
            problems[place] = (
                "give exactly one of local_files, tos_bucket with tos_paths, and datasets"
            )
        elif len(in_bucket) == 1:
            missing = "tos_paths" if in_bucket == ["tos_bucket"] else "tos_bucket"
            problems[(in_bucket[0],)] = f"{missing} is missing beside it"
        return problems


class Data(JobModel):
    """The data of a job."""

    excluding = (
        ("validation_set", "validation_percentage"),
        ("max_invalid_records_ratio", "max_invalid_records_number"),
        _PRESETS,
    )

    training_set: TrainingDataset
    validation_set: TrainingDataset | None = None
    validation_percentage: Annotated[FiniteFloat, Field(gt=0, lt=100), NoBoolean] | None = None
    """Percent of the training set."""
    preset_dataset: PresetDatasets = None
    max_invalid_records_ratio: Annotated[FiniteFloat, Field(ge=0, le=1), NoBoolean] | None = None
    """Share of the records, from 0 to 1."""
    max_invalid_records_number: Annotated[int, Field(ge=0), NoBoolean] | None = None

    @classmethod
    def conflicts(cls, given: Mapping[str, Any]) -> dict[KeyPath, str]:
        """Preset data is mixed into the training set, and named in one place."""
        problems = super().conflicts(given)
        here, inside = (_presets_in(part) for part in (given, given.get("training_set")))
        if here and inside:
            problems[("training_set", inside)] = f"{here} is also given beside training_set"
        validation = _presets_in(given.get("validation_set"))
        if validation:
            problems[("validation_set", validation)] = "preset data is for the training set only"
        return problems


def _presets_in(part: Any) -> str | None:
    return next((name for name in _PRESETS if part_of(part, name) is not None), None)
