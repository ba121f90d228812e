"""One rollout: its attempts, each with a session of its own, and the record that is left."""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from arkdev.harness.attempts import VERDICT_OF, Outcome, outcome_of_exception, run_attempts
from arkdev.observe.attempt import current_attempt
from arkdev.plugin.conversation import Conversation
from arkdev.plugin.decorators import PluginKind
from arkdev.plugin.evidence import TokenEvidence
from arkdev.plugin.host import FunctionHost
from arkdev.plugin.loading import LoadedPlugin, require_kind
from arkdev.plugin.plain import to_plain
from arkdev.plugin.proxy import InferenceProxy
from arkdev.plugin.results import read_group_rollout_result, read_rollout_result
from arkdev.runs.records import TrajectoryRecord, TurnRecord
from arkdev.sessions.session import AttemptIdentity, Session
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

    @property
    def trajectory(self) -> Trajectory:
        """The trajectory as the graders see it, made afresh for each reader."""
        tokens = self.evidence
        return Trajectory(
            messages=to_plain(self.record.messages),
            usage=self.record.usage or {},
            finish_reason=self.record.finish_reason,
            extra=_copied(self.record.extra),
            total_token_ids=list(tokens.token_ids) if tokens else None,
            total_loss_weight=list(tokens.loss_weight) if tokens else None,
            total_token_logprobs=list(tokens.logprobs) if tokens else None,
        )


def _copied(extra: dict[str, Any] | None) -> dict[str, Any] | None:
    try:
        return copy.deepcopy(extra)
    except Exception:  # noqa: BLE001 (a rollout may put anything there, a client or a lock too)
        return dict(extra or {})


@dataclass(frozen=True)
class SampleToRun:
    """One dataset line: its index in the run, its JSON, and the sampling that applies to it."""

    index: int
    line: str
    sampling: Mapping[str, Any]

    def fresh(self) -> ChatCompletionSample:
        """Return a new copy of the dataset line: every attempt starts from one (decision 1)."""
        return ChatCompletionSample.model_validate_json(self.line)


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
        last: list[Session] = []

        async def attempt(number: int) -> Outcome[_Result]:
            identity = AttemptIdentity(
                sample_index=sample.index,
                generation=generations[0],
                attempt=number,
                run_seed=run_seed,
                phase=self._context.phase,
            )
            session = self._new_session(identity, sample.sampling)
            last[:] = [session]
            outcome = await self._attempt(session, sample, num_trajectories=len(generations))
            if self._on_attempt is not None:
                self._on_attempt(identity, outcome)
            return outcome

        outcome, attempts = await run_attempts(attempt)
        duration_s = time.perf_counter() - started
        return [
            FinishedRollout(
                TrajectoryRecord(
                    trajectory_id=f"{sample.index}.{generation}",
                    sample_index=sample.index,
                    generation=generation,
                    verdict=outcome.verdict,
                    duration_s=duration_s,
                    attempts=attempts,
                    call_size=len(generations),
                    **kept.fields(sample),
                ),
                evidence=kept.conversation.tokens,
            )
            for generation, kept in zip(generations, _kept(last[0], outcome.value), strict=False)
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
        self._door.open(session)
        try:
            value = await self._host.invoke(self._loaded, arguments)
            result = self._read(value, session, num_trajectories=num_trajectories)
            if result.status is PluginStatus.SUCCESS and not session.num_turns:
                session.note("no_model_call")
            outcome = Outcome[_Result](
                VERDICT_OF[result.status], value=result, error=result.error or None
            )
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 (whatever left the plugin becomes data)
            outcome = outcome_of_exception(error)
        finally:
            self._door.close(session)
            current_attempt.reset(token)
        return replace(
            outcome, num_turns=session.num_turns, num_model_call_retries=session.num_retries
        )

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

    conversation: Conversation
    turns: tuple[TurnRecord, ...]
    warnings: tuple[str, ...]
    extra: dict[str, Any] | None = None
    config: dict[str, Any] | None = None

    def fields(self, sample: SampleToRun) -> dict[str, Any]:
        """Return the fields of a `TrajectoryRecord` that come from the conversation."""
        messages = self.conversation.plain_messages or [
            message.model_dump(exclude_none=True) for message in sample.fresh().messages
        ]
        usage = self.conversation.usage
        return {
            "messages": tuple(messages),
            "usage": usage.model_dump() if usage else None,
            "finish_reason": self.conversation.finish_reason,
            "extra": self.extra,
            "config": self.config,
            "turns": self.turns,
            "warnings": self.warnings,
        }


def _kept(session: Session, result: _Result | None) -> list[_Kept]:
    """Return what is kept: the last call's context, or each branch of a group (Y-38)."""
    if isinstance(result, GroupRolloutResult) and result.status is PluginStatus.SUCCESS:
        return [
            _Kept(*session.branch(response.id), extra=response.extra)
            for response in result.responses
        ]
    single = result if isinstance(result, RolloutResult) else RolloutResult()
    return [
        _Kept(
            conversation=session.conversation,
            turns=session.turns,
            warnings=session.warnings,
            extra=single.extra,
            config=single.config,
        )
    ]
