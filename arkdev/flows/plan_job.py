"""`arkdev plan`: what a job would run on a backend, and what each of its keys does there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arkdev.flows.debug_request import DEFAULT_BATCH_SIZE, DEFAULT_NUM_GENERATIONS
from arkdev.flows.local_problems import local_problems
from arkdev.flows.train_request import DEFAULT_MODEL
from arkdev.job.capabilities import (
    COMES_WITH,
    GENERAL_DIFFERENCES,
    LOCAL_SETTING,
    BackendName,
    Effect,
    Support,
)
from arkdev.job.catalogue import catalogue
from arkdev.job.effects import KeyEffect, Origin, effects_of, refusals, without_default
from arkdev.job.job import Job
from arkdev.job.local_values import LocalJob, local_job
from arkdev.job.problems import Problem
from arkdev.job.reader import read_job, require_job_file
from arkdev.job.workspace import Workspace, find_workspace
from arkdev.plugin import ark_sdk


@dataclass(frozen=True)
class Difference:
    """Something that local training and a job on the platform do not do alike."""

    what: str
    local: str
    remote: str


@dataclass(frozen=True)
class JobPlan:
    """A job on a backend."""

    job: Job
    backend: BackendName
    effects: tuple[KeyEffect, ...]
    work: tuple[str, ...]
    """What would run, a sentence each."""
    differences: tuple[Difference, ...]
    notes: tuple[str, ...]
    problems: tuple[Problem, ...]
    """Keys that the backend would pass over, and values that it refuses."""

    def on_backend(self, effect: KeyEffect) -> Effect:
        """Return what a key does on the plan's backend."""
        return effect.capability.on(self.backend)


def load_job(start: Path, path: Path | None) -> tuple[Job, Workspace]:
    """Return the job of the workspace that `start` lies in, or the one in `path`.

    Raises `JobError` when there is none or it is wrong. A job.py is run, with `ark_sdk` to import.
    """
    workspace = find_workspace(start, job=path)
    ark_sdk.install()
    job = read_job(workspace.root, require_job_file(workspace.root, path))
    assert job is not None
    return job, workspace


def plan_job(job: Job, backend: BackendName, *, workspace: Workspace) -> JobPlan:
    """Return what `job` would run on `backend`; nothing is started and no plugin is imported.

    Raises `JobError` for what the workspace says of training on this machine and cannot be.
    """
    local = None
    if backend is BackendName.LOCAL and job.customization_type.is_grpo:
        local = local_job(job, workspace, flags={})
    effects = tuple(effects_of(job, local))
    return JobPlan(
        job=job,
        backend=backend,
        effects=effects,
        work=tuple(_work(local.job if local else job, backend)),
        differences=tuple(_differences(job, effects)),
        notes=tuple(_notes(job, backend, local)),
        problems=(*refusals(job, backend, local), *(local_problems(local) if local else ())),
    )


def _work(job: Job, backend: BackendName) -> list[str]:
    model = f"{job.model_name} {job.model_version}" if job.model_name else job.custom_model_id
    if backend is BackendName.LOCAL:
        model = f"{DEFAULT_MODEL}, which stands for {model}"
    lines = [f"{job.customization_type} on {model}"]
    if job.customization_type.is_rl:
        lines.append(_steps(job, backend))
    for what, files in (("training", job.training_files), ("validation", job.validation_files)):
        if files:
            lines.append(f"{what} data: {_count(len(files), 'file')}")
    return lines


def _steps(job: Job, backend: BackendName) -> str:
    """What a debug run takes for what the job leaves open is known; the platform's is not."""
    steps = job.hyperparameters.get("num_steps")
    samples, rollouts = job.batch_size, job.num_generations
    if backend is not BackendName.REMOTE:
        missing = [
            name
            for name in ("num_steps", "batch_size", "num_generations")
            if name not in job.hyperparameters
        ]
        whose = "a debug run's own" if backend is BackendName.DEBUG else "arkdev's own"
        own = f"; {whose}, as the job gives no {', '.join(missing)}" if missing else ""
        samples = samples or DEFAULT_BATCH_SIZE
        rollouts = rollouts or DEFAULT_NUM_GENERATIONS
        begin = "one epoch in steps" if steps is None else _count(steps, "step")
        return f"{begin} of {_count(samples, 'sample')}, {_count(rollouts, 'rollout')} of each{own}"
    return (
        f"{_count(steps, 'step')} of {_count(samples, 'sample')}, "
        f"{_count(rollouts, 'rollout')} of each"
    )


def _count(number: Any, what: str) -> str:
    if number is None:
        return f"an unknown number of {what}s"
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _differences(job: Job, effects: tuple[KeyEffect, ...]) -> list[Difference]:
    of_keys = [
        Difference(effect.key, _told(effect.capability.local), _told(effect.capability.remote))
        for effect in effects
        if effect.capability.local != effect.capability.remote
        and not (effect.capability is LOCAL_SETTING and effect.origin is Origin.DEFAULT)
    ]
    if not job.customization_type.is_rl:  # nothing of it runs here
        return of_keys
    return [Difference(*row) for row in GENERAL_DIFFERENCES] + of_keys


def _told(effect: Effect) -> str:
    return f"refused: {effect.text}" if effect.support is Support.REFUSED else effect.text


def _notes(job: Job, backend: BackendName, local: LocalJob | None) -> list[str]:
    notes = [COMES_WITH[backend]] if backend in COMES_WITH else []
    notes += local.notes if local is not None else ()
    notes += job.inferred
    notes += job.warnings
    unknown = without_default(local.job if local is not None else job, is_local=local is not None)
    if unknown:
        notes.append(
            "not given, and the default is not publicly known: "
            + ", ".join(f"hyperparameters.{name}" for name in unknown)
        )
    if backend is BackendName.REMOTE:
        notes += _unusual(job)
    return notes


def _unusual(job: Job) -> list[str]:
    """Values beside the lists that the platform usually has; only a query knows a model's own."""
    entries = (entry for entry in catalogue().values() if entry.usual)
    return [
        f"hyperparameters.{entry.name} is {job.hyperparameters[entry.name]}; the platform takes "
        f"{entry.note}, usually {', '.join(map(str, entry.usual))}"
        for entry in entries
        if job.hyperparameters.get(entry.name, entry.usual[0]) not in entry.usual
    ]
