"""What `arkdev test grader` would grade, with what: resolved and checked before it starts."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from arkdev.endpoints.spec import EndpointSpec
from arkdev.errors import JobError, RunError, UsageError
from arkdev.flows.environment import (
    environment,
    expect_judge,
    judge_environment,
    resolved_endpoint,
    secrets_of,
)
from arkdev.flows.named_plugins import named_graders
from arkdev.flows.regrading_plan import recorded_run
from arkdev.flows.test_plan import context_of, joined_envs, serve_ark_sdk
from arkdev.flows.test_request import PluginTestRequest
from arkdev.harness.grading import Grader
from arkdev.harness.hidden_tasks import current_task_hidden
from arkdev.job.job import Job
from arkdev.job.reader import read_job
from arkdev.job.workspace import Workspace, find_workspace
from arkdev.observe.plugin_output import plugin_output_to
from arkdev.observe.plugin_threads import threads_follow
from arkdev.runs.masking import masked_output
from arkdev.runs.reader import RunReader
from arkdev.runs.recorded import RecordedGroups
from arkdev.sessions.background import BackgroundLoop
from arkdev.types import PluginContext

DEFAULT_CONCURRENCY = 32
"""Gradings of groups under way at once; a grader's `request_concurrency` limits its calls too."""
DEFAULT_SAMPLES = 8
"""Samples that are attacked: each takes some fifty gradings."""


@dataclass(frozen=True)
class GraderTestRequest:
    """What the command line said; None is unset. Either `repeat` or `attacks`."""

    start: Path
    """Where to look for the workspace."""
    graders: tuple[str, ...] = ()
    """``module:function`` or ``module:function=weight``."""
    repeat: int | None = None
    attacks: bool = False
    run: str | None = None
    data: tuple[Path, ...] = ()
    limit: int | None = None
    concurrency: int | None = None
    floor: float | None = None
    reference_key: str | None = None
    seed: int = 0


@dataclass(frozen=True)
class GraderTestPlan:
    """A test of graders that can run. Either `source` or `files` says where samples are."""

    request: GraderTestRequest
    workspace: Workspace
    graders: tuple[Grader, ...]
    source: RunReader | None
    files: tuple[Path, ...]
    context: PluginContext
    endpoint: EndpointSpec
    """It only decides whether graders that call a model get a scripted one."""
    envs: Mapping[str, str]
    notes: tuple[str, ...] = ()

    @property
    def concurrency(self) -> int:
        """Gradings of groups under way at once."""
        return self.request.concurrency or DEFAULT_CONCURRENCY

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not show in anything that is written."""
        return secrets_of(self.endpoint, self.envs)

    def groups(self, *, limit: int | None = None) -> RecordedGroups:
        """Return the recorded groups. Raises `RunError` when the run has none."""
        assert self.source is not None
        return RecordedGroups(self.source, limit=limit)


class GraderTestObserver(Protocol):
    """Who is told of a test while it runs. Called on the harness's event loop."""

    def on_start(self, total: int) -> None:
        """`total` steps are to be done: samples, or groups."""
        ...

    def on_step(self) -> None:
        """One of them is done."""
        ...


def plan_grader_test(request: GraderTestRequest) -> GraderTestPlan:
    """Resolve and check. Raises `ConfigurationError` for whatever cannot be done."""
    _check(request)
    workspace = find_workspace(request.start)
    source, note = _source(request, workspace)
    flags: dict[str, Any] = dict((source.manifest.settings.get("flags") if source else {}) or {})
    if request.graders:
        flags["graders"] = list(request.graders)
    test = PluginTestRequest(start=request.start).with_flags(flags)
    notes = serve_ark_sdk(test)
    endpoint = resolved_endpoint(test, workspace)
    expect_judge(endpoint)  # before any plugin is imported
    job = read_job(workspace.root, test.job)
    named = named_graders(test, job, root=workspace.root)
    return GraderTestPlan(
        request=request,
        workspace=workspace,
        graders=tuple(grader for grader, _ in named),
        source=source,
        files=() if source else _files(request, job),
        context=context_of(job),
        endpoint=endpoint,
        envs=joined_envs([envs for _, envs in named]),
        notes=(*notes, *note),
    )


@asynccontextmanager
async def graders_environment(
    plan: GraderTestPlan,
) -> AsyncIterator[Any | None]:
    """Give graders what they have in a test: their variables and a judge's model.

    What they print and log is dropped: they are called hundreds of times. Yields the scripted
    judge, None where graders ask another model.
    """
    async with AsyncExitStack() as stack:
        stack.enter_context(current_task_hidden())
        # once here, not inside the first gradings: importing openai takes about a second
        import_module("arkdev.plugin.clients").prepare()
        stack.enter_context(
            plugin_output_to(_drop, mask=partial(masked_output, secrets=plan.secrets))
        )
        stack.enter_context(threads_follow())
        stack.enter_context(environment(plan.envs))
        loop = stack.enter_context(_background_loop())
        yield await stack.enter_async_context(judge_environment(plan.endpoint, loop))


def _drop(_line: object) -> None:
    pass


@contextmanager
def _background_loop() -> Iterator[asyncio.AbstractEventLoop]:
    background = BackgroundLoop()
    background.start()
    try:
        yield background.loop
    finally:
        background.stop()


def _check(request: GraderTestRequest) -> None:
    if request.attacks == (request.repeat is not None):
        raise UsageError(
            "--repeat and --attack are two tests" if request.attacks else "nothing to do",
            hint="`arkdev test grader --repeat 5` measures a grader's noise, `arkdev test grader "
            "--attack` tries to get a reward that is not deserved",
        )
    if request.run is not None and request.data:
        raise UsageError("--run and --data both say where the samples are", hint="name one")
    if request.floor is not None and not math.isfinite(request.floor):
        raise UsageError(f"--floor is {request.floor}; a finite number is expected")
    if request.repeat is not None and request.data:
        raise UsageError(
            "--repeat grades the trajectories of a recorded run; --data has samples alone",
            hint="record a run with `arkdev test plugin --data FILE --n-sample 8`",
        )


def _source(
    request: GraderTestRequest, workspace: Workspace
) -> tuple[RunReader | None, tuple[str, ...]]:
    """Return the run to take samples from; attacks do without one."""
    if request.data:
        return None, ()
    runs = workspace.root / "runs"
    if request.run is not None or request.repeat is not None:
        try:
            return recorded_run(runs, request.run or "latest"), ()
        except RunError as error:
            if request.run is None:
                error.hint = "`arkdev test plugin --n-sample 8` records one"
            raise
    try:
        reader = recorded_run(runs, "latest")
        RecordedGroups(reader)
    except RunError:
        return None, (
            "no recorded test of plugins: samples come from the job's data, and a reply is the "
            "only thing that a trajectory has beside its prompt (`arkdev test plugin` records one)",
        )
    return reader, ()


def _files(request: GraderTestRequest, job: Job | None) -> tuple[Path, ...]:
    if request.data:
        return request.data
    if job is not None and job.training_files:
        return job.training_files
    if job is not None:
        raise JobError(
            "the job's training data is on the platform, not in local files",
            where=str(job.source),
            hint="name a file with --data FILE, or a recorded run with --run RUN",
        )
    raise UsageError("no samples", hint="name a file with --data FILE, or a run with --run RUN")
