"""What `arkdev debug` would run: a job, resolved and checked before anything starts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from arkdev.endpoints.registry import ARK, resolve_endpoint, user_config_file
from arkdev.endpoints.spec import EndpointSpec
from arkdev.errors import UsageError
from arkdev.flows.concurrency import notes_on_rollouts_at_once, rollouts_at_once
from arkdev.flows.debug_request import DebugRequest
from arkdev.flows.debug_teachers import teacher_endpoint, teacher_names
from arkdev.flows.environment import expect_judge, secrets_of
from arkdev.flows.faas_plan import plan_faas
from arkdev.flows.job_size import batches_of, num_generations_of, validation_of
from arkdev.flows.limits import with_limits
from arkdev.flows.local_policy import choose_policy
from arkdev.flows.named_plugins import named_graders, named_rollout
from arkdev.flows.resume import check_unchanged, find_resumable, flags_of, notes_on
from arkdev.flows.test_plan import (
    PluginTestPlan,
    check_model,
    context_of,
    envs_of_run,
    faults_of,
    notes_on_faults,
    serve_ark_sdk,
)
from arkdev.flows.test_request import check_flags, shown
from arkdev.flows.tracing import check_tracing
from arkdev.harness.loss_weights import DEFAULT_MODE, LossAggMode
from arkdev.harness.rollouts import SampleToRun
from arkdev.harness.sampling import resolve_sampling
from arkdev.harness.stalls import stalls_of_summary
from arkdev.job.batches import BatchPlan
from arkdev.job.capabilities import BackendName
from arkdev.job.dataset import DatasetLine
from arkdev.job.effects import require_supported
from arkdev.job.job import Job
from arkdev.job.job_data import (
    JobSamples,
    load_job_samples,
    training_sources,
    validation_sources,
)
from arkdev.job.local_tokenizer import LocalTokenizer, open_tokenizer
from arkdev.job.reader import read_job, require_job_file
from arkdev.job.workspace import Workspace, find_workspace
from arkdev.runs.masking import usable_secrets
from arkdev.runs.writer import recorded_settings


@dataclass(frozen=True)
class DebugPlan(PluginTestPlan):
    """A rehearsal that can run. `num_samples` counts groups, of all steps and rounds."""

    kind: ClassVar[str] = "debug"
    looks_for_leaks: ClassVar[bool] = True

    data: JobSamples | None = None
    batches: BatchPlan | None = None
    test_num_generations: int = 1
    test_every: int | None = None
    """Steps between two rounds on the validation set; None: one after the last step."""
    num_validation: int = 0
    """Samples of each round."""
    teacher: EndpointSpec | None = None
    teachers: frozenset[str] = frozenset()
    """The names that the job knows."""
    tokenizer: LocalTokenizer | None = None

    @property
    def debug(self) -> DebugRequest:
        """What was asked for."""
        assert isinstance(self.request, DebugRequest)
        return self.request

    @property
    def the_job(self) -> Job:
        """The job that is rehearsed."""
        assert self.job is not None
        return self.job

    @property
    def steps(self) -> BatchPlan:
        """Which samples each step takes."""
        assert self.batches is not None
        return self.batches

    @property
    def num_rollouts(self) -> int:
        """Rollouts that will run when no group is dropped."""
        num_tests = self.num_rounds * self.num_validation * self.test_num_generations
        return self.num_groups * self.num_generations + num_tests

    @property
    def num_groups(self) -> int:
        """Groups of all steps."""
        num_epochs, rest = divmod(len(self.steps), self.steps.steps_per_epoch)
        return num_epochs * self.steps.num_samples + rest * self.steps.batch_size

    @property
    def num_rounds(self) -> int:
        """Rounds on the validation set."""
        if not self.num_validation:
            return 0
        return 1 if self.test_every is None else -(-len(self.steps) // self.test_every)

    def is_round_after(self, step: int) -> bool:
        """Whether a round on the validation set follows a step; one follows the last."""
        if not self.num_validation:
            return False
        is_last = step == len(self.steps) - 1
        return is_last or (self.test_every is not None and (step + 1) % self.test_every == 0)

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not show in anything that the run writes."""
        more = secrets_of(self.teacher, {}) if self.teacher is not None else ()
        config = self.the_job.config.debug_config
        own = [config.apikey.get_secret_value()] if config is not None else []
        return tuple(dict.fromkeys((*super().secrets, *more, *usable_secrets(own))))

    def training_sample(self, index: int) -> SampleToRun:
        """Return a sample of a batch."""
        assert self.data is not None
        return self._sample(index, self.data.training[index], self.the_job.hyperparameters)

    def validation_sample(self, index: int) -> SampleToRun:
        """Return a sample of the validation set; `test_top_p` is its `top_p`."""
        assert self.data is not None and self.data.validation is not None
        values = dict(self.the_job.hyperparameters)
        if "test_top_p" in values:
            values["top_p"] = values["test_top_p"]
        return self._sample(index, self.data.validation[index], values)

    def _sample(self, index: int, line: DatasetLine, values: Mapping[str, Any]) -> SampleToRun:
        sampling = resolve_sampling(
            line.sample, flags=self.request.sampling, hyperparameters=values
        )
        return SampleToRun(index, line.sample.model_dump_json(exclude_unset=True), sampling)

    def training(self) -> dict[str, Any]:
        """Return what the job would train with, for a forecast."""
        return {**(super().training() or {}), "num_samples": self.steps.num_samples}

    def settings(self) -> dict[str, Any]:
        """Return what the run folder keeps of this plan."""
        teacher = self.teacher and {"name": self.teacher.name, "model": self.teacher.model}
        return {
            **super().settings(),
            "customization_type": self.the_job.customization_type.value,
            "num_steps": len(self.steps),
            "batch_size": self.steps.batch_size,
            "num_validation": self.num_validation,
            "test_num_generations": self.test_num_generations,
            "test_every_n_steps": self.test_every,
            "teacher": teacher,
            "tokenizer": shown(self.tokenizer.path) if self.tokenizer else None,
            "loss_agg_mode": self.the_job.hyperparameters.get("loss_agg_mode"),
        }


_Plan = TypeVar("_Plan", bound=DebugPlan)


def plan_debug(request: DebugRequest, *, job: Job | None = None) -> DebugPlan:
    """Resolve and check a rehearsal of the workspace's job, or of `job`.

    Raises `ConfigurationError` for whatever cannot run, a `RunError` for a run that cannot be gone
    on with.
    """
    workspace = find_workspace(request.start, job=request.job)
    if request.resume is None:
        return _resolved(request, workspace, job)
    if request.out is not None:
        raise UsageError("--out is for a new run; a resumed one goes on in its own folder")
    reader = find_resumable(workspace.root / "runs", request.resume, kind=DebugPlan.kind)
    again = request.with_flags(flags_of(reader.manifest))
    assert isinstance(again, DebugRequest)
    plan = _resolved(again, workspace, job)
    settings = recorded_settings(plan.settings(), secrets=plan.secrets)
    check_unchanged(reader.manifest, settings=settings, hashes=plan.hashes())
    notes = notes_on(reader, num_samples=plan.num_samples, concurrency=plan.concurrency)
    return replace(
        plan,
        resumed=reader.folder,
        notes=(*plan.notes, *notes),
        earlier_stalls=stalls_of_summary(reader.manifest.summary),
    )


def _resolved(request: DebugRequest, workspace: Workspace, job: Job | None) -> DebugPlan:
    check_flags(request)
    notes = list(serve_ark_sdk(request))
    if job is None:
        require_job_file(workspace.root, request.job)
        job = _read(request, workspace)
    require_supported(job, BackendName.DEBUG)
    endpoint = _endpoint(request, workspace, job, notes)
    return composed(
        DebugPlan,
        request,
        workspace,
        job=job,
        notes=notes,
        endpoint=endpoint,
        teacher=teacher_endpoint(request, workspace, job, notes),
        teachers=teacher_names(job),
        tokenizer=open_tokenizer(request.tokenizer) if request.tokenizer else None,
    )


def composed(
    kind: type[_Plan],
    request: DebugRequest,
    workspace: Workspace,
    *,
    job: Job,
    notes: list[str],
    endpoint: EndpointSpec,
    **more: Any,
) -> _Plan:
    """Return a plan of this kind: the job's plugins loaded, its data read and put into steps.

    `more` are fields of the kind's own. Raises `ConfigurationError` for whatever cannot run.
    """
    expect_judge(endpoint)
    rollout, envs = named_rollout(request, job, root=workspace.root)
    check_model(endpoint, rollout)
    graders = named_graders(request, job, root=workspace.root)
    faults = faults_of(request)
    faas = plan_faas(request, workspace, rollout=(rollout, envs), graders=graders, faults=faults)
    all_envs = envs_of_run([envs, *(envs for _, envs in graders)], faas)
    notes += check_tracing(all_envs, is_asked_for=request.trace)
    data = load_job_samples(job.config.data, workspace=workspace, seed=request.seed or 0)
    batches = batches_of(request, job, len(data.training), notes)
    asked = request.concurrency or batches.batch_size
    concurrency = rollouts_at_once(asked, rollout)
    plan = kind(
        request=request,
        workspace=workspace,
        job=job,
        rollout=rollout,
        graders=tuple(grader for grader, _ in graders),
        endpoint=with_limits(endpoint, request, concurrency=concurrency),
        files=_files(job, workspace),
        line=None,
        num_samples=0,
        num_generations=num_generations_of(request, job, notes),
        concurrency=concurrency,
        context=context_of(job),
        envs=all_envs,
        faults=faults,
        faas=faas,
        warnings=tuple(w for found in data.invalid.values() for w in found.warnings()),
        data=data,
        batches=batches,
        **validation_of(request, job, data, notes),
        **more,
    )
    return replace(
        plan,
        num_samples=plan.num_groups + plan.num_rounds * plan.num_validation,
        notes=(
            *notes,
            *(faas.notes if faas else ()),
            *notes_on_rollouts_at_once(asked, rollout),
            *notes_on_faults(faults),
            *job.warnings,
            *_notes_on_loss(job),
        ),
    )


def _notes_on_loss(job: Job) -> list[str]:
    mode = job.hyperparameters.get("loss_agg_mode", DEFAULT_MODE)
    if mode in list(LossAggMode):
        return []
    known = ", ".join(LossAggMode)
    return [f"loss_agg_mode {mode!r}: arkdev knows {known}, and cannot say whose loss weighs what"]


def _files(job: Job, workspace: Workspace) -> tuple[Path, ...]:
    data = job.config.data
    sources = [
        *training_sources(data, workspace=workspace),
        *validation_sources(data, workspace=workspace),
    ]
    return tuple(dict.fromkeys(path for source in sources for path in source.paths))


def _read(request: DebugRequest, workspace: Workspace) -> Job:
    """Read the job; clients that a job.py's plugins make at import may be redirected."""
    endpoint = resolve_endpoint(
        request.endpoint,
        model=request.model,
        api_key_env=request.api_key_env if request.endpoint else None,
        workspace_endpoints=workspace.endpoints,
        user_config=user_config_file(),
    )
    expect_judge(endpoint)
    job = read_job(workspace.root, request.job)
    assert job is not None  # there is a file
    return job


def _endpoint(
    request: DebugRequest, workspace: Workspace, job: Job, notes: list[str]
) -> EndpointSpec:
    """Return the flag's endpoint, else that of `debug_config` (DBG-02..04), else the scripted."""
    given = job.config.debug_config
    if given is None or request.endpoint is not None:
        if given is not None:
            notes.append(f"--endpoint {request.endpoint} takes the place of the job's debug_config")
        elif request.endpoint is None:
            notes.append(
                "the scripted model answers: the job has no debug_config, and there is no "
                "--endpoint"
            )
        named = resolve_endpoint(
            request.endpoint,
            model=request.model,
            api_key_env=request.api_key_env,
            workspace_endpoints=workspace.endpoints,
            user_config=user_config_file(),
        )
        spec, of_model = choose_policy(named, runs=workspace.root / "runs")
        notes += of_model
        return spec
    if request.api_key_env is not None:
        raise UsageError(
            "--api-key-env belongs to an --endpoint; the job's debug_config brings its own key",
            hint="name the endpoint too: --endpoint ark --api-key-env NAME",
        )
    url = os.environ.get("ARK_BASE_URL") or ARK.base_url
    return EndpointSpec(
        name="debug_config",
        base_url=url,
        model=request.model or given.endpoint_id,
        api_key_env=None,
        family="ark",
        source=job.place(("debug_config",)),
        api_key=given.apikey,
    )
