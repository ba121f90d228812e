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
from arkdev.plugin.evidence import TokenEvidence
from arkdev.plugin.host import FunctionHost
from arkdev.plugin.loading import LoadedPlugin, require_kind
from arkdev.plugin.plain import to_plain
from arkdev.plugin.proxy import InferenceProxy
from arkdev.plugin.results import read_rollout_result
from arkdev.runs.records import TrajectoryRecord, Verdict
from arkdev.sessions.session import AttemptIdentity, Session
from arkdev.types import ChatCompletionSample, PluginContext, RolloutResult, Trajectory


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
    ) -> None:
        self._loaded = require_kind(loaded, is_rollout=True)
        self._host = host
        self._door = door
        self._new_session = new_session
        self._context = context

    async def run(self, sample: SampleToRun, *, generation: int, run_seed: int) -> FinishedRollout:
        """Run one rollout with up to four attempts. Never raises for what the plugin did."""
        started = time.perf_counter()
        last: list[Session] = []

        async def attempt(number: int) -> Outcome[RolloutResult]:
            identity = AttemptIdentity(
                sample_index=sample.index,
                generation=generation,
                attempt=number,
                run_seed=run_seed,
                phase=self._context.phase,
            )
            session = self._new_session(identity, sample.sampling)
            last[:] = [session]
            return await self._attempt(session, sample)

        outcome, attempts = await run_attempts(attempt)
        session = last[0]
        record = TrajectoryRecord(
            trajectory_id=session.identity.trajectory_id,
            sample_index=sample.index,
            generation=generation,
            verdict=outcome.verdict,
            duration_s=time.perf_counter() - started,
            attempts=attempts,
            **_kept_of(session, sample, outcome.value),
        )
        return FinishedRollout(record, evidence=session.conversation.tokens)

    async def _attempt(self, session: Session, sample: SampleToRun) -> Outcome[RolloutResult]:
        fresh = sample.fresh()
        proxy = InferenceProxy(fresh, access=session)
        context = self._context.model_copy()
        token = current_attempt.set(session)
        self._door.open(session)
        try:
            value = await self._host.invoke(self._loaded, (context, proxy, fresh))
            result = read_rollout_result(value, plugin=self._loaded.plugin)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 (whatever left the plugin becomes data)
            failed: Outcome[RolloutResult] = outcome_of_exception(error)
            return replace(failed, num_turns=session.num_turns)
        finally:
            self._door.close(session)
            current_attempt.reset(token)
        if result.status.value == Verdict.SUCCESS.value and not session.num_turns:
            session.note("no_model_call")
        return Outcome(
            VERDICT_OF[result.status],
            value=result,
            error=result.error or None,
            num_turns=session.num_turns,
        )


def _kept_of(session: Session, sample: SampleToRun, result: RolloutResult | None) -> dict[str, Any]:
    """Return what the record keeps of the attempt that counts."""
    conversation = session.conversation
    messages = conversation.plain_messages or [
        message.model_dump(exclude_none=True) for message in sample.fresh().messages
    ]
    usage = conversation.usage
    return {
        "messages": tuple(messages),
        "usage": usage.model_dump() if usage else None,
        "finish_reason": conversation.finish_reason,
        "extra": result.extra if result else None,
        "config": result.config if result else None,
        "turns": session.turns,
        "warnings": session.warnings,
    }
