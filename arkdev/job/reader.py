"""The one reader of job files: ``job.yaml``, ``job.yml`` or ``job.py`` (SURFACE JOB-40)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from arkdev.errors import JobError
from arkdev.job.data import MAX_FILE_BYTES, TrainingDataset
from arkdev.job.hyperparameters import declared_names, names_declared, unknown_names
from arkdev.job.invalid_objects import describe_errors
from arkdev.job.job import Job, PluginReference, place_of_key
from arkdev.job.models import ModelCustomizationJob
from arkdev.job.paths import filesystem_path, shown_path
from arkdev.job.pipelines import PipelinePluginWrapper
from arkdev.job.problems import KeyPath, Problem, dotted, line_of, make_error
from arkdev.job.python_source import read_lines, revalidated, run_job_file
from arkdev.job.workspace import JOB_FILES, read_workspace
from arkdev.job.yaml_tree import PlainScalar, YamlTree, parse_yaml
from arkdev.plugin.decorators import plugin_of

MAX_BYTES = 1_000_000


class InvalidJobError(JobError):
    """A job.yaml that is no job; `tree` is what it says all the same."""

    tree: YamlTree


@dataclass(frozen=True)
class _Source:
    """A valid job and the places of its keys."""

    config: ModelCustomizationJob
    path: Path
    root: Path
    lines: Mapping[KeyPath, int]

    def place(self, key: KeyPath) -> str:
        return place_of_key(key, file=self.path, lines=self.lines)


def find_job_file(root: Path, path: Path | None = None) -> Path | None:
    """Return the job file `path`, or the first of `JOB_FILES` in the workspace at `root`.

    None when there is none. Raises `JobError` for a path that is no file.
    """
    root = Path(root).absolute()
    if path is None:
        found = (root / name for name in JOB_FILES if (root / name).is_file())
        return next(found, None)
    path = Path(path).absolute()
    if not path.is_file():
        raise JobError(
            "there is no such job file",
            where=shown_path(path),
            hint="when none is named, the workspace's own job.yaml or job.py is read",
        )
    return path


def require_job_file(root: Path, path: Path | None = None) -> Path:
    """Return the job file as `find_job_file` does. Raises `JobError` also when there is none."""
    found = find_job_file(root, path)
    if found is None:
        raise JobError(
            f"no job.yaml or job.py in {shown_path(root)}",
            hint="name the file, or run `arkdev init DIR` for a workspace",
        )
    return found


def read_job(root: Path, path: Path | None = None) -> Job | None:
    """Read the job of the workspace at `root`, or the one in the file `path`.

    None when there is none. Files that the job names are relative to `root`. Raises `JobError` with
    file:line for all that is wrong; an `InvalidJobError` for a job.yaml that says something.
    """
    root = Path(root).absolute()
    found = find_job_file(root, path)
    if found is None:
        return None
    with declared_names(read_workspace(root).hyperparameters):
        return _read(found, root=root)


def _read(found: Path, *, root: Path) -> Job:
    if found.suffix == ".py":
        config = revalidated(run_job_file(found, root=root), path=found)
        return _normalised(_Source(config, path=found, root=root, lines=read_lines(found)))
    if found.suffix in (".yaml", ".yml"):
        config, tree = _read_yaml(found)
        return _normalised(_Source(config, path=found, root=root, lines=tree.lines))
    raise JobError(
        f"a job file ends in .yaml, .yml or .py, not in {found.suffix!r}", where=shown_path(found)
    )


def job_of_script(config: ModelCustomizationJob, *, path: Path, root: Path) -> Job:
    """Return a job that a running script has made; `path` is the script's.

    Raises `JobError` for what the script changed into something that is no job.
    """
    root = Path(root).absolute()
    with declared_names(read_workspace(root).hyperparameters):
        valid = revalidated(config, path=path)
        return _normalised(_Source(valid, path=path, root=root, lines=read_lines(path)))


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
    problems = list(tree.problems)
    config = None
    if isinstance(tree.value, dict):
        _type_hyperparameters(tree.value)
        try:
            config = ModelCustomizationJob.model_validate(tree.value)
        except ValidationError as error:
            problems += [
                Problem(
                    f"{source}:{line_of(tree.lines, place)}",
                    f"{dotted(place)}: {message}" if place else message,
                )
                for place, message in describe_errors(error)
            ]
    if problems or config is None:
        invalid = make_error(InvalidJobError, sorted(problems, key=_line_number))
        invalid.tree = tree
        raise invalid
    return config, tree


def _line_number(problem: Problem) -> int:
    return next((int(part) for part in problem.where.split(":")[1:] if part.isdigit()), 0)


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


def _normalised(source: _Source) -> Job:
    config, place = source.config, source.place
    pipeline = config.custom_rl_pipeline
    above: KeyPath = ("custom_rl_pipeline",)
    rollout = pipeline.rollout if pipeline else None
    model = config.model_reference.foundation_model
    values = config.hyperparameters
    _check_sizes(source)
    return Job(
        source=source.path,
        name=config.name,
        customization_type=config.method,
        model_name=model.name if model else None,
        model_version=model.model_version if model else None,
        custom_model_id=config.model_reference.custom_model_id,
        rollout=plugin_reference(rollout, where=place((*above, "rollout"))) if rollout else None,
        graders=tuple(
            plugin_reference(grader, where=place((*above, "graders", index)))
            for index, grader in enumerate(pipeline.graders if pipeline else ())
        ),
        training_files=local_files(config.data.training_set, root=source.root),
        validation_files=local_files(config.data.validation_set, root=source.root),
        hyperparameters=values,
        batch_size=values.get("batch_size"),
        num_generations=values.get("num_generations"),
        config=config,
        declared_hyperparameters=names_declared(),
        warnings=tuple(
            f"{place(('hyperparameters', name))}: hyperparameters.{name}: {sentence}"
            for name, sentence in unknown_names(values, method=config.method).items()
        ),
        inferred=tuple(_inferred(source)),
        lines=source.lines,
    )


def _inferred(source: _Source) -> list[str]:
    config = source.config
    pipeline = config.custom_rl_pipeline
    if pipeline is None:
        return []
    said = []
    kind = type(pipeline).__name__
    is_python = source.path.suffix == ".py"  # there the object is of a class
    is_named = is_python or ("custom_rl_pipeline", "pipeline_type") in source.lines
    if config.customization_type is None:
        basis = f"a {kind} trains by it" if is_named else "no pipeline_type is given either"
        said.append(f"customization_type: {config.method}, because {basis}")
    if not is_named:
        said.append(f"custom_rl_pipeline.pipeline_type: {kind}, because {config.method} takes that")
    if pipeline.rollout is None:
        said.append(
            "custom_rl_pipeline.rollout: the built-in single-turn one, because none is given"
        )
    return said


def plugin_reference(plugin: PipelinePluginWrapper, *, where: str) -> PluginReference:
    """Return what the rest of arkdev loads a plugin by."""
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


def local_files(data: TrainingDataset | None, *, root: Path) -> tuple[Path, ...]:
    """Return the absolute paths of a set's local files."""
    names = (data.local_files or []) if data else []
    return tuple(root / filesystem_path(name) for name in names)


def _check_sizes(source: _Source) -> None:
    """Raise `JobError` for files that the platform does not take, before anything starts."""
    data = source.config.data
    problems = [
        Problem(
            source.place(("data", name, "local_files", index)),
            f"data.{name}.local_files[{index}]: {too_large}",
        )
        for name in ("training_set", "validation_set")
        for index, path in enumerate(local_files(getattr(data, name), root=source.root))
        if (too_large := size_problem(path))
    ]
    if problems:
        raise make_error(JobError, problems)


def size_problem(path: Path) -> str:
    """Say that a file is larger than the platform takes (JOB-16); "" when it is not, or missing."""
    try:
        size = path.stat().st_size
    except OSError:
        return ""
    if size <= MAX_FILE_BYTES:
        return ""
    return f"{shown_path(path)} has {size:,} bytes; a file may have 2 GB ({MAX_FILE_BYTES:,})"
