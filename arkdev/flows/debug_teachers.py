"""The teachers of an OPD job in a debug run: their names, and the endpoint in their place."""

from __future__ import annotations

from arkdev.endpoints.registry import resolve_endpoint, user_config_file
from arkdev.endpoints.spec import EndpointSpec
from arkdev.errors import JobError, UsageError
from arkdev.flows.debug_request import DebugRequest
from arkdev.flows.local_policy import choose_policy
from arkdev.job.job import Job
from arkdev.job.pipelines import OPDPipeline
from arkdev.job.workspace import Workspace


def teacher_names(job: Job) -> frozenset[str]:
    """Return the names that an OPD job has for its teachers."""
    pipeline = job.config.custom_rl_pipeline
    return frozenset(pipeline.teachers or ()) if isinstance(pipeline, OPDPipeline) else frozenset()


def teacher_endpoint(
    request: DebugRequest, workspace: Workspace, job: Job, notes: list[str]
) -> EndpointSpec | None:
    """Return what answers in the place of the teachers; None where nothing does.

    Raises `UsageError` and `JobError` for flags that have no effect. Adds to `notes`.
    """
    is_distilled = isinstance(job.config.custom_rl_pipeline, OPDPipeline)
    if request.teacher_endpoint is None:
        if request.teacher_model is not None:
            raise UsageError("--teacher-model belongs to a --teacher-endpoint")
        if is_distilled:
            notes.append(
                "no --teacher-endpoint: what teachers would be shown is checked, and not answered"
            )
        return None
    if not is_distilled:
        raise JobError(
            f"--teacher-endpoint: a {job.customization_type} job has no teachers",
            where=str(job.source),
        )
    spec = resolve_endpoint(
        request.teacher_endpoint,
        model=request.teacher_model,
        api_key_env=None,
        workspace_endpoints=workspace.endpoints,
        user_config=user_config_file(),
    )
    spec, of_model = choose_policy(spec, runs=workspace.root / "runs")
    notes += (f"teachers: {note}" for note in of_model)
    if spec.base_url and not spec.model:
        raise UsageError(
            f"the teacher's endpoint {spec.name!r} needs a model",
            hint="name it with --teacher-model",
        )
    return spec
