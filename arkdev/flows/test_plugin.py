"""`arkdev test plugin`: samples through a rollout and graders, written down, and summed up."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

from arkdev.errors import EndpointError, ExitCode
from arkdev.flows.environment import environment, judge_environment
from arkdev.flows.fingerprints import versions
from arkdev.flows.injection import notes_on_effect, traffic_faults, with_faults
from arkdev.flows.recording import PluginTestObserver, Recorder
from arkdev.flows.services import Services, running_services
from arkdev.flows.stalls import stalls_watched
from arkdev.flows.taping import Taping, taping
from arkdev.flows.test_plan import PluginTestPlan
from arkdev.flows.test_request import PluginTestRequest
from arkdev.flows.tracing import Tracing, traced, traffic_rules
from arkdev.flows.traffic import plugin_traffic
from arkdev.harness.engine import Engine, EngineSettings
from arkdev.harness.garbage import rare_garbage_collection
from arkdev.harness.grading import GroupGrading
from arkdev.harness.hidden_tasks import current_task_hidden
from arkdev.harness.rollouts import FinishedRollout, RolloutRunner
from arkdev.harness.services import ServiceMeter
from arkdev.harness.statistics import RunStatistics
from arkdev.harness.summary import Summary
from arkdev.harness.thresholds import (
    ThresholdResult,
    reward_mean_at_least,
    success_rate_at_least,
)
from arkdev.observe.client_meter import ClientMeter
from arkdev.observe.plugin_output import plugin_output_to
from arkdev.observe.plugin_threads import threads_follow
from arkdev.plugin.host import FunctionHost, InProcessHost
from arkdev.runs.masking import masked_value
from arkdev.runs.reader import RunReader
from arkdev.runs.records import Verdict
from arkdev.runs.resume import resume_run
from arkdev.runs.writer import RunWriter
from arkdev.sessions.faults.answers import INJECTED
from arkdev.sessions.retries import RetryPolicy
from arkdev.sessions.sends import HUNG_UP
from arkdev.sessions.session import Session


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
    thresholds: tuple[ThresholdResult, ...] = ()
    """What was asked for, met or missed."""
    notes: tuple[str, ...] = ()
    """What the test did not do although it was asked to."""
    tracing: Tracing | None = None
    """None: nothing was traced."""


async def run_test(
    plan: PluginTestPlan, observer: PluginTestObserver, *, retries: RetryPolicy | None = None
) -> PluginTestOutcome:
    """Run a test to its end. What plugins do wrong is in the outcome, not an exception.

    Raises `ConfigurationError` when the endpoint cannot be opened, `EndpointUnreachableError` when
    nothing listens there (no run folder is made then), and `EndpointError` when it refuses the
    first calls for their key or model, or answers no more ("stopped" in the run folder). When it
    is cancelled the run folder says "interrupted".
    """
    called = ServiceMeter()
    statistics = RunStatistics(
        plan.num_generations,
        success_threshold=plan.success_threshold,
        services=called.summary,
        grader_places={grader.name: grader.loaded.plugin.place for grader in plan.graders},
    )
    meter = ClientMeter()
    async with AsyncExitStack() as stack:
        stack.enter_context(current_task_hidden())
        services = await stack.enter_async_context(
            running_services(plan, observer, retries or RetryPolicy())
        )
        run = open_run(plan)
        observer.on_start(plan, run.folder)
        recorder = Recorder(run, statistics, observer)
        stack.enter_context(plugin_output_to(recorder.log, mask=run.masked_output))
        stack.enter_context(threads_follow())
        stack.enter_context(environment(plan.envs))
        judge = await stack.enter_async_context(
            judge_environment(plan.endpoint, services.sessions.blocking_loop)
        )
        # once here, not inside the first rollouts: importing openai takes about a second
        import_module("arkdev.plugin.clients").prepare()
        tracing = stack.enter_context(
            traced(
                run,
                writes_file=plan.request.trace,
                secrets=plan.secrets,
                own_url=services.sessions.gateway_url,
                warn=observer.on_warning,
            )
        )
        stack.enter_context(meter.running())
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
        host = InProcessHost()
        tape = stack.enter_context(taping(plan, services.sessions, judge=judge))
        engine = _engine(plan, services, recorder, host=host, tape=tape)
        finished = _take_over(run, statistics, observer) if plan.resumed else frozenset()
        samples = (sample for sample in plan.samples() if sample.index not in finished)
        try:
            await services.endpoint.run(engine.run(recorder.begun(tape.begun(samples))))
        except EndpointError as error:
            run.event("stopped", reason=error.message)
            run.finish("stopped", statistics.summary().to_json())
            raise
        except BaseException:
            run.finish("interrupted", statistics.summary().to_json())
            raise
        summary = await _summed_up(plan, run, statistics, services=services, host=host)
        run.event("clients", built=meter.num_built, cpu_s=meter.total_s)
        num_judge_calls = judge.num_chat_calls if judge is not None else 0
        run.event("judge", calls=num_judge_calls)
        run.finish("finished", summary.to_json())
    return PluginTestOutcome(
        summary=summary,
        folder=run.folder,
        exit_code=exit_code_of(summary, request=plan.request),
        thresholds=compared_thresholds(plan.request, summary),
        clients_built=meter.num_built,
        client_cost_s=meter.total_s / meter.num_built if meter.num_built else 0.0,
        judge_calls=num_judge_calls,
        notes=notes_on_effect(plan),
        tracing=tracing,
    )


async def _summed_up(
    plan: PluginTestPlan,
    run: RunWriter,
    statistics: RunStatistics,
    *,
    services: Services,
    host: InProcessHost,
) -> Summary:
    limits = await services.limits.report(host)
    run.event("limits", **limits.to_json())
    summary = replace(statistics.summary(), limits=None if limits.is_empty else limits)
    return masked_value(summary, secrets=plan.secrets)


def compared_thresholds(
    request: PluginTestRequest, summary: Summary
) -> tuple[ThresholdResult, ...]:
    """Compare the numbers of a run with those that were asked for."""
    asked = (
        (request.min_reward_mean, reward_mean_at_least),
        (request.min_success_rate, success_rate_at_least),
    )
    return tuple(
        compare(at_least, summary=summary) for at_least, compare in asked if at_least is not None
    )


def exit_code_of(summary: Summary, *, request: PluginTestRequest) -> ExitCode:
    """Return 0 when nothing failed (discards alone are good), 4 when no model call got through.

    A missed threshold is 3, whatever else failed: it is what was asked for by name.
    """
    verdicts = summary.verdicts
    failed = verdicts.get(Verdict.FAILURE, 0) + verdicts.get(Verdict.RETRY, 0)
    if failed and failed == summary.num_rollouts and _all_unreachable(summary):
        return ExitCode.UNREACHABLE
    if not all(threshold.is_met for threshold in compared_thresholds(request, summary)):
        return ExitCode.THRESHOLD_MISSED
    # a grader that gave up after its retries drops the group without failing a rollout
    gave_up = summary.groups.verdicts.get(Verdict.RETRY, 0) if summary.groups else 0
    if failed or gave_up or summary.num_ungraded or summary.would_fail_job:
        return ExitCode.SOME_FAILED
    return ExitCode.OK


def _all_unreachable(summary: Summary) -> bool:
    words = ("EndpointUnreachableError", "APIConnectionError", "APITimeoutError")
    errors = [error for error in summary.errors if error.source == "rollout"]
    return bool(errors) and all(
        any(word in error.message for word in words)
        and INJECTED not in error.message
        and HUNG_UP not in error.message
        for error in errors
    )


def _engine(
    plan: PluginTestPlan,
    services: Services,
    recorder: Recorder,
    *,
    host: FunctionHost,
    tape: Taping,
) -> Engine:
    host = tape.host_of(with_faults(host, plan))
    rollouts = RolloutRunner(
        plan.rollout,
        host=host,
        door=services.door,
        new_session=lambda identity, sampling: Session(
            identity, sampling=sampling, services=tape.services_of(identity, services.sessions)
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
        on_group=tape.then(recorder.on_group),
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


def open_run(plan: PluginTestPlan) -> RunWriter:
    """Make the run's folder, or open the one that is gone on with."""
    if plan.resumed is not None:
        return resume_run(
            plan.resumed, secrets=plan.secrets, concurrency=plan.concurrency, versions=versions()
        )
    return RunWriter.create(
        plan.workspace.root / "runs",
        kind="test",
        settings=plan.settings(),
        hashes=plan.hashes(),
        versions=versions(),
        folder=plan.request.out,
        secrets=plan.secrets,
    )
