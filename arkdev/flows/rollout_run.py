"""The path of a sample, which `test`, `debug` and `train` share: services, run folder, engines.

Everything that surrounds rollouts while they run is opened here, once for a run; what is run, and
in which order, is the flow's own. An engine serves one phase of one step: plugins are told of both
in their context.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from arkdev.endpoints.endpoint import Endpoint
from arkdev.errors import EndpointError, PolicyEngineError
from arkdev.flows.environment import environment, judge_environment
from arkdev.flows.faas import Told, functions_host
from arkdev.flows.faas_instances import instance_source
from arkdev.flows.fingerprints import versions
from arkdev.flows.injection import traffic_faults, with_faults
from arkdev.flows.recording import PluginTestObserver, Recorder
from arkdev.flows.services import Services, running_services
from arkdev.flows.stalls import stalls_watched
from arkdev.flows.taping import Taping, taping
from arkdev.flows.test_plan import PluginTestPlan
from arkdev.flows.tracing import Tracing, traced, traffic_rules
from arkdev.flows.traffic import plugin_traffic
from arkdev.harness.engine import Engine, EngineSettings
from arkdev.harness.functions_report import functions_of
from arkdev.harness.garbage import rare_garbage_collection
from arkdev.harness.grading import GroupGrading
from arkdev.harness.hidden_tasks import current_task_hidden
from arkdev.harness.rollouts import FinishedRollout, RolloutRunner, SampleToRun
from arkdev.harness.services import ServiceMeter
from arkdev.harness.statistics import RunStatistics
from arkdev.harness.summary import Summary
from arkdev.observe.client_meter import ClientMeter
from arkdev.observe.plugin_output import plugin_output_to
from arkdev.observe.plugin_threads import threads_follow
from arkdev.plugin.host import MeasuredHost
from arkdev.runs.masking import masked_value
from arkdev.runs.reader import RunReader
from arkdev.runs.records import TEST, TRAIN, GroupRecord
from arkdev.runs.resume import resume_run
from arkdev.runs.writer import RunWriter
from arkdev.sessions.retries import RetryPolicy
from arkdev.sessions.session import Session
from arkdev.types import PluginContext

_NO_MORE: Mapping[str, Any] = {}


@dataclass(frozen=True)
class Recorded:
    """Who else is told of what has been written down and counted."""

    on_rollout: Callable[[FinishedRollout], None] = lambda _: None
    on_group: Callable[[GroupRecord], None] = lambda _: None


_NOTHING = Recorded()


@dataclass(frozen=True)
class RolloutRun:
    """A run that is open: its folder, and what engines need."""

    plan: PluginTestPlan
    folder: RunWriter
    statistics: RunStatistics
    validation: RunStatistics | None
    """Of the rounds on the validation set; None where the run has none."""
    observer: PluginTestObserver
    services: Services
    host: MeasuredHost
    tape: Taping
    clients: ClientMeter
    """Model clients that plugins build for themselves."""
    tracing: Tracing | None
    """None: nothing is traced."""
    judge: Any | None
    """The scripted model that graders call; None when they call another."""

    @property
    def num_judge_calls(self) -> int:
        """Model calls of plugins that went to the scripted model."""
        return self.judge.num_chat_calls if self.judge is not None else 0

    async def run(
        self,
        context: PluginContext,
        samples: Iterable[SampleToRun],
        *,
        num_generations: int,
        then: Recorded = _NOTHING,
    ) -> None:
        """Run samples whose plugins are given `context`, and write down what finishes.

        Raises `EndpointError` when the endpoint refuses the first calls or answers no more.
        """
        recorder = self.recorder(context.phase, context.current_training_step)

        def on_rollout(finished: FinishedRollout) -> None:
            then.on_rollout(recorder.on_rollout(finished))

        def on_group(record: GroupRecord) -> None:
            then.on_group(recorder.on_group(record))

        plan, services, tape = self.plan, self.services, self.tape
        host = tape.host_of(with_faults(self.host, plan))
        rollouts = RolloutRunner(
            plan.rollout,
            host=host,
            door=services.door,
            new_session=lambda identity, sampling: Session(
                identity, sampling=sampling, services=tape.services_of(identity, services.sessions)
            ),
            context=context,
            on_attempt=self.observer.on_attempt,
        )
        engine = Engine(
            rollouts,
            GroupGrading(plan.graders, host=host, context=context),
            EngineSettings(
                num_generations=num_generations,
                concurrency=plan.concurrency,
                run_seed=plan.request.seed or 0,
            ),
            on_rollout=on_rollout,
            on_group=tape.then(on_group),
        )
        await services.endpoint.run(engine.run(recorder.begun(tape.begun(samples))))

    def recorder(self, phase: str, step: int | None) -> Recorder:
        """Return what writes down and counts a phase of a step."""
        is_validation = phase == TEST and self.validation is not None
        statistics = self.validation if is_validation else self.statistics
        assert statistics is not None
        return Recorder(
            self.folder,
            statistics,
            self.observer,
            phase=TEST if is_validation else TRAIN,
            step=step,
        )

    def take_over(self, then: Recorded) -> None:
        """Count what a resumed run has behind it, and tell `then` of it."""
        kept = RunReader(self.folder.folder)
        for trajectory in kept.trajectories():
            self.recorder(trajectory.phase, None).statistics.add_trajectory(trajectory)
            finished = FinishedRollout(trajectory)
            self.observer.on_rollout(finished)
            then.on_rollout(finished)
        for group in kept.groups():
            self.recorder(group.phase, None).statistics.add_group(group)
            self.observer.on_group(group)
            then.on_group(group)

    async def finish(
        self, status: str = "finished", *, more: Mapping[str, Any] = _NO_MORE
    ) -> Summary:
        """Sum up, and write down how the run ended; `more` goes beside the summary."""
        await self.host.close()  # so that all instances have been written down
        limits = await self.services.limits.report(self.host)
        self.folder.event("limits", **limits.to_json())
        summary = replace(
            self.statistics.summary(),
            limits=None if limits.is_empty else limits,
            functions=functions_of(RunReader(self.folder.folder)) if self.plan.faas else (),
        )
        summary = masked_value(summary, secrets=self.plan.secrets)
        self.folder.event("clients", built=self.clients.num_built, cpu_s=self.clients.total_s)
        self.folder.event("judge", calls=self.num_judge_calls)
        self.folder.finish(status, {**summary.to_json(), **more})
        return summary


@asynccontextmanager
async def rollout_run(
    plan: PluginTestPlan,
    observer: PluginTestObserver,
    *,
    retries: RetryPolicy | None = None,
    validation: RunStatistics | None = None,
    endpoint: Endpoint | None = None,
) -> AsyncIterator[RolloutRun]:
    """Open a run: all that `plan` asks for runs or watches until the block ends.

    `endpoint` is one that is open already, in place of the plan's.

    Raises `ConfigurationError` when the endpoint cannot be opened, and `EndpointUnreachableError`
    when nothing listens there (no run folder is made then). When the block raises, the run folder
    says "stopped" for an `EndpointError` or a `PolicyEngineError`, else "interrupted", unless the
    block has finished it.
    """
    called = ServiceMeter()
    statistics = RunStatistics(
        plan.num_generations,
        success_threshold=plan.success_threshold,
        services=called.summary,
        grader_places={grader.name: grader.loaded.plugin.place for grader in plan.graders},
    )
    clients = ClientMeter()
    async with AsyncExitStack() as stack:
        stack.enter_context(current_task_hidden())
        services = await stack.enter_async_context(
            running_services(plan, observer, retries or RetryPolicy(), endpoint=endpoint)
        )
        source = await stack.enter_async_context(
            instance_source(plan.faas, say=observer.on_progress)
        )
        folder = open_run(plan)
        observer.on_start(plan, folder.folder)
        log = Recorder(folder, statistics, observer).log
        stack.enter_context(plugin_output_to(log, mask=folder.masked_output))
        stack.enter_context(threads_follow())
        stack.enter_context(environment(plan.envs))
        judge = await stack.enter_async_context(
            judge_environment(plan.endpoint, services.sessions.blocking_loop)
        )
        # once here, not inside the first rollouts: importing openai takes about a second
        import_module("arkdev.plugin.clients").prepare()
        tracing = stack.enter_context(
            traced(
                folder,
                writes_file=plan.request.trace,
                secrets=plan.secrets,
                own_url=services.sessions.gateway_url,
                warn=observer.on_warning,
            )
        )
        stack.enter_context(clients.running())
        stack.enter_context(
            plugin_traffic(
                called,
                *traffic_rules(tracing),
                *services.limits.rules,
                *traffic_faults(plan, loop=services.sessions.blocking_loop),
                gateway_url=services.sessions.gateway_url,
                judge=judge,
            )
        )
        stack.enter_context(rare_garbage_collection())
        stack.enter_context(stalls_watched(plan, statistics, observer, services))
        tape = stack.enter_context(taping(plan, services.sessions, judge=judge))
        try:
            host = await stack.enter_async_context(
                functions_host(
                    source,
                    gateway_url=services.sessions.gateway_url,
                    has_judge=judge is not None,
                    told=Told(folder, log, observer.on_progress),
                )
            )
            yield RolloutRun(
                plan=plan,
                folder=folder,
                statistics=statistics,
                validation=validation,
                observer=observer,
                services=services,
                host=host,
                tape=tape,
                clients=clients,
                tracing=tracing,
                judge=judge,
            )
        except (EndpointError, PolicyEngineError) as error:
            folder.event("stopped", reason=error.message)
            folder.finish("stopped", statistics.summary().to_json())
            raise
        except BaseException:
            if folder.manifest.finished_at is None:
                folder.finish("interrupted", statistics.summary().to_json())
            raise


def open_run(plan: PluginTestPlan) -> RunWriter:
    """Make the run's folder, or open the one that is gone on with."""
    if plan.resumed is not None:
        return resume_run(
            plan.resumed,
            secrets=plan.secrets,
            from_step=plan.resumed_step,
            concurrency=plan.concurrency,
            versions=versions(),
        )
    return RunWriter.create(
        plan.workspace.root / "runs",
        kind=plan.kind,
        settings=plan.settings(),
        hashes=plan.hashes(),
        versions=versions(),
        folder=plan.request.out,
        secrets=plan.secrets,
    )
