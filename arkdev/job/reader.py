"""The one reader of job files: ``job.yaml``, ``job.yml`` or ``job.py`` (SURFACE JOB-40)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from arkdev.errors import JobError
from arkdev.job.hyperparameters import suspicious_names
from arkdev.job.job import Job, PluginReference
from arkdev.job.model import describe_errors, dotted
from arkdev.job.models import ModelCustomizationJob, PipelinePluginWrapper, TrainingDataset
from arkdev.job.paths import filesystem_path, shown_path
from arkdev.job.problems import Problem, make_error
from arkdev.job.python_source import revalidated, run_job_file
from arkdev.job.workspace import JOB_FILES
from arkdev.job.yaml_tree import KeyPath, PlainScalar, YamlTree, parse_yaml
from arkdev.plugin.decorators import plugin_of

MAX_BYTES = 1_000_000


def read_job(root: Path, path: Path | None = None) -> Job | None:
    """Read the job of the workspace at `root`, or the one in the file `path`.

    Without `path` the first of `JOB_FILES` is read; None when there is none. Files that the job
    names are relative to `root`. Raises `JobError` with file:line for all that is wrong.
    """
    root = Path(root).absolute()
    if path is None:
        found = (root / name for name in JOB_FILES if (root / name).is_file())
        first = next(found, None)
        return None if first is None else _read(first, root=root)
    path = Path(path).absolute()
    if not path.is_file():
        raise JobError(
            "there is no such job file",
            where=shown_path(path),
            hint="without --job the workspace's own job.yaml or job.py is read",
        )
    return _read(path, root=root)


def _read(path: Path, *, root: Path) -> Job:
    warnings: list[str] = []
    if path.suffix == ".py":
        config = revalidated(run_job_file(path, root=root), path=path)
        return _normalised(config, source=path, root=root, warnings=warnings)
    if path.suffix in (".yaml", ".yml"):
        config, tree = _read_yaml(path)

        def place(key: KeyPath) -> str:
            return f"{shown_path(path)}:{tree.line_of(key)}"

        return _normalised(config, source=path, root=root, warnings=warnings, place=place)
    raise JobError(
        f"a job file ends in .yaml, .yml or .py, not in {path.suffix!r}", where=shown_path(path)
    )


def _read_yaml(path: Path) -> tuple[ModelCustomizationJob, YamlTree]:
    source = shown_path(path)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise JobError(f"larger than {MAX_BYTES} bytes; a job file is text", where=source)
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise JobError(
            f"not UTF-8 text (byte {error.start})", where=source, hint="save the file as UTF-8"
        ) from error
    except OSError as error:
        raise JobError(f"cannot be read: {error.strerror}", where=source) from error
    tree = parse_yaml(text, source=source)
    if not tree.problems and not isinstance(tree.value, dict):
        tree.problems.append(Problem(f"{source}:1", "a mapping with the job's fields is expected"))
    if tree.problems:
        raise make_error(JobError, tree.problems)
    _type_hyperparameters(tree.value)
    try:
        return ModelCustomizationJob.model_validate(tree.value), tree
    except ValidationError as error:
        problems = [
            Problem(
                f"{source}:{tree.line_of(place)}",
                f"{dotted(place)}: {message}" if place else message,
            )
            for place, message in describe_errors(error)
        ]
        raise make_error(JobError, problems) from error


def _type_hyperparameters(values: dict[str, Any]) -> None:
    """Give hyperparameters their YAML types; every other field has a declared one."""
    hyperparameters = values.get("hyperparameters")
    if isinstance(hyperparameters, dict):
        values["hyperparameters"] = {
            name: value.as_typed() if isinstance(value, PlainScalar) else value
            for name, value in hyperparameters.items()
        }
    elif hyperparameters is None:
        values.pop("hyperparameters", None)


def _no_place(_key: KeyPath) -> str:
    return ""


def _normalised(
    config: ModelCustomizationJob,
    *,
    source: Path,
    root: Path,
    warnings: list[str],
    place: Callable[[KeyPath], str] = _no_place,
) -> Job:
    pipeline = config.custom_rl_pipeline
    above: KeyPath = ("custom_rl_pipeline",)
    rollout = pipeline.rollout if pipeline else None
    model = config.model_reference.foundation_model
    values = config.hyperparameters
    for name, sentence in suspicious_names(values).items():
        where = place(("hyperparameters", name)) or shown_path(source)
        warnings.append(f"{where}: {sentence}")
    return Job(
        source=source,
        name=config.name,
        customization_type=config.method,
        model_name=model.name if model else None,
        model_version=model.model_version if model else None,
        custom_model_id=config.model_reference.custom_model_id,
        rollout=_reference(rollout, where=place((*above, "rollout"))) if rollout else None,
        graders=tuple(
            _reference(grader, where=place((*above, "graders", index)))
            for index, grader in enumerate(pipeline.graders if pipeline else ())
        ),
        data=config.data,
        training_files=_files(config.data.training_set, root=root),
        validation_files=_files(config.data.validation_set, root=root),
        hyperparameters=values,
        batch_size=values.get("batch_size"),
        num_generations=values.get("num_generations"),
        warnings=tuple(warnings),
        where_data=place(("data", "training_set", "local_files")),
    )


def _reference(plugin: PipelinePluginWrapper, *, where: str) -> PluginReference:
    function = plugin.function
    if isinstance(function, str):
        name = function.partition(":")[2]
    else:
        decorated = plugin_of(function)
        name = decorated.name if decorated else getattr(function, "__name__", repr(function))
    return PluginReference(
        name=plugin.given_name or name,
        reference=function,
        weight=1.0 if plugin.reward_weight is None else plugin.reward_weight,
        envs=plugin.environment,
        runtime=plugin.runtime,
        where=where,
    )


def _files(data: TrainingDataset | None, *, root: Path) -> tuple[Path, ...]:
    names = (data.local_files or []) if data else []
    return tuple(root / filesystem_path(name) for name in names)
