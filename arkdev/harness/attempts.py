"""The retry rule of the contract, for rollouts and graders alike (decision 1).

Three retries: four attempts in all. FAILURE and RETRY are tried again, SUCCESS and DISCARD end it,
and so does an endpoint that asks for a longer wait than arkdev makes.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from arkdev.errors import ArkdevError
from arkdev.plugin.exceptions import RolloutRetryException
from arkdev.plugin.source import place_of_exception, text_of_exception, users_traceback
from arkdev.runs.records import Attempt, FaultRecord, HandledBy, Verdict
from arkdev.types import PluginStatus

MAX_ATTEMPTS = 4

_T = TypeVar("_T")

VERDICT_OF = {
    PluginStatus.SUCCESS: Verdict.SUCCESS,
    PluginStatus.FAILURE: Verdict.FAILURE,
    PluginStatus.DISCARD: Verdict.DISCARD,
    PluginStatus.RETRY: Verdict.RETRY,
}


@dataclass(frozen=True)
class Outcome(Generic[_T]):
    """What one attempt gave: a verdict, and a value unless it raised."""

    verdict: Verdict
    value: _T | None = None
    error: str | None = None
    where: str | None = None
    traceback: str | None = None
    num_turns: int = 0
    num_model_call_retries: int = 0
    limit_wait_s: float = 0.0
    faults: tuple[FaultRecord, ...] = ()
    is_last: bool = False
    """No further attempt can help."""


async def run_attempts(
    attempt: Callable[[int], Awaitable[Outcome[_T]]],
) -> tuple[Outcome[_T], tuple[Attempt, ...]]:
    """Call `attempt` with 0, 1, … until the rule ends it; return the last outcome and all attempts.

    Everything of an attempt but the last is in its `Attempt` line alone.
    """
    attempts: list[Attempt] = []
    while True:
        started = time.perf_counter()
        outcome = await attempt(len(attempts))
        attempts.append(
            Attempt(
                verdict=outcome.verdict,
                duration_s=time.perf_counter() - started,
                num_turns=outcome.num_turns,
                num_model_call_retries=outcome.num_model_call_retries,
                limit_wait_s=outcome.limit_wait_s,
                error=outcome.error,
                where=outcome.where,
                traceback=outcome.traceback,
                faults=outcome.faults,
            )
        )
        ended = outcome.verdict in (Verdict.SUCCESS, Verdict.DISCARD)
        if ended or outcome.is_last or len(attempts) == MAX_ATTEMPTS:
            return outcome, tuple(attempts)


def handled(faults: Sequence[FaultRecord], *, verdict: Verdict) -> tuple[FaultRecord, ...]:
    """Return faults with `handled_by` as an attempt's end tells it.

    What the harness made good stays so; the rest was the plugin's when the attempt ended well.
    """
    plugins = HandledBy.PLUGIN if verdict is Verdict.SUCCESS else HandledBy.NOBODY
    return tuple(
        fault if fault.handled_by is HandledBy.HARNESS else replace(fault, handled_by=plugins)
        for fault in faults
    )


def outcome_of_exception(error: BaseException) -> Outcome[_T]:
    """Read an exception that left a plugin: RETRY when the plugin says so, else FAILURE."""
    verdict = Verdict.RETRY if isinstance(error, RolloutRetryException) else Verdict.FAILURE
    if isinstance(error, ArkdevError):
        text = f"{type(error).__name__}: {error.message}"
        hint = f"\nhint: {error.hint}" if error.hint else ""
        return Outcome(
            verdict, error=text + hint, where=error.where or place_of_exception(error) or None
        )
    return Outcome(
        verdict,
        error=text_of_exception(error) + _advice(error),
        where=place_of_exception(error) or None,
        traceback=users_traceback(error),
    )


def _advice(error: BaseException) -> str:
    """Explain two errors that a missing or a superfluous ``await`` brings."""
    text = text_of_exception(error)  # its type too: the class may be of another process
    if _AWAITED_ANSWER.search(text):
        return " (rollout_client() answers at once; to await, take proxy.async_rollout_client())"
    if _LEFT_COROUTINE.search(text):
        return " (did you forget await?)"
    return ""


_AWAITED_ANSWER = re.compile(
    r"^TypeError: .*(ChatCompletion|Response)\w* can't be used in 'await' expression"
)
_LEFT_COROUTINE = re.compile(
    r"^(AttributeError|TypeError): .*'?coroutine'? object (has no attribute|is not)"
)
