"""`arkdev test plugin`: samples through a rollout and graders, written down, and summed up."""

from __future__ import annotations

import asyncio
import gc
import json
import platform
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol, TypeVar

from arkdev import __version__
from arkdev.endpoints.endpoint import Endpoint
from arkdev.endpoints.registry import open_endpoint
from arkdev.errors import EndpointError, ExitCode
from arkdev.flows.environment import environment, judge_environment
from arkdev.flows.refusals import RefusalWatch
from arkdev.flows.test_plan import PluginTestPlan
from arkdev.harness.attempts import Outcome as AttemptOutcome
from arkdev.harness.engine import Engine, EngineSettings
from arkdev.harness.grading import GroupGrading
from arkdev.harness.hidden_tasks import current_task_hidden
from arkdev.harness.rollouts import FinishedRollout, RolloutRunner, SampleToRun, SessionDoor
from arkdev.harness.statistics import RunStatistics
from arkdev.harness.summary import Summary
from arkdev.observe.client_meter import ClientMeter
from arkdev.observe.plugin_output import plugin_output_to
from arkdev.plugin.host import InProcessHost
from arkdev.runs.masking import masked_value
from arkdev.runs.reader import RunReader
from arkdev.runs.records import Attempt, GraderRecord, GroupRecord, TokenRecord, Verdict
from arkdev.runs.resume import resume_run
from arkdev.runs.writer import RunWriter
from arkdev.sessions.background import BackgroundLoop
from arkdev.sessions.session import AttemptIdentity, RetryPolicy, Session, SessionServices

_HasError = TypeVar("_HasError", Attempt, GraderRecord, GroupRecord)

_MODEL_CALL_TIMEOUT_S = 600.0
"""As the platform's own client waits for an answer."""


class PluginTestObserver(Protocol):
    """Who is told of a test while it runs. Called on the harness's event loop, except `on_turn`."""

    def on_start(self, plan: PluginTestPlan, folder: Path) -> None:
        """The run folder exists; nothing has run yet."""
        ...

    def on_turn(self, session: Session) -> None:
        """A model call of the session was recorded; from whatever thread made it."""
        ...

    def on_log(self, line: str) -> None:
        """A plugin logged or printed a line; from whatever thread it did."""
        ...

    def on_attempt(self, identity: AttemptIdentity, outcome: AttemptOutcome[Any]) -> None:
        """An attempt of a rollout ended; another one may follow."""
        ...

    def on_rollout(self, finished: FinishedRollout) -> None:
        """A rollout is finished and on disk."""
        ...

    def on_group(self, record: GroupRecord) -> None:
        """A group is graded or dropped, and on disk."""
        ...


@dataclass(frozen=True)
class PluginTestOutcome:
    """What a test came to."""

    summary: Summary
    folder: Path
    exit_code: ExitCode
    clients_built: int
    client_cost_s: float
    """CPU seconds of one client that the plugins built for themselves; 0 when there is none."""
    judge_calls: int
    """Model calls of plugins that went to the scripted model, for want of an ARK_BASE_URL."""


async def run_test(
    plan: PluginTestPlan, observer: PluginTestObserver, *, retries: RetryPolicy | None = None
) -> PluginTestOutcome:
    """Run a test to its end. What plugins do wrong is in the outcome, not an exception.

    Raises `ConfigurationError` when the endpoint cannot be opened, `EndpointUnreachableError` when
    nothing listens there (no run folder is made then), and `EndpointError` when it refuses the
    first calls for their key or model, or answers no more ("stopped" in the run folder). When it
    is cancelled the run folder says "interrupted".
    """
    statistics = RunStatistics(plan.num_generations, success_threshold=plan.success_threshold)
    meter = ClientMeter()
    async with AsyncExitStack() as stack:
        stack.enter_context(current_task_hidden())
        services = await stack.enter_async_context(
            _running_services(plan, observer, retries or RetryPolicy())
        )
        run = _open_run(plan)
        observer.on_start(plan, run.folder)
        recorder = _Recorder(run, statistics, observer)
        stack.enter_context(plugin_output_to(recorder.log))
        stack.enter_context(environment(plan.envs))
        judge = await stack.enter_async_context(
            judge_environment(plan.endpoint, services.sessions.blocking_loop)
        )
        # once here, not inside the first rollouts: importing openai takes about a second
        import_module("arkdev.plugin.clients").prepare()
        stack.enter_context(meter.running())
        stack.enter_context(_rare_garbage_collection())
        engine = _engine(plan, services, recorder)
        finished = _take_over(run, statistics, observer) if plan.resumed else frozenset()
        samples = (sample for sample in plan.samples() if sample.index not in finished)
        try:
            await services.endpoint.run(engine.run(recorder.begun(samples)))
        except EndpointError as error:
            run.event("stopped", reason=error.message)
            run.finish("stopped", statistics.summary().to_json())
            raise
        except BaseException:
            run.finish("interrupted", statistics.summary().to_json())
            raise
        summary = masked_value(statistics.summary(), secrets=plan.secrets)
        run.event("clients", built=meter.num_built, cpu_s=meter.total_s)
        num_judge_calls = judge.num_chat_calls if judge is not None else 0
        run.event("judge", calls=num_judge_calls)
        run.finish("finished", summary.to_json())
    return PluginTestOutcome(
        summary=summary,
        folder=run.folder,
        exit_code=exit_code_of(summary),
        clients_built=meter.num_built,
        client_cost_s=meter.total_s / meter.num_built if meter.num_built else 0.0,
        judge_calls=num_judge_calls,
    )


def exit_code_of(summary: Summary) -> ExitCode:
    """Return 0 when nothing failed (discards alone are good), 4 when no model call got through."""
    verdicts = summary.verdicts
    failed = verdicts.get(Verdict.FAILURE, 0) + verdicts.get(Verdict.RETRY, 0)
    if failed and failed == summary.num_rollouts and _all_unreachable(summary):
        return ExitCode.UNREACHABLE
    # a grader that gave up after its retries drops the group without failing a rollout
    gave_up = summary.groups.verdicts.get(Verdict.RETRY, 0) if summary.groups else 0
    if failed or gave_up or summary.num_ungraded or summary.would_fail_job:
        return ExitCode.SOME_FAILED
    return ExitCode.OK


def _all_unreachable(summary: Summary) -> bool:
    words = ("EndpointUnreachableError", "APIConnectionError", "APITimeoutError")
    errors = [error for error in summary.errors if error.source == "rollout"]
    return bool(errors) and all(any(w in error.message for w in words) for error in errors)


@dataclass(frozen=True)
class _Services:
    """What runs beside the engine."""

    sessions: SessionServices
    door: SessionDoor
    endpoint: RefusalWatch


@dataclass(frozen=True)
class _Recorder:
    """Writes what finishes, then counts it, then tells the observer.

    Error texts, which the report repeats, are masked first: a plugin may put its key into them.
    """

    run: RunWriter
    statistics: RunStatistics
    observer: PluginTestObserver
    extras: dict[int, Any] = field(default_factory=dict)
    """Of the samples whose groups are under way."""

    def begun(self, samples: Iterable[SampleToRun]) -> Iterator[SampleToRun]:
        """Pass samples on; keep what their records will want of them."""
        for sample in samples:
            self.extras[sample.index] = json.loads(sample.line).get("extra")
            yield sample

    def log(self, line: str) -> None:
        self.run.log_line(line)
        self.observer.on_log(line)

    def on_rollout(self, finished: FinishedRollout) -> None:
        if any(attempt.error for attempt in finished.record.attempts):
            attempts = tuple(self._masked(attempt) for attempt in finished.record.attempts)
            finished = replace(finished, record=replace(finished.record, attempts=attempts))
        finished = replace(finished, record=self.run.trajectory(finished.record))
        if finished.evidence is not None:
            tokens = asdict(finished.evidence)
            self.run.tokens(TokenRecord(finished.record.trajectory_id, **tokens))
        self.statistics.add_trajectory(finished.record)
        self.observer.on_rollout(finished)

    def on_group(self, record: GroupRecord) -> None:
        if record.error or any(grader.error for grader in record.graders):
            graders = tuple(self._masked(grader) for grader in record.graders)
            record = replace(self._masked(record), graders=graders)
        record = replace(record, sample_extra=self.extras.pop(record.sample_index, None))
        self.run.group(record)
        self.statistics.add_group(record)
        self.observer.on_group(record)

    def _masked(self, record: _HasError) -> _HasError:
        return replace(record, error=self.run.masked(record.error)) if record.error else record


@asynccontextmanager
async def _running_services(
    plan: PluginTestPlan, observer: PluginTestObserver, retries: RetryPolicy
) -> AsyncIterator[_Services]:
    """Run what the sessions share: the endpoint, the gateway and the loop of blocking calls."""
    endpoint = RefusalWatch(
        open_endpoint(
            plan.endpoint,
            max_in_flight=plan.concurrency,
            timeout_s=_MODEL_CALL_TIMEOUT_S,
            skill=plan.request.skill,
            script=plan.request.script,
        ),
        sends_per_call=retries.max_retries + 1,
    )
    background = BackgroundLoop()
    background.start()
    gateway = import_module("arkdev.sessions.gateway").Gateway()
    try:
        await endpoint.check_reachable()
        await background.call(gateway.start())
        sessions = SessionServices(
            endpoint=endpoint,
            gateway_url=gateway.url,
            blocking_loop=background.loop,
            retries=retries,
            on_turn=observer.on_turn,
        )
        yield _Services(sessions=sessions, door=gateway, endpoint=endpoint)
    finally:
        await asyncio.shield(_closed(gateway, background, endpoint))


async def _closed(gateway: Any, background: BackgroundLoop, endpoint: Endpoint) -> None:
    await background.call(gateway.stop())
    await endpoint.close()  # before its connections' loop ends
    background.stop()


def _engine(plan: PluginTestPlan, services: _Services, recorder: _Recorder) -> Engine:
    host = InProcessHost()
    rollouts = RolloutRunner(
        plan.rollout,
        host=host,
        door=services.door,
        new_session=lambda identity, sampling: Session(
            identity, sampling=sampling, services=services.sessions
        ),
        context=plan.context,
        on_attempt=recorder.observer.on_attempt,
    )
    settings = EngineSettings(
        num_generations=plan.num_generations,
        concurrency=plan.concurrency,
        run_seed=plan.request.seed or 0,
    )
    return Engine(
        rollouts,
        GroupGrading(plan.graders, host=host, context=plan.context),
        settings,
        on_rollout=recorder.on_rollout,
        on_group=recorder.on_group,
    )


def _take_over(
    run: RunWriter, statistics: RunStatistics, observer: PluginTestObserver
) -> frozenset[int]:
    """Count what a resumed run has behind it; return the indices of its finished samples."""
    kept = RunReader(run.folder)
    for trajectory in kept.trajectories():
        statistics.add_trajectory(trajectory)
        observer.on_rollout(FinishedRollout(trajectory))
    samples = set()
    for group in kept.groups():
        samples.add(group.sample_index)
        statistics.add_group(group)
        observer.on_group(group)
    return frozenset(samples)


def _open_run(plan: PluginTestPlan) -> RunWriter:
    if plan.resumed is not None:
        return resume_run(
            plan.resumed, secrets=plan.secrets, concurrency=plan.concurrency, versions=_versions()
        )
    return RunWriter.create(
        plan.workspace.root / "runs",
        kind="test",
        settings=plan.settings(),
        hashes=plan.hashes(),
        versions=_versions(),
        folder=plan.request.out,
        secrets=plan.secrets,
    )


def _versions() -> dict[str, str]:
    found = {"arkdev": __version__, "python": platform.python_version()}
    for name in ("openai", "pydantic", "aiohttp", "volcengine-ark-runtime"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


@contextmanager
def _rare_garbage_collection() -> Iterator[None]:
    """Look for cycles rarely, and never among what was imported.

    A full collection stops every rollout for as long as it takes to walk all imported modules;
    with hundreds of rollouts in flight that was a quarter of the time.
    """
    threshold = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(1_000, 10, 1000)
    try:
        yield
    finally:
        gc.set_threshold(*threshold)
        gc.unfreeze()
