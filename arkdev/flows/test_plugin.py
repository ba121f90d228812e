"""`arkdev test plugin`: samples through a rollout and graders, written down, and summed up."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from arkdev.errors import ExitCode
from arkdev.flows.injection import notes_on_effect
from arkdev.flows.recording import PluginTestObserver
from arkdev.flows.rollout_run import Recorded, rollout_run
from arkdev.flows.test_plan import PluginTestPlan
from arkdev.flows.test_request import PluginTestRequest
from arkdev.flows.tracing import Tracing
from arkdev.harness.summary import Summary
from arkdev.harness.thresholds import (
    ThresholdResult,
    reward_mean_at_least,
    success_rate_at_least,
)
from arkdev.runs.records import Verdict
from arkdev.sessions.faults.answers import INJECTED
from arkdev.sessions.retries import RetryPolicy
from arkdev.sessions.sends import HUNG_UP


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

    Raises what `rollout_run` raises, and `EndpointError` when the endpoint refuses the first calls
    for their key or model, or answers no more ("stopped" in the run folder). When it is cancelled
    the run folder says "interrupted".
    """
    async with rollout_run(plan, observer, retries=retries) as run:
        finished: set[int] = set()
        if plan.resumed:
            run.take_over(Recorded(on_group=lambda group: finished.add(group.sample_index)))
        samples = (sample for sample in plan.samples() if sample.index not in finished)
        await run.run(plan.context, samples, num_generations=plan.num_generations)
        summary = await run.finish()
    return PluginTestOutcome(
        summary=summary,
        folder=run.folder.folder,
        exit_code=exit_code_of(summary, request=plan.request),
        thresholds=compared_thresholds(plan.request, summary),
        clients_built=run.clients.num_built,
        client_cost_s=run.clients.mean_s,
        judge_calls=run.num_judge_calls,
        notes=notes_on_effect(plan),
        tracing=run.tracing,
    )


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
