"""The samples of a job: its files found, checked, mixed and split (SURFACE JOB-14..31).

What is on the platform can be used here when the workspace says which file stands for it::

    # arkworkspace.toml
    [datasets]
    "ds-20250915-abcde" = "data/some_lines_of_it.jsonl"
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from arkdev.errors import DataError
from arkdev.job.data import Data, DatasetReference, PresetDataset, TrainingDataset
from arkdev.job.dataset import DatasetLine, read_files
from arkdev.job.dataset_files import no_progress
from arkdev.job.indexed_dataset import IndexedDataset, SampleSet
from arkdev.job.invalid_records import InvalidRecords, Tolerance
from arkdev.job.mixing import Mix, MixPart, split_off
from arkdev.job.paths import filesystem_path
from arkdev.job.problems import KeyPath, Problem, make_error
from arkdev.job.workspace import Workspace

_STAND_IN_HINT = (
    'say in arkworkspace.toml which file stands for a dataset here ([datasets], then "ID" = '
    '"data/FILE.jsonl"); to check or test other files, name them on the command line'
)


@dataclass(frozen=True)
class DataSource:
    """Files that are mixed in together, and how much of them."""

    name: str
    """The id of a dataset, else the key of the job."""
    paths: tuple[Path, ...]
    multiplier: float | None = None
    sample_count: int | None = None
    is_preset: bool = False
    """Preset data is mixed in; no validation set is split off it."""


@dataclass(frozen=True)
class JobSamples:
    """The samples of a job, each read when it is asked for."""

    training: SampleSet
    validation: SampleSet | None
    invalid: Mapping[str, InvalidRecords] = field(default_factory=dict)
    """What was passed over, by ``training_set`` and ``validation_set``."""


Observer = Callable[[str, DatasetLine], None]
"""Called with ``training_set`` or ``validation_set`` and each line while the files are checked."""


def tolerance_of(data: Data) -> Tolerance:
    """Return how many invalid lines the job accepts. Raises `DataError`."""
    try:
        return Tolerance(data.max_invalid_records_ratio, data.max_invalid_records_number)
    except ValueError as error:
        raise DataError(str(error), where="data") from None


def mixing_keys(data: Data) -> list[str]:
    """Return the keys by which training takes other samples than each line of the files once."""
    keys = [
        name
        for name in ("multiplier", "sample_count")
        if any(getattr(each, name) is not None for each in data.training_set.datasets or ())
    ]
    if data.preset_dataset or data.training_set.preset_dataset:
        keys.append("preset_dataset")
    if data.validation_percentage is not None:
        keys.append("validation_percentage")
    return keys


def training_sources(data: Data, *, workspace: Workspace) -> list[DataSource]:
    """Return the files of the training set, preset data last. Raises `DataError`."""
    presets = [*(data.training_set.preset_dataset or []), *(data.preset_dataset or [])]
    return _sources("training_set", data.training_set, presets, workspace=workspace)


def validation_sources(data: Data, *, workspace: Workspace) -> list[DataSource]:
    """Return the files of the validation set; none when it is split off. Raises `DataError`."""
    if data.validation_set is None:
        return []
    return _sources("validation_set", data.validation_set, (), workspace=workspace)


def stand_ins(data: Data, *, workspace: Workspace) -> list[tuple[KeyPath, Path]]:
    """Return the files that stand here for datasets of the platform, each with the job's key."""
    references: list[tuple[KeyPath, DatasetReference | PresetDataset]] = []
    for name in ("training_set", "validation_set"):
        part: TrainingDataset | None = getattr(data, name)
        entries = enumerate(part.datasets or () if part else ())
        references += [(("data", name, "datasets", number), each) for number, each in entries]
        references += [
            (("data", name), each) for each in (part.preset_dataset or () if part else ())
        ]
    references += [(("data", "preset_dataset"), each) for each in data.preset_dataset or ()]
    return [
        (key, path)
        for key, each in references
        for path in (
            _preset(each, workspace=workspace)
            if isinstance(each, PresetDataset)
            else _stand_in(each, workspace=workspace)
        ).paths
    ]


def load_job_samples(
    data: Data,
    *,
    workspace: Workspace,
    seed: int,
    on_line: Observer | None = None,
    on_bytes: Callable[[int], None] = no_progress,
) -> JobSamples:
    """Check all data of a job, and return its samples, mixed and split with `seed`.

    Every file is read once, in flat memory but for 8 bytes a sample. Raises `DataError`.
    """
    training = training_sources(data, workspace=workspace)
    validation = validation_sources(data, workspace=workspace)
    invalid = {
        key: InvalidRecords(tolerance_of(data))
        for key, sources in (("training_set", training), ("validation_set", validation))
        if sources
    }

    def indexed(key: str, sources: Sequence[DataSource]) -> IndexedDataset:
        paths = [path for source in sources for path in source.paths]
        lines = read_files(paths, invalid=invalid[key], on_bytes=on_bytes)
        return IndexedDataset(_observed(key, lines, on_line) if on_line else lines)

    dataset = indexed("training_set", training)
    other = indexed("validation_set", validation) if validation else None
    sets = arranged(data, (dataset, training), (other, validation), seed=seed)
    return replace(sets, invalid=invalid)


def arranged(
    data: Data,
    training: tuple[IndexedDataset, Sequence[DataSource]],
    validation: tuple[IndexedDataset | None, Sequence[DataSource]],
    *,
    seed: int,
) -> JobSamples:
    """Mix and split what was read. Raises `DataError` when the job's numbers do not go with it."""
    dataset, sources = training
    other, other_sources = validation
    held_out: SampleSet | None = None
    try:
        parts = _parts(dataset, sources)
        if data.validation_percentage is not None:
            num_own = sum(not source.is_preset for source in sources)  # presets stand last
            kept, picked = split_off(
                parts[:num_own], percentage=data.validation_percentage, seed=seed
            )
            parts = [*kept, *parts[num_own:]]
            held_out = SampleSet(dataset, picked)
        elif other is not None:
            held_out = SampleSet(other, Mix(_parts(other, other_sources), seed=seed))
        return JobSamples(SampleSet(dataset, Mix(parts, seed=seed)), held_out)
    except ValueError as error:
        raise DataError(str(error), where="data") from None


def _observed(key: str, lines: Iterable[DatasetLine], on_line: Observer) -> Iterator[DatasetLine]:
    for line in lines:
        on_line(key, line)
        yield line


def _parts(dataset: IndexedDataset, sources: Sequence[DataSource]) -> list[MixPart]:
    parts = []
    first = file_number = 0
    for source in sources:
        last = first
        for _ in source.paths:
            last += dataset.num_of_file(file_number)
            file_number += 1
        samples = range(first, last)
        try:
            parts.append(MixPart(samples, source.multiplier, source.sample_count))
        except ValueError as error:
            raise ValueError(f"{source.name}: {error}") from None
        first = last
    return parts


def _sources(
    key: str, data: TrainingDataset, presets: Sequence[PresetDataset], *, workspace: Workspace
) -> list[DataSource]:
    problems: list[Problem] = []
    sources: list[DataSource] = []
    if data.local_files is not None:
        names = [filesystem_path(name) for name in data.local_files]
        sources.append(DataSource(f"{key}.local_files", tuple(workspace.root / n for n in names)))
    if data.tos_bucket is not None or data.tos_paths is not None:
        place = f"{data.tos_bucket or 'a bucket without a name'}/{(data.tos_paths or ['...'])[0]}"
        problems.append(
            Problem(f"data.{key}", f"tos://{place} is in object storage, not on this machine")
        )
    for number, reference in enumerate(data.datasets or []):
        sources.append(_stand_in(reference, workspace=workspace))
        if not sources[-1].paths:
            problems.append(_on_the_platform(f"data.{key}.datasets[{number}]", sources[-1]))
    for preset in presets:
        sources.append(_preset(preset, workspace=workspace))
        if not sources[-1].paths:
            problems.append(_on_the_platform("data.preset_dataset", sources[-1]))
    if problems:
        raise make_error(DataError, problems, hint=_STAND_IN_HINT)
    return sources


def _on_the_platform(place: str, source: DataSource) -> Problem:
    return Problem(place, f"dataset {source.name} is on the platform, not on this machine")


def _stand_in(reference: DatasetReference, *, workspace: Workspace) -> DataSource:
    ids = [name for name in (reference.dataset_version_id, reference.dataset_id) if name]
    found = next((name for name in ids if name in workspace.datasets), None)
    return DataSource(
        found or (ids[0] if ids else "without an id"),
        workspace.datasets[found] if found else (),
        multiplier=reference.multiplier,
        sample_count=reference.sample_count,
    )


def _preset(preset: PresetDataset, *, workspace: Workspace) -> DataSource:
    reference = DatasetReference(
        dataset_version_id=preset.dataset_version_id,
        multiplier=preset.inject_multiplier,
        sample_count=preset.inject_sample_count,
    )
    return replace(_stand_in(reference, workspace=workspace), is_preset=True)
