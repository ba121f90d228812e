"""What `arkdev train` would run on this machine: a job, resolved and checked before it starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any, ClassVar

from arkdev.backends.local.model_files import ModelFiles, resolve_model
from arkdev.backends.local.packages import require_packages
from arkdev.backends.local.settings import Correction, LoraSettings, UpdateSettings
from arkdev.endpoints.registry import LOCAL
from arkdev.errors import JobError, UsageError
from arkdev.flows.debug_plan import DebugPlan, composed
from arkdev.flows.local_problems import local_problems, place_of
from arkdev.flows.resume import check_unchanged, find_resumable
from arkdev.flows.test_plan import serve_ark_sdk
from arkdev.flows.test_request import check_flags, shown
from arkdev.flows.train_request import (
    DEFAULT_MODEL,
    VLLM,
    TrainRequest,
    check_engine,
    hyperparameter_flags,
)
from arkdev.harness.sampling import DOCUMENTED_DEFAULTS
from arkdev.harness.stalls import stalls_of_summary
from arkdev.job.capabilities import BackendName
from arkdev.job.effects import require_supported
from arkdev.job.job import Job
from arkdev.job.local_values import OWN_DEFAULTS, LocalJob, LocalValue, local_job
from arkdev.job.methods import CustomizationType
from arkdev.job.problems import make_error
from arkdev.job.reader import read_job, require_job_file
from arkdev.job.workspace import Workspace, find_workspace
from arkdev.observe.metric_sinks.sinks import check_installed
from arkdev.runs.writer import recorded_settings

_MOST_AT_ONCE = 64
"""Rollouts at once where nothing is asked for: a larger batch of the sampler gains little."""
_SAMPLED = ("max_new_tokens", "temperature", "top_p", "top_k")
"""Flags of these win over the samples' own (decision 12)."""


@dataclass(frozen=True)
class TrainPlan(DebugPlan):
    """A training that can run. `the_job` has the values of this machine."""

    kind: ClassVar[str] = "train"

    model: ModelFiles = field(kw_only=True)
    engine: str = "torch"
    policy_lag: int = 0
    values: Mapping[str, LocalValue] = field(default_factory=dict)
    """What is not the job's own."""

    @property
    def train(self) -> TrainRequest:
        """What was asked for."""
        assert isinstance(self.request, TrainRequest)
        return self.request

    @property
    def update(self) -> UpdateSettings:
        """How a batch becomes an update."""
        values = dict(self.the_job.hyperparameters)
        return UpdateSettings.from_hyperparameters(
            {**values, "temperature": self.temperature, "num_steps": len(self.steps)}
        )

    @property
    def lora(self) -> LoraSettings | None:
        """The adapter that is trained; None: all weights are."""
        if self.the_job.customization_type is not CustomizationType.GRPOLoRA:
            return None
        values = self.the_job.hyperparameters
        rank, alpha = values.get("lora_rank"), values.get("lora_alpha")
        usual = LoraSettings()
        return LoraSettings(
            rank if isinstance(rank, int) else usual.rank,
            alpha if isinstance(alpha, (int, float)) else usual.alpha,
        )

    @property
    def temperature(self) -> float:
        """What all answers are sampled with."""
        return _temperature(self.the_job, self.train)

    @property
    def is_deterministic(self) -> bool:
        """Whether answers must not depend on company: a seed is given to have a run again."""
        is_seeded = self.request.seed is not None and self.engine != VLLM
        return self.train.deterministic or is_seeded

    def check_temperatures(self) -> None:
        """Raise `JobError` for a sample of any step that is sampled differently."""
        assert self.data is not None
        # an epoch has every sample: later ones have no others
        first_epoch = islice(self.steps.batches(), self.steps.steps_per_epoch)
        for index in sorted({i for batch in first_epoch for i in batch.indices}):
            own = self.training_sample(index).sampling["temperature"]
            if own != self.temperature:
                raise JobError(
                    f"sample {index} of the training set has temperature {own}, the others "
                    f"{self.temperature}: a batch is trained at one temperature",
                    where=self.data.training[index].where,
                    hint="take it out of the sample, or say --set temperature=T",
                )

    def settings(self) -> dict[str, Any]:
        """Return what the run folder keeps of this plan."""
        return {
            **super().settings(),
            "job_name": self.the_job.config.name,
            "model": {"name": self.model.name, "folder": shown(self.model.folder)},
            "engine": self.engine,
            "policy_lag": self.policy_lag,
            "deterministic": self.is_deterministic,
            "hyperparameters": dict(self.the_job.hyperparameters),
        }


FindModel = Callable[[str], ModelFiles]


def plan_train(
    request: TrainRequest, *, job: Job | None = None, find_model: FindModel | None = None
) -> TrainPlan:
    """Resolve and check a training of the workspace's job, or of `job`.

    `find_model` returns the model of a name; None looks for real ones, and for what training needs.
    Raises `ConfigurationError` for whatever cannot run, a `RunError` for a run that cannot be gone
    on with.
    """
    workspace = find_workspace(request.start, job=request.job)
    if find_model is None:
        require_packages(purpose="training on this machine")
        find_model = partial(resolve_model, runs=workspace.root / "runs")
    if request.resume is None:
        return _resolved(request, workspace, job, find_model)
    if request.out is not None:
        raise UsageError("--out is for a new run; a resumed one goes on in its own folder")
    reader = find_resumable(workspace.root / "runs", request.resume, kind=TrainPlan.kind)
    again = request.with_flags(reader.manifest.settings.get("flags") or {})
    assert isinstance(again, TrainRequest)
    plan = _resolved(again, workspace, job, find_model)
    settings = recorded_settings(plan.settings(), secrets=plan.secrets)
    check_unchanged(reader.manifest, settings=settings, hashes=plan.hashes())
    return replace(
        plan,
        resumed=reader.folder,
        earlier_stalls=stalls_of_summary(reader.manifest.summary),
    )


def _resolved(
    request: TrainRequest, workspace: Workspace, job: Job | None, find_model: FindModel
) -> TrainPlan:
    check_flags(request)
    check_engine(request)
    check_installed(request.log_to)
    notes = list(serve_ark_sdk(request))
    if job is None:
        require_job_file(workspace.root, request.job)
        job = read_job(workspace.root, request.job)
        assert job is not None  # there is a file
    if not job.customization_type.is_grpo:
        require_supported(job, BackendName.LOCAL)
    flags = hyperparameter_flags(request)
    local = local_job(job, workspace, flags=flags)
    require_supported(job, BackendName.LOCAL, local)
    _check_values(local, request)
    model = find_model(request.model or DEFAULT_MODEL)
    notes += _notes(job, local, model, is_asked_for=request.model is not None)
    # what the flags say of sizes is in the job now
    plain = replace(
        request,
        steps=None,
        batch_size=None,
        num_generations=None,
        sampling={name: local.values[name].value for name in _SAMPLED if name in flags},
        concurrency=request.concurrency or _concurrency(local.job),
    )
    plan = composed(
        TrainPlan,
        plain,
        workspace,
        job=local.job,
        notes=notes,
        endpoint=replace(LOCAL, model=model.name),
        model=model,
        engine=request.engine or "torch",
        policy_lag=request.policy_lag or 0,
        values=local.values,
    )
    plan = replace(plan, request=replace(request, sampling=plain.sampling))
    plan.check_temperatures()
    return plan


def _concurrency(job: Job) -> int | None:
    if job.batch_size is None or job.num_generations is None:
        return None
    return min(_MOST_AT_ONCE, job.batch_size * job.num_generations)


def _temperature(job: Job, request: TrainRequest) -> float:
    sources: tuple[Mapping[str, Any], ...] = (
        request.sampling,
        job.hyperparameters,
        DOCUMENTED_DEFAULTS,
    )
    return float(next(source["temperature"] for source in sources if "temperature" in source))


def _check_values(local: LocalJob, request: TrainRequest) -> None:
    """Refuse what would have no effect, or cannot be meant."""
    problems = local_problems(local)
    if problems:
        raise make_error(JobError, problems)
    given = local.job.hyperparameters.get("correction")
    if request.policy_lag and given == Correction.NONE:
        raise JobError(
            'correction is "none", but with a policy_lag the weights that answer are not those '
            "that are trained",
            where=place_of(local, "correction"),
            hint="choose truncated or masked, or leave --policy-lag out",
        )


def _notes(job: Job, local: LocalJob, model: ModelFiles, *, is_asked_for: bool) -> list[str]:
    named = job.model_name or job.custom_model_id
    more = "" if is_asked_for else "; --model PATH trains another"
    notes = [f"{model.source} stands for {named}{more}", *local.notes]
    if "lr" not in local.job.hyperparameters:
        lr = OWN_DEFAULTS["lr"]
        notes.append(f"the job gives no lr, whose default is not known: {lr} here")
    return notes
