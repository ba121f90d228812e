"""The spans of attempts: of a rollout, which begins a trace, and of a grader, which belongs to one.

A grader of one trajectory is in the trace of its rollout. One that sees a whole group has a trace
of its own with a link to the rollout of each trajectory.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from arkdev.harness.attempts import Outcome
from arkdev.observe import spans
from arkdev.observe.gen_ai import INVOKE_AGENT, OPERATION
from arkdev.observe.observed_calls import SPAN_TYPE
from arkdev.plugin.loading import LoadedPlugin
from arkdev.plugin.source import innermost
from arkdev.runs.records import Verdict
from arkdev.sessions.session import Session
from arkdev.types import PluginContext


class PluginSpan(AbstractContextManager["PluginSpan"]):
    """The span of an attempt, current inside the block; nothing where nothing is recorded."""

    def __init__(self, span: spans.Span | None) -> None:
        self.span = span
        self._inside = spans.current_is(span) if span is not None else None

    def __enter__(self) -> PluginSpan:
        if self._inside is not None:
            self._inside.__enter__()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if self._inside is None or self.span is None:
            return
        self._inside.__exit__(None, None, None)
        if error is not None:
            self.span.fail(error)
        recording = spans.active()
        if recording is not None:
            recording.end(self.span)

    def tell(self, outcome: Outcome[Any]) -> None:
        """Keep what became of the attempt."""
        if self.span is None:
            return
        self.span.attributes["arkdev.verdict"] = outcome.verdict.value
        if outcome.verdict is not Verdict.SUCCESS:
            self.span.fail(outcome.error or outcome.verdict.value)


def rollout_span(
    session: Session, loaded: LoadedPlugin, *, context: PluginContext, num_trajectories: int
) -> PluginSpan:
    """Open the span of an attempt of a rollout; the session's model calls go into it."""
    recording = spans.active()
    if recording is None:
        return PluginSpan(None)
    identity = session.identity
    first = identity.generation
    span = recording.root(
        f"{INVOKE_AGENT} {loaded.plugin.name}",
        trajectory_ids=tuple(
            replace(identity, generation=generation).trajectory_id
            for generation in range(first, first + num_trajectories)
        ),
        attempt=identity.attempt,
    )
    span.attributes = {
        OPERATION: INVOKE_AGENT,
        "gen_ai.agent.name": loaded.plugin.name,
        "gen_ai.conversation.id": identity.trajectory_id,
        SPAN_TYPE: "rollout",
        "arkdev.phase": identity.phase,
    }
    if context.model_customization_job_id:
        span.attributes["arkdev.job_id"] = context.model_customization_job_id
    span.function = innermost(loaded.function)
    session.span = span
    return PluginSpan(span)


def grader_span(
    name: str,
    loaded: LoadedPlugin,
    *,
    rollouts: Sequence[spans.Span | None],
    trajectory_ids: Sequence[str],
    attempt: int,
) -> PluginSpan:
    """Open the span of an attempt of a grader; `rollouts` are those that it grades."""
    recording = spans.active()
    if recording is None:
        return PluginSpan(None)
    known = [span for span in rollouts if span is not None]
    span = recording.root(
        f"grade {name}",
        trajectory_ids=tuple(trajectory_ids),
        attempt=attempt,
        parent=known[0] if len(rollouts) == 1 and known else None,
        links=tuple(known) if len(rollouts) > 1 else (),
    )
    span.function = innermost(loaded.function)
    span.attributes = {SPAN_TYPE: "grader", "arkdev.grader": name}
    return PluginSpan(span)
