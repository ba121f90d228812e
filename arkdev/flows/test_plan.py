"""What `arkdev test plugin` would run: everything resolved and checked before anything starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from arkdev.endpoints.registry import LOCAL
from arkdev.endpoints.spec import EndpointSpec
from arkdev.errors import JobError, UsageError
from arkdev.flows.concurrency import notes_on_rollouts_at_once, rollouts_at_once
from arkdev.flows.environment import expect_judge, resolved_endpoint, secrets_of
from arkdev.flows.faas_plan import FaasPlan, envs_of_all, plan_faas
from arkdev.flows.fingerprints import fingerprints, text_fingerprint
from arkdev.flows.limits import most_in_flight, recorded_limits, with_limits
from arkdev.flows.local_policy import choose_policy
from arkdev.flows.named_plugins import DEFAULT_ROLLOUT, named_graders, named_rollout
from arkdev.flows.resume import check_unchanged, find_resumable, flags_of, notes_on
from arkdev.flows.taping import OpenTape, open_tape
from arkdev.flows.test_request import PluginTestRequest, check_flags, shown
from arkdev.flows.test_samples import find_samples
from arkdev.flows.tracing import check_tracing
from arkdev.harness.grading import Grader
from arkdev.harness.rollouts import SampleToRun
from arkdev.harness.sampling import resolve_sampling
from arkdev.harness.stalls import StallRecord, stalls_of_summary
from arkdev.job.dataset import (
    DatasetLine,
    read_files,
)
from arkdev.job.invalid_records import DatasetWarning, InvalidRecords, Tolerance
from arkdev.job.job import Job
from arkdev.job.reader import read_job
from arkdev.job.workspace import Workspace, find_workspace
from arkdev.plugin import ark_sdk
from arkdev.plugin.decorators import PluginKind
from arkdev.plugin.loading import LoadedPlugin
from arkdev.runs.writer import recorded_settings
from arkdev.sessions.faults.grammar import described, parse_faults
from arkdev.sessions.faults.plan import FaultPlan
from arkdev.types import PluginContext

DEFAULT_CONCURRENCY = 32
"""Slots when the job names no `batch_size`."""
DEFAULT_STALL_THRESHOLD_S = 0.1


@dataclass(frozen=True)
class PluginTestPlan:
    """A test that can run."""

    kind: ClassVar[str] = "test"
    """Of the run folder."""
    looks_for_leaks: ClassVar[bool] = False
    """Whether every message that a call sent is searched."""

    request: PluginTestRequest
    workspace: Workspace
    job: Job | None
    rollout: LoadedPlugin
    graders: tuple[Grader, ...]
    endpoint: EndpointSpec
    files: tuple[Path, ...]
    line: DatasetLine | None
    """The one sample of ``--sample``, else None."""
    num_samples: int
    num_generations: int
    concurrency: int
    context: PluginContext
    envs: Mapping[str, str]
    """Environment variables that the job gives its plugins."""
    tolerance: Tolerance = field(default_factory=Tolerance)
    """How many lines may be passed over because they are no samples."""
    faults: FaultPlan | None = None
    """What is injected; None: nothing."""
    warnings: tuple[DatasetWarning, ...] = ()
    notes: tuple[str, ...] = ()
    resumed: Path | None = None
    """Folder of the run that is gone on with; None for a new one."""
    resumed_step: int | None = None
    """Of a training that is gone on with: its first step that is done anew."""
    earlier_stalls: tuple[StallRecord, ...] = ()
    """What its parts found that were not killed."""
    tape: OpenTape | None = None
    """What the run is recorded on (``--record``)."""
    faas: FaasPlan | None = None
    """What is deployed (``--faas``); None: plugins run in this process."""

    @property
    def num_rollouts(self) -> int:
        """Rollouts that will run when no group is dropped."""
        return self.num_samples * self.num_generations

    @property
    def max_in_flight(self) -> int:
        """Model calls that may be under way at once."""
        return most_in_flight(self.endpoint, concurrency=self.concurrency)

    @property
    def can_be_resumed(self) -> bool:
        """Whether the run, once interrupted, can go on with ``--resume``; its tape cannot."""
        return self.tape is None

    @property
    def success_threshold(self) -> float:
        """What was asked for, or what a rollout gets when every grader gives it 1."""
        if self.request.success_threshold is not None:
            return self.request.success_threshold
        return sum(grader.weight for grader in self.graders if grader.weight > 0)

    @property
    def stall_threshold_s(self) -> float:
        """How long a stall lasts at least; 0 watches for none.

        Where the policy computes in this process, it is what holds the others up, and code that
        happens to run meanwhile would be blamed: stalls are watched for there when asked alone.
        """
        if self.faas is not None:
            return 0.0
        usual = 0.0 if self.endpoint.family == LOCAL.family else DEFAULT_STALL_THRESHOLD_S
        asked = self.request.stall_threshold_s
        return usual if asked is None else asked

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not show in anything that the test writes."""
        apart = [function.spec.envs for function in self.faas.functions] if self.faas else []
        found = [secrets_of(self.endpoint, envs) for envs in (self.envs, *apart)]
        return tuple(dict.fromkeys(secret for secrets in found for secret in secrets))

    def samples(self) -> Iterator[SampleToRun]:
        """Read the samples again, in order."""
        invalid = InvalidRecords(self.tolerance)
        of_files = read_files(self.files, limit=self.request.limit, invalid=invalid)
        lines = [self.line] if self.line else of_files
        hyperparameters = self.job.hyperparameters if self.job else {}
        for line in lines:
            yield SampleToRun(
                index=line.index,
                line=line.sample.model_dump_json(exclude_unset=True),
                sampling=resolve_sampling(
                    line.sample, flags=self.request.sampling, hyperparameters=hyperparameters
                ),
            )

    def settings(self) -> dict[str, Any]:
        """Return what the run folder keeps of this plan."""
        return {
            "workspace": shown(self.workspace.root),
            "job": shown(self.job.source) if self.job else None,
            "rollout": self.rollout.reference,
            "graders": [
                {
                    "name": g.name,
                    "reference": g.loaded.reference,
                    "weight": g.weight,
                    "place": g.loaded.plugin.place,
                    "kind": g.loaded.plugin.kind.value,
                    "request_concurrency": g.loaded.plugin.runtime.request_concurrency,
                }
                for g in self.graders
            ],
            "data": [shown(path) for path in self.files],
            "limit": self.request.limit,
            "sample": self.request.sample,
            "num_samples": self.num_samples,
            "num_generations": self.num_generations,
            "concurrency": self.concurrency,
            "limits": recorded_limits(
                self.endpoint, self.workspace, is_adaptive=self.request.adaptive
            ),
            "endpoint": {
                "name": self.endpoint.name,
                "base_url": self.endpoint.base_url,
                "model": self.endpoint.model,
            },
            "skill": self.request.skill,
            "script": shown(self.request.script) if self.request.script else None,
            "sampling": dict(self.request.sampling),
            "success_threshold": self.success_threshold,
            "seed": self.request.seed or 0,
            "inject": self.request.inject,
            "faas": self.faas.settings() if self.faas else None,
            "real_ark_sdk": self.request.uses_real_ark_sdk,
            "training": self.training(),
            "flags": self.request.flags(),
        }

    def training(self) -> dict[str, Any] | None:
        """Return what the job would train with, for a forecast; None without a job."""
        if self.job is None:
            return None
        is_whole = self.request.limit is None and self.request.sample is None
        return {
            "customization_type": self.job.customization_type.value,
            "num_steps": self.job.hyperparameters.get("num_steps"),
            "batch_size": self.job.batch_size,
            "num_generations": self.job.num_generations,
            "num_samples": self.num_samples if is_whole else None,
        }

    def hashes(self) -> dict[str, str]:
        """Return SHA-256 of the workspace's Python files, the data, the job file and the script."""
        named = (self.job.source if self.job else None, self.request.script)
        files = [*self.files, *(path for path in named if path is not None)]
        hashes = fingerprints(self.workspace.root, files=files)
        if self.line is not None and self.request.sample:
            hashes["--sample"] = text_fingerprint(self.line.sample.model_dump_json())
        return hashes


def plan_test(request: PluginTestRequest) -> PluginTestPlan:
    """Resolve and check a test. Raises `ConfigurationError` for whatever cannot run.

    That includes, as a `RunError`, a run that cannot be gone on with.
    """
    workspace = find_workspace(request.start, job=request.job)
    if request.resume is None:
        return _new_plan(request, workspace)
    if request.out is not None:
        raise UsageError("--out is for a new run; a resumed one goes on in its own folder")
    reader = find_resumable(workspace.root / "runs", request.resume, kind=PluginTestPlan.kind)
    plan = _new_plan(request.with_flags(flags_of(reader.manifest)), workspace)
    settings = recorded_settings(plan.settings(), secrets=plan.secrets)
    check_unchanged(reader.manifest, settings=settings, hashes=plan.hashes())
    notes = notes_on(reader, num_samples=plan.num_samples, concurrency=plan.concurrency)
    return replace(
        plan,
        resumed=reader.folder,
        notes=(*plan.notes, *notes),
        earlier_stalls=stalls_of_summary(reader.manifest.summary),
    )


def _new_plan(request: PluginTestRequest, workspace: Workspace) -> PluginTestPlan:
    check_flags(request)
    if request.record is None:
        return _resolved(request, workspace)
    tape = open_tape(request.record, root=workspace.root)  # before any plugin is imported
    try:
        return replace(_resolved(request, workspace), tape=tape)
    except BaseException:
        tape.close()
        raise


def _resolved(request: PluginTestRequest, workspace: Workspace) -> PluginTestPlan:
    faults = faults_of(request)
    notes = serve_ark_sdk(request)
    endpoint, of_model = choose_policy(
        resolved_endpoint(request, workspace), runs=workspace.root / "runs"
    )
    notes = (*notes, *of_model)
    expect_judge(endpoint)  # before any plugin is imported
    job = read_job(workspace.root, request.job)
    rollout, envs = named_rollout(request, job, root=workspace.root)
    check_model(endpoint, rollout)
    graders = named_graders(request, job, root=workspace.root)
    faas = plan_faas(request, workspace, rollout=(rollout, envs), graders=graders, faults=faults)
    all_envs = envs_of_run([envs, *(envs for _, envs in graders)], faas)
    notes = (*notes, *check_tracing(all_envs, is_asked_for=request.trace))
    samples = find_samples(request, job, workspace)
    batch_size = job.batch_size if job else None
    asked = request.concurrency or batch_size or DEFAULT_CONCURRENCY
    concurrency = rollouts_at_once(asked, rollout)
    return PluginTestPlan(
        request=request,
        workspace=workspace,
        job=job,
        rollout=rollout,
        graders=tuple(grader for grader, _ in graders),
        endpoint=with_limits(endpoint, request, concurrency=concurrency),
        files=samples.files,
        line=samples.line,
        num_samples=samples.count,
        num_generations=_num_generations(request, job, rollout),
        concurrency=concurrency,
        context=context_of(job),
        envs=all_envs,
        tolerance=samples.tolerance,
        faults=faults,
        warnings=samples.warnings,
        faas=faas,
        notes=(
            *notes,
            *(faas.notes if faas else ()),
            *notes_on_rollouts_at_once(asked, rollout),
            *notes_on_faults(faults),
            *samples.notes,
            *(job.warnings if job else ()),
        ),
    )


def faults_of(request: PluginTestRequest) -> FaultPlan | None:
    """Return what ``--inject`` asks for. Raises `ConfigurationError`."""
    if request.inject is None:
        return None
    return FaultPlan(parse_faults(request.inject), seed=request.seed or 0)


def notes_on_faults(faults: FaultPlan | None) -> tuple[str, ...]:
    """Say what is injected."""
    return (f"faults are injected: {described(faults.faults)}",) if faults else ()


def check_model(endpoint: EndpointSpec, rollout: LoadedPlugin) -> None:
    """Refuse a built-in rollout, which names no model, on an endpoint that has none either."""
    if endpoint.base_url and not endpoint.model and rollout.reference == DEFAULT_ROLLOUT:
        raise UsageError(
            f"the endpoint {endpoint.name!r} needs a model: the built-in rollout names none",
            hint="name it with --model MODEL, or as `model` in the endpoint's definition",
        )


def _num_generations(request: PluginTestRequest, job: Job | None, rollout: LoadedPlugin) -> int:
    """Rollouts of each sample: a group rollout is called with what the job says (GROUP-04)."""
    makes_groups = rollout.plugin.kind is PluginKind.GROUP_ROLLOUT
    of_job = job.num_generations if job and makes_groups else None
    return request.num_generations or of_job or 1


def serve_ark_sdk(request: PluginTestRequest) -> tuple[str, ...]:
    """Let ``import ark_sdk`` find what the request says; return what there is to say about it."""
    if request.uses_real_ark_sdk:
        ark_sdk.uninstall()
        return ()
    ark_sdk.install()
    namesake = ark_sdk.installed_namesake()
    if namesake is None:
        return ()
    return (f"this environment has {namesake}; arkdev's own names are used (--real-ark-sdk: not)",)


def context_of(job: Job | None) -> PluginContext:
    """Return what plugins are told of the job."""
    if job is None:
        return PluginContext(phase="train")
    return PluginContext(
        foundation_model_name=job.model_name or job.custom_model_id or "",
        foundation_model_version=job.model_version or "",
        customization_type=job.customization_type.value,
        phase="train",
    )


def envs_of_run(envs: Sequence[Mapping[str, str]], faas: FaasPlan | None) -> dict[str, str]:
    """Return the variables of a run's plugins. Raises what `joined_envs` raises."""
    return joined_envs(envs) if faas is None else envs_of_all(envs)


def joined_envs(envs: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Join the variables of a job's plugins. Raises `JobError` where two differ."""
    joined: dict[str, str] = {}
    for mapping in envs:
        for name, value in mapping.items():
            if joined.setdefault(name, value) != value:
                raise JobError(
                    f"two plugins of the job set {name} to different values; in one process they "
                    "share the environment",
                    hint="give both the same value, or test them one at a time with --grader",
                )
    return joined
