"""How large a job is: its steps, rollouts and rounds of validation, and who says so."""

from __future__ import annotations

from typing import Any

from arkdev.errors import UsageError
from arkdev.flows.debug_request import (
    DEFAULT_BATCH_SIZE,
    DEFAULT_NUM_GENERATIONS,
    DebugRequest,
)
from arkdev.job.batches import BatchPlan
from arkdev.job.job import Job
from arkdev.job.job_data import JobSamples


def batches_of(request: DebugRequest, job: Job, num_samples: int, notes: list[str]) -> BatchPlan:
    """Return which samples each step takes. Adds to `notes`."""
    batch_size = request.batch_size or job.batch_size
    if request.batch_size is not None and job.batch_size not in (None, request.batch_size):
        notes.append(f"batch_size is {request.batch_size} here, {job.batch_size} in the job")
    if batch_size is None:
        batch_size = DEFAULT_BATCH_SIZE
        notes.append(f"the job gives no batch_size, whose default is not known: {batch_size} here")
    steps = request.steps or job.hyperparameters.get("num_steps")
    if request.steps is not None and "num_steps" in job.hyperparameters:
        wanted = job.hyperparameters["num_steps"]
        if wanted != request.steps:
            notes.append(f"num_steps is {request.steps} here, {wanted} in the job")
    if steps is None:
        notes.append("the job gives no num_steps, whose default is not known: one epoch is run")
    return BatchPlan(
        num_samples=num_samples,
        batch_size=batch_size,
        seed=request.seed or 0,
        num_steps=steps if isinstance(steps, int) else None,
        num_epochs=None if isinstance(steps, int) else 1,
    )


def num_generations_of(request: DebugRequest, job: Job, notes: list[str]) -> int:
    """Return the rollouts of each sample. Adds to `notes`."""
    asked, of_job = request.num_generations, job.num_generations
    if asked is not None:
        if of_job not in (None, asked):
            notes.append(f"num_generations is {asked} here, {of_job} in the job")
        return asked
    if of_job is not None:
        return of_job
    notes.append(
        "the job gives no num_generations, whose default is not known: "
        f"{DEFAULT_NUM_GENERATIONS} here"
    )
    return DEFAULT_NUM_GENERATIONS


def validation_of(
    request: DebugRequest, job: Job, data: JobSamples, notes: list[str]
) -> dict[str, Any]:
    """Return the fields of a plan on rounds of validation. Raises `UsageError`; adds to `notes`."""
    values = job.hyperparameters
    every, generations = values.get("test_every_n_steps"), values.get("test_num_generations")
    size = len(data.validation) if data.validation is not None else 0
    if not size:
        if request.validation_limit is not None:
            raise UsageError("--validation-limit: the job has no validation set")
    elif request.validation_limit is not None and request.validation_limit < size:
        notes.append(f"{request.validation_limit} of {size} samples of the validation set are run")
        size = request.validation_limit
    if size and every is None:
        notes.append("the job gives no test_every_n_steps: one round of validation, at the end")
    return {
        "num_validation": size,
        "test_every": every if isinstance(every, int) else None,
        "test_num_generations": generations if isinstance(generations, int) else 1,
    }
