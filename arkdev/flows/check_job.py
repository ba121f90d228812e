"""`arkdev check`: everything that is wrong with a job, told at once, before anything starts."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from arkdev.errors import ConfigurationError, DataError, JobError
from arkdev.flows.named_plugins import plugin_of_job
from arkdev.job.data import local_path
from arkdev.job.dataset import read_files, summarised_warnings
from arkdev.job.invalid_records import InvalidRecords, Tolerance
from arkdev.job.job import Job, PluginReference, place_of_key
from arkdev.job.job_data import stand_ins, tolerance_of
from arkdev.job.local_values import local_job
from arkdev.job.methods import RL_METHODS
from arkdev.job.model import part_of
from arkdev.job.paths import shown_path
from arkdev.job.pipelines import PipelinePluginWrapper
from arkdev.job.problems import KeyPath, dotted
from arkdev.job.python_source import InvalidScriptError, read_lines
from arkdev.job.reader import (
    InvalidJobError,
    plugin_reference,
    read_job,
    require_job_file,
    size_problem,
)
from arkdev.job.workspace import Workspace, find_workspace
from arkdev.plugin import ark_sdk
from arkdev.plugin.loading import LoadedPlugin

FIRST_LINES = 100
"""Samples of each data file that are looked at."""

_PLACE = re.compile(r"(?P<where>.*?:\d+(:\d+)?): (?P<message>.*)", re.DOTALL)


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, or may be; `where` is file:line where there is a line."""

    where: str
    message: str
    fix: str = ""


@dataclass(frozen=True)
class JobCheck:
    """What was found in a job."""

    source: Path
    job: Job | None
    """None when the file is no valid job."""
    problems: tuple[Finding, ...]
    warnings: tuple[Finding, ...]
    num_plugins: int
    num_files: int


@dataclass(frozen=True)
class _Parts:
    """What a job names, valid or not: plugins and files with their places."""

    plugins: tuple[tuple[PluginReference, bool], ...]
    """(plugin, whether it has to be a rollout)"""
    files: tuple[tuple[Path, str], ...]


def check_job(start: Path, path: Path | None = None) -> JobCheck:
    """Check the job of the workspace that `start` lies in, or the one in `path`.

    The file itself, its plugins (imported; of the right kind), its data files (there; their first
    lines are samples), and ``[train.local]`` of the workspace. Raises `JobError` when there is no
    job file at all.
    """
    workspace = find_workspace(start, job=path)
    root = workspace.root
    ark_sdk.install()
    source = require_job_file(root, path)
    job, parts = None, _Parts((), ())
    problems: list[Finding] = []
    warnings: list[Finding] = []
    try:
        job = read_job(root, source)
    except (InvalidJobError, InvalidScriptError) as error:
        problems += _findings(error)
        parts = _parts_of_invalid(error, source=source, root=root)
        problems += _size_findings(parts.files)
    except ConfigurationError as error:
        problems += _findings(error)
    if job is not None:
        parts = _parts_of_job(job, workspace)
        warnings += [_split(text) for text in job.warnings] + _doubts(job)
        warnings += _files_named_again(job)
        problems += _local_findings(job, workspace)
    for reference, is_rollout in parts.plugins:
        try:
            loaded = plugin_of_job(reference, root=root, is_rollout=is_rollout)
        except ConfigurationError as error:
            problems += _findings(error)
        else:
            warnings += _slow_plugin(loaded, job, reference=reference)
    tolerated = tolerance_of(job.config.data) if job is not None else Tolerance()
    for file, where in parts.files:
        found, odd = _file_findings(file, where=where, invalid=_FirstLines(tolerated))
        problems += found
        warnings += odd
    return JobCheck(
        source=source,
        job=job,
        problems=tuple(problems),
        warnings=tuple(warnings),
        num_plugins=len(parts.plugins),
        num_files=len(parts.files),
    )


def _findings(error: ConfigurationError) -> list[Finding]:
    """One finding for each problem of an error; what to do about them stands with the last one."""
    if len(error.problems) < 2:
        return [Finding(error.where, error.message, error.hint)]
    *others, last = error.problems
    return [*map(_split, others), _split(last, fix=error.hint)]


def _split(text: str, fix: str = "") -> Finding:
    """Take ``file:line: message`` apart."""
    match = _PLACE.fullmatch(text)
    return Finding(match["where"], match["message"], fix) if match else Finding("", text, fix)


def _parts_of_job(job: Job, workspace: Workspace) -> _Parts:
    rollouts = [(job.rollout, True)] if job.rollout else []
    graders = [(grader, False) for grader in job.graders]
    sets = (("training_set", job.training_files), ("validation_set", job.validation_files))
    files = [
        (file, job.place(("data", name, "local_files", index)))
        for name, paths in sets
        for index, file in enumerate(paths)
    ]
    files += [
        (file, job.place(key)) for key, file in stand_ins(job.config.data, workspace=workspace)
    ]
    return _Parts((*rollouts, *graders), tuple(files))


def _local_findings(job: Job, workspace: Workspace) -> list[Finding]:
    """What ``[train.local]`` cannot hold for this job."""
    try:
        local_job(job, workspace, flags={})
    except JobError as error:
        return _findings(error)
    return []


def _files_named_again(job: Job) -> list[Finding]:
    """A file that counts twice in training, and one that validates what it has taught."""
    found = []
    first: dict[Path, KeyPath] = {}
    sets = (("training_set", job.training_files), ("validation_set", job.validation_files))
    for name, files in sets:
        for index, file in enumerate(files):
            key: KeyPath = ("data", name, "local_files", index)
            earlier = first.setdefault(file.resolve(), key)
            if earlier == key:
                continue
            is_leak = earlier[1] != name
            fix = "validation then measures what was trained on" if is_leak else "it counts twice"
            message = f"{dotted(key)} is the file of {dotted(earlier)}"
            found.append(Finding(job.place(key), message, fix))
    return found


def _parts_of_invalid(
    error: InvalidJobError | InvalidScriptError, *, source: Path, root: Path
) -> _Parts:
    """Take out of what is no valid job what can be looked at all the same."""
    whole = error.tree.value if isinstance(error, InvalidJobError) else error.job
    lines = error.tree.lines if isinstance(error, InvalidJobError) else read_lines(source)

    def place(key: KeyPath) -> str:
        return place_of_key(key, file=source, lines=lines)

    plugins: list[tuple[PluginReference, bool]] = []
    above = "custom_rl_pipeline"
    pipeline = part_of(whole, above)
    graders = part_of(pipeline, "graders")
    named: list[tuple[Any, KeyPath]] = [(part_of(pipeline, "rollout"), (above, "rollout"))]
    if isinstance(graders, list):
        named += [(item, (above, "graders", index)) for index, item in enumerate(graders)]
    for value, key in named:
        wrapper = _plugin_of(value)
        if wrapper is not None:
            plugins.append((plugin_reference(wrapper, where=place(key)), key[1] == "rollout"))
    files = []
    for name in ("training_set", "validation_set"):
        names = part_of(part_of(part_of(whole, "data"), name), "local_files")
        for index, text in enumerate(names if isinstance(names, list) else ()):
            if isinstance(text, str) and text:
                where = place(("data", name, "local_files", index))
                with suppress(ValueError):  # told already
                    files.append((root / local_path(text), where))
    return _Parts(tuple(plugins), tuple(files))


def _plugin_of(value: Any) -> PipelinePluginWrapper | None:
    """The plugin that a part of the pipeline names; without its other keys where one is wrong."""
    plugin = part_of(value, "plugin")
    is_function = isinstance(plugin, str) or callable(plugin)
    function = plugin if is_function else part_of(plugin, "python_func")
    given = [part_of(level, "envs") for level in (plugin, value)]
    envs = {
        name: text
        for level in given
        if isinstance(level, dict)
        for name, text in level.items()
        if isinstance(text, str)
    }
    for form in (value, {"plugin": function, "envs": envs}):
        with suppress(ValidationError):
            return PipelinePluginWrapper.model_validate(form)
    return None


def _slow_plugin(
    loaded: LoadedPlugin, job: Job | None, *, reference: PluginReference
) -> Iterator[Finding]:
    """A limit below what a step asks for at once makes training wait (RULE-04)."""
    limit = loaded.plugin.runtime.request_concurrency
    wanted = 8 * (job.batch_size or 0) if job else 0
    if limit < wanted:
        yield Finding(
            reference.where or loaded.plugin.place,
            f"{reference.name}: request_concurrency {limit} is less than batch_size * 8, {wanted}",
            "training waits for the plugin; set it in the decorator's Runtime to what the plugin's "
            "own services bear",
        )


def _size_findings(files: Sequence[tuple[Path, str]]) -> list[Finding]:
    sizes = ((where, size_problem(file)) for file, where in files)
    return [Finding(where, problem) for where, problem in sizes if problem]


class _FirstLines(InvalidRecords):
    """Invalid lines at the beginning of a file, of which the job may leave out some."""

    @property
    def is_hopeless(self) -> bool:
        return super().is_hopeless or self.count >= FIRST_LINES

    def check(self, *, num_samples: int) -> None:
        """A share of the first lines says nothing of the whole file's."""
        if self.tolerance.ratio is None or self.num_of_files:
            super().check(num_samples=num_samples)


def _file_findings(
    file: Path, *, where: str, invalid: InvalidRecords
) -> tuple[list[Finding], list[Finding]]:
    """Return (problems, warnings) of the first lines of one data file."""
    try:
        lines = tuple(read_files([file], FIRST_LINES, invalid=invalid))
        warnings = [*invalid.warnings(), *summarised_warnings(lines)]
    except DataError as error:
        if os.path.isfile(file):  # unlike Path's, no error for a name too long
            return _findings(error), []
        return [Finding(where, f"{shown_path(file)}: {error.message}")], []
    return [], [
        Finding(warning.where, str(warning).removeprefix(f"{warning.where}: "))
        for warning in warnings
    ]


def _doubts(job: Job) -> list[Finding]:
    """What is allowed and may not be meant."""
    found = []
    if job.customization_type in RL_METHODS and job.num_generations == 1:
        where = job.place(("hyperparameters", "num_generations"))
        message = "hyperparameters.num_generations is 1: a group of one compares with nothing"
        found.append(Finding(where, message, "GRPO learns from what differs in a group"))
    data = job.config.data
    for name in ("max_invalid_records_ratio", "max_invalid_records_number"):
        if getattr(data, name) is not None:
            message = f"data.{name}: the platform takes it for models that see images only"
            found.append(Finding(job.place(("data", name)), message))
    return found
