"""One rollout: its attempts, each with a session of its own, and the record that is left."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from pydantic import ValidationError

from arkdev.errors import PluginResultError, PluginTimeoutError
from arkdev.harness.attempts import (
    VERDICT_OF,
    Outcome,
    handled,
    outcome_of_exception,
    run_attempts,
)
from arkdev.harness.plugin_spans import rollout_span
from arkdev.observe.attempt import current_attempt, in_flight
from arkdev.observe.held_calls import current_held_calls
from arkdev.observe.spans import Span
from arkdev.plugin.conversation import Conversation
from arkdev.plugin.decorators import PluginKind
from arkdev.plugin.evidence import TokenEvidence
from arkdev.plugin.host import FunctionHost
from arkdev.plugin.loading import LoadedPlugin, require_kind
from arkdev.plugin.plain import frozen_copy, to_plain
from arkdev.plugin.proxy import InferenceProxy
from arkdev.plugin.results import read_group_rollout_result, read_rollout_result
from arkdev.runs.records import TrajectoryRecord, TurnRecord, Verdict, trajectory_id_of
from arkdev.sessions.identity import AttemptIdentity
from arkdev.sessions.sends import HUNG_UP
from arkdev.sessions.sent import NOTHING, SentBeside
from arkdev.sessions.session import Session
from arkdev.types import (
    ChatCompletionSample,
    GroupRolloutResult,
    PluginContext,
    PluginStatus,
    RolloutResult,
    Trajectory,
)


class SessionDoor(Protocol):
    """Opens a session for the duration of one attempt, and ends it. The gateway implements it."""

    def open(self, session: Session) -> None:
        """Let the session's key in."""
        ...

    def close(self, session: Session) -> None:
        """Refuse the session's key from now on, and end its attempt."""
        ...


@dataclass(frozen=True)
class FinishedRollout:
    """A rollout that came to its end, whatever the verdict."""

    record: TrajectoryRecord
    evidence: TokenEvidence | None = None
    span: Span | None = None
    """Of the attempt that counts, when spans are recorded."""
    beside: SentBeside = NOTHING
    """What the calls of the attempt that counts sent beside this; of a group rollout beside all of
    its trajectories, and at the first of them."""

    @property
    def trajectory(self) -> Trajectory:
        """The trajectory as the graders see it, made afresh for each reader."""
        tokens = self.evidence
        return Trajectory(
            messages=to_plain(self.record.messages),
            usage=self.record.usage or {},
            finish_reason=self.record.finish_reason,
            extra=frozen_copy(self.record.extra),
            total_token_ids=list(tokens.token_ids) if tokens else None,
            total_loss_weight=list(tokens.loss_weight) if tokens else None,
            total_token_logprobs=list(tokens.logprobs) if tokens else None,
        )


@dataclass(frozen=True)
class SampleToRun:
    """One dataset line: its index in the run, its JSON, and the sampling that applies to it."""

    index: int
    line: str
    sampling: Mapping[str, Any]

    def fresh(self) -> ChatCompletionSample:
        """Return a new copy of the dataset line: every attempt starts from one (decision 1)."""
        return ChatCompletionSample.model_validate_json(self.line)

    @property
    def plain_messages(self) -> list[dict[str, Any]]:
        """The line's messages as JSON objects."""
        return [message.model_dump(exclude_none=True) for message in self.fresh().messages]


class RolloutRunner:
    """Runs rollouts of one plugin. Raises what `require_kind` raises when it is no rollout."""

    def __init__(
        self,
        loaded: LoadedPlugin,
        *,
        host: FunctionHost,
        door: SessionDoor,
        new_session: Callable[[AttemptIdentity, Mapping[str, Any]], Session],
        context: PluginContext,
        on_attempt: Callable[[AttemptIdentity, Outcome[Any]], None] | None = None,
    ) -> None:
        self._on_attempt = on_attempt
        self._loaded = require_kind(loaded, is_rollout=True)
        self._host = host
        self._door = door
        self._new_session = new_session
        self._context = context

    @property
    def makes_groups(self) -> bool:
        """True when one call of the plugin makes all trajectories of a sample."""
        return self._loaded.plugin.kind is PluginKind.GROUP_ROLLOUT

    async def run(
        self, sample: SampleToRun, *, generations: range, run_seed: int
    ) -> list[FinishedRollout]:
        """Call the plugin with up to four attempts; never raises for what the plugin did.

        `generations` are the trajectories that the call makes: one, or all of a group rollout. A
        group rollout that did not succeed leaves one record, of its first generation.
        """
        started = time.perf_counter()
        phase, step = self._context.phase, self._context.current_training_step
        kept: list[_Kept] = []
        beside = NOTHING
        span: Span | None = None

        async def attempt(number: int) -> Outcome[_Result]:
            identity = AttemptIdentity(
                sample_index=sample.index,
                generation=generations[0],
                attempt=number,
                run_seed=run_seed,
                phase=self._context.phase,
                step=step,
            )
            session = self._new_session(identity, sample.sampling)
            outcome = await self._attempt(session, sample, num_trajectories=len(generations))
            nonlocal span, beside
            span = session.span
            try:
                kept[:] = _kept(session, outcome, sample)
                beside = session.sent_beside([one.conversation for one in kept])
            except Exception as error:  # noqa: BLE001 (what a plugin did to its conversation)
                kept[:] = [_Kept(sample.plain_messages, Conversation())]
                if outcome.verdict is Verdict.SUCCESS:
                    outcome = replace(
                        outcome_of_exception(error),
                        num_turns=outcome.num_turns,
                        num_model_call_retries=outcome.num_model_call_retries,
                        limit_wait_s=outcome.limit_wait_s,
                        faults=handled(session.faults, verdict=Verdict.FAILURE),
                        is_last=outcome.is_last,
                    )
            if self._on_attempt is not None:
                self._on_attempt(identity, outcome)
            return outcome

        outcome, attempts = await run_attempts(attempt)
        duration_s = time.perf_counter() - started
        return [
            FinishedRollout(
                TrajectoryRecord(
                    trajectory_id=trajectory_id_of(
                        sample.index, generation, phase=phase, step=step
                    ),
                    sample_index=sample.index,
                    generation=generation,
                    verdict=outcome.verdict,
                    duration_s=duration_s,
                    attempts=attempts,
                    call_size=len(generations),
                    phase=phase,
                    step=step,
                    **one.fields(),
                ),
                evidence=one.conversation.tokens,
                span=span,
                beside=beside if generation == generations[0] else NOTHING,
            )
            for generation, one in zip(generations, kept, strict=False)
        ]

    async def _attempt(
        self, session: Session, sample: SampleToRun, *, num_trajectories: int
    ) -> Outcome[_Result]:
        fresh = sample.fresh()
        proxy = InferenceProxy(fresh, access=session, is_group=self.makes_groups)
        arguments: tuple[Any, ...] = (self._context.model_copy(), proxy, fresh)
        if self.makes_groups:
            arguments = (*arguments, num_trajectories)
        token = current_attempt.set(session)
        held = current_held_calls.set(session.held_calls)
        in_flight[session] = self._loaded.plugin.is_async
        session.is_in_a_run = True
        self._door.open(session)
        with rollout_span(
            session, self._loaded, context=self._context, num_trajectories=num_trajectories
        ) as span:
            try:
                value = await self._invoke(session, arguments)
                result = self._read(value, session, num_trajectories=num_trajectories)
                if result.status is PluginStatus.SUCCESS:
                    session.succeed()
                outcome = Outcome[_Result](
                    VERDICT_OF[result.status], value=result, error=result.error or None
                )
            except asyncio.CancelledError:
                raise
            except Exception as error:  # noqa: BLE001 (whatever left the plugin becomes data)
                outcome = outcome_of_exception(error)
                if session.hung_up:
                    outcome = replace(outcome, error=f"{outcome.error} ({HUNG_UP})")
            finally:
                self._door.close(session)
                current_attempt.reset(token)
                current_held_calls.reset(held)
                in_flight.pop(session, None)
            span.tell(outcome)
        return replace(
            outcome,
            num_turns=session.num_turns,
            num_model_call_retries=session.num_retries,
            limit_wait_s=session.limit_wait_s,
            faults=handled(session.faults, verdict=outcome.verdict),
            is_last=session.must_wait_long,
        )

    async def _invoke(self, session: Session, arguments: tuple[Any, ...]) -> Any:
        try:
            return await self._host.invoke(self._loaded, arguments)
        except PluginTimeoutError:
            raise
        except Exception:  # perhaps since its client hung up, which the gateway sees a bit later
            await session.hang_ups_noticed()
            raise

    def _read(self, value: Any, session: Session, *, num_trajectories: int) -> _Result:
        plugin = self._loaded.plugin
        if not self.makes_groups:
            return read_rollout_result(value, plugin=plugin)
        result = read_group_rollout_result(value, plugin=plugin, n_sample=num_trajectories)
        if result.status is PluginStatus.SUCCESS:
            for response in result.responses:
                session.responses.node(response.id)  # an unknown id is an error here
        return result


_Result = RolloutResult | GroupRolloutResult


@dataclass(frozen=True)
class _Kept:
    """What a record keeps of the attempt that counts: one conversation of it."""

    messages: list[dict[str, Any]]
    conversation: Conversation
    turns: tuple[TurnRecord, ...] = ()
    warnings: tuple[str, ...] = ()
    extra: dict[str, Any] | None = None
    config: dict[str, Any] | None = None

    def fields(self) -> dict[str, Any]:
        """Return the fields of a `TrajectoryRecord` that come from the conversation."""
        usage = self.conversation.usage
        versions = [t.policy_version for t in self.turns if t.policy_version is not None]
        return {
            "messages": tuple(self.messages),
            "usage": usage.model_dump() if usage else None,
            "finish_reason": self.conversation.finish_reason,
            "extra": self.extra,
            "config": self.config,
            "turns": self.turns,
            "warnings": self.warnings,
            "policy_version": min(versions, default=None),
        }


def _kept(session: Session, outcome: Outcome[_Result], sample: SampleToRun) -> list[_Kept]:
    """Return what is kept: the last call's context, or each branch of a group (Y-38).

    Raises `PluginResultError` when a success left messages that are no trajectory.
    """
    result = outcome.value
    if isinstance(result, GroupRolloutResult) and result.status is PluginStatus.SUCCESS:
        kept = [
            _Kept(conversation.plain_messages, conversation, turns, warnings, response.extra)
            for response in result.responses
            for conversation, turns, warnings in [session.branch(response.id)]
        ]
    else:
        single = result if isinstance(result, RolloutResult) else RolloutResult()
        conversation = session.conversation
        kept = [
            _Kept(
                conversation.plain_messages or sample.plain_messages,
                conversation,
                session.turns,
                session.warnings,
                single.extra,
                single.config,
            )
        ]
    if outcome.verdict is Verdict.SUCCESS:
        for one in kept:
            _check_messages(one.messages)
    return kept


def _check_messages(messages: list[dict[str, Any]]) -> None:
    try:
        Trajectory.model_validate({"messages": messages})
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in problem["loc"])
        raise PluginResultError(
            f"the rollout's messages are no trajectory: {place}: {problem['msg']}",
            hint="a message has a role and content; a tool call has a function with a name and "
            "its arguments as text",
        ) from None
