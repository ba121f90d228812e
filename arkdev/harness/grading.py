"""Grading a group: every grader, its retries, and the weighted reward (SURFACE GRADE, PIPE-09).

A reward is a finite number or it is missing; an error never becomes 0 (decision 5).
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, overload

from arkdev.errors import PluginResultError
from arkdev.harness.advantages import advantage_grader
from arkdev.harness.attempts import (
    VERDICT_OF,
    Outcome,
    handled,
    outcome_of_exception,
    run_attempts,
)
from arkdev.harness.hidden_tasks import hidden
from arkdev.harness.plugin_spans import grader_span
from arkdev.harness.rollouts import FinishedRollout, SampleToRun
from arkdev.observe.attempt import AttemptPlace, current_attempt, in_flight
from arkdev.plugin.decorators import PluginKind
from arkdev.plugin.host import FunctionHost
from arkdev.plugin.loading import LoadedPlugin
from arkdev.plugin.results import read_grader_result
from arkdev.runs.records import (
    FailedGrading,
    FaultRecord,
    FaultSide,
    GraderRecord,
    GroupRecord,
    Verdict,
)
from arkdev.sessions.faults.log import FaultLog
from arkdev.types import GroupGraderResult, PluginContext

_T = TypeVar("_T")


@dataclass(frozen=True)
class Grader:
    """A grader plugin with its weight in the final reward."""

    loaded: LoadedPlugin
    name: str
    weight: float = 1.0


@dataclass(eq=False)
class _GradedAttempt:
    """Where a grader runs, for its log lines and faults. Notes of graders are not counted yet."""

    place: AttemptPlace
    trajectory_id: str | None
    """Whose grading it is alone; None: of the whole group."""
    log: FaultLog = field(default_factory=lambda: FaultLog(started=time.perf_counter()))

    @property
    def name(self) -> str:
        """The ids of what is graded, and the grader's name."""
        return self.place.name

    @property
    def number(self) -> int:
        """1 is the first attempt."""
        return self.place.attempt + 1

    def note(self, _code: str, _detail: str = "") -> None:
        """Graders have no record of their own to keep a warning in."""

    def fault(
        self, side: str, kind: str, target: str, *, detail: str = "", is_injected: bool = False
    ) -> FaultRecord:
        """Record something that went wrong while grading."""
        side = FaultSide(side)
        return self.log.add(side, kind, target, detail=detail, is_injected=is_injected)

    def answered_later(self, fault: object) -> None:
        """Note that the grader sent the same again after `fault`, and that it was answered."""
        self.log.answered_later(fault)

    @property
    def faults(self) -> tuple[FaultRecord, ...]:
        """What went wrong so far."""
        return tuple(replace(fault, trajectory_id=self.trajectory_id) for fault in self.log.records)


class GroupGrading:
    """Grades the groups of a run with all its graders.

    A grader runs at most its `Runtime.request_concurrency` times at once (DEC-15).
    """

    def __init__(
        self, graders: Sequence[Grader], *, host: FunctionHost, context: PluginContext
    ) -> None:
        self._graders = tuple(graders)
        self._slots = {
            grader.name: asyncio.Semaphore(grader.loaded.plugin.runtime.request_concurrency)
            for grader in graders
        }
        self._host = host
        self._context = context

    async def grade(self, sample: SampleToRun, rollouts: Sequence[FinishedRollout]) -> GroupRecord:
        """Grade the trajectories of one sample; returns the group's record.

        Only trajectories of successful rollouts are graded; the others' rewards are None.
        """
        graded = [rollout for rollout in rollouts if rollout.record.verdict is Verdict.SUCCESS]
        notes: dict[str, None] = {}
        records = await _at_once(
            [self._grade_with(grader, sample, graded, notes=notes) for grader in self._graders]
        )
        counted = [record for record in records if record.weight != 0]
        verdict = _worst(
            [rollout.record.verdict for rollout in rollouts]
            + [record.verdict for record in counted]
        )
        error = next((record.error for record in counted if record.error), None)
        try:
            advantage_grader(records)
        except PluginResultError as problem:
            verdict = _worst([verdict, Verdict.FAILURE])
            error = error or f"{problem.message}\nhint: {problem.hint}"
        if verdict in (Verdict.DISCARD, Verdict.RETRY):  # dropped whole: nothing to train on
            rewards: list[float | None] = [None] * len(graded)
        else:
            rewards = weighted_rewards(records, num_trajectories=len(graded))
            too_large = _too_large(counted, rewards)
            if too_large is not None:
                verdict = _worst([verdict, Verdict.FAILURE])
                error = error or (
                    f"the weighted reward of {graded[too_large].record.trajectory_id} is past the "
                    f"largest float\nhint: make the weights smaller"
                )
        is_graded = [rollout.record.verdict is Verdict.SUCCESS for rollout in rollouts]
        return GroupRecord(
            sample_index=sample.index,
            verdict=verdict,
            trajectory_ids=tuple(rollout.record.trajectory_id for rollout in rollouts),
            rewards=_by_member(rewards, is_graded=is_graded),
            graders=tuple(
                replace(
                    record,
                    rewards=_by_member(record.rewards, is_graded=is_graded),
                    seq_advantages=_by_member(record.seq_advantages, is_graded=is_graded),
                    tok_advantages=_by_member(record.tok_advantages, is_graded=is_graded),
                )
                for record in records
            ),
            error=error,
            warnings=tuple(notes),
        )

    async def _grade_with(
        self,
        grader: Grader,
        sample: SampleToRun,
        rollouts: Sequence[FinishedRollout],
        *,
        notes: dict[str, None],
    ) -> GraderRecord:
        started = time.perf_counter()
        if grader.loaded.plugin.kind is PluginKind.SINGLE_GRADER:
            calls = [self._call(grader, sample, [rollout], notes=notes) for rollout in rollouts]
            record = _joined(grader, await _at_once(calls))
        else:
            record = await self._call(grader, sample, rollouts, notes=notes)
        return replace(record, duration_s=time.perf_counter() - started)

    async def _call(
        self,
        grader: Grader,
        sample: SampleToRun,
        rollouts: Sequence[FinishedRollout],
        *,
        notes: dict[str, None],
    ) -> GraderRecord:
        """Call a grader once, with its own retries, for one trajectory or for all.

        A metric that is not finite is missing; `notes` says which.
        """

        faults: list[FaultRecord] = []

        async def attempt(number: int) -> Outcome[GroupGraderResult]:
            outcome = await self._attempt(grader, sample, rollouts, number=number)
            faults.extend(outcome.faults)
            return outcome

        outcome, attempts = await run_attempts(attempt)
        result = outcome.value
        metrics = dict(result.metrics) if result else {}
        for key in [key for key, metric in metrics.items() if not math.isfinite(metric)]:
            del metrics[key]
            notes[f"metric_not_finite: {grader.name}.{key}"] = None
        graded = result if outcome.verdict is Verdict.SUCCESS else None
        seq_advantages = graded.seq_advantages if graded else None
        tok_advantages = graded.tok_advantages if graded else None
        return GraderRecord(
            name=grader.name,
            weight=grader.weight,
            verdict=outcome.verdict,
            rewards=tuple(graded.rewards) if graded else (None,) * len(rollouts),
            metrics=metrics,
            attempts=len(attempts),
            error=outcome.error,
            where=outcome.where,
            traceback=outcome.traceback,
            faults=tuple(faults),
            failed_attempts=tuple(
                FailedGrading(
                    failed.verdict,
                    error=failed.error,
                    where=failed.where,
                    trajectory_id=_only_trajectory(grader, rollouts),
                )
                for failed in attempts
                if failed.verdict is not Verdict.SUCCESS
            ),
            seq_advantages=None if seq_advantages is None else tuple(seq_advantages),
            tok_advantages=None if tok_advantages is None else tuple(map(tuple, tok_advantages)),
        )

    async def _attempt(
        self,
        grader: Grader,
        sample: SampleToRun,
        rollouts: Sequence[FinishedRollout],
        *,
        number: int,
    ) -> Outcome[GroupGraderResult]:
        ids = tuple(rollout.record.trajectory_id for rollout in rollouts)
        place = AttemptPlace(ids, number, grader.name, self._context.current_training_step)
        graded = _GradedAttempt(place, _only_trajectory(grader, rollouts))
        with grader_span(
            grader.name,
            grader.loaded,
            rollouts=[rollout.span for rollout in rollouts],
            trajectory_ids=ids,
            attempt=number,
        ) as span:
            outcome = await self._outcome(grader, sample, rollouts, graded=graded)
            span.tell(outcome)
        graded.log.close()
        return replace(outcome, faults=handled(graded.faults, verdict=outcome.verdict))

    async def _outcome(
        self,
        grader: Grader,
        sample: SampleToRun,
        rollouts: Sequence[FinishedRollout],
        *,
        graded: _GradedAttempt,
    ) -> Outcome[GroupGraderResult]:
        plugin = grader.loaded.plugin
        token = current_attempt.set(graded)
        in_flight[graded] = plugin.is_async
        try:
            trajectories: Any = [rollout.trajectory for rollout in rollouts]
            if plugin.kind is PluginKind.SINGLE_GRADER:
                trajectories = trajectories[0]
            async with self._slots[grader.name]:
                value = await self._host.invoke(
                    grader.loaded, (self._context.model_copy(), sample.fresh(), trajectories)
                )
            result = read_grader_result(
                value,
                plugin=plugin,
                num_trajectories=len(rollouts),
                num_tokens=_token_counts(rollouts),
            )
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 (whatever left the plugin becomes data)
            return outcome_of_exception(error)
        finally:
            current_attempt.reset(token)
            in_flight.pop(graded, None)
        return Outcome(VERDICT_OF[result.status], value=result, error=result.error or None)


@overload
def _by_member(
    values: Sequence[_T | None], *, is_graded: Sequence[bool]
) -> tuple[_T | None, ...]: ...
@overload
def _by_member(
    values: Sequence[_T | None] | None, *, is_graded: Sequence[bool]
) -> tuple[_T | None, ...] | None: ...
def _by_member(
    values: Sequence[_T | None] | None, *, is_graded: Sequence[bool]
) -> tuple[_T | None, ...] | None:
    """Spread what the graded members got over all members of the group; the others get None."""
    if values is None:
        return None
    given = iter(values)
    return tuple(next(given) if graded else None for graded in is_graded)


async def _at_once(
    gradings: Sequence[Coroutine[Any, Any, GraderRecord]],
) -> tuple[GraderRecord, ...]:
    """Await all of them; a single one needs no task of its own."""
    if len(gradings) == 1:
        return (await gradings[0],)
    async with asyncio.TaskGroup() as tasks:
        running = [hidden(tasks.create_task(grading)) for grading in gradings]
    return tuple(task.result() for task in running)


def _only_trajectory(grader: Grader, rollouts: Sequence[FinishedRollout]) -> str | None:
    """Return the id of what a single grader grades in one call; None for a group grader."""
    is_single = grader.loaded.plugin.kind is PluginKind.SINGLE_GRADER
    return rollouts[0].record.trajectory_id if is_single else None


def _token_counts(rollouts: Sequence[FinishedRollout]) -> list[int] | None:
    counts = [len(r.evidence.token_ids) for r in rollouts if r.evidence is not None]
    return counts if len(counts) == len(rollouts) else None


def _joined(grader: Grader, calls: Sequence[GraderRecord]) -> GraderRecord:
    """Join the calls of a single grader, one for each trajectory, into one record.

    Its metrics are the means over the calls, its verdict the worst of the calls'.
    """
    failed = next((call for call in calls if call.error), None)
    keys = dict.fromkeys(key for call in calls for key in call.metrics)
    metrics = {key: [call.metrics[key] for call in calls if key in call.metrics] for key in keys}
    return GraderRecord(
        name=grader.name,
        weight=grader.weight,
        verdict=_worst([call.verdict for call in calls]),
        rewards=tuple(reward for call in calls for reward in call.rewards),
        # divided first where the sum might not fit
        metrics={
            key: sum(v / len(values) for v in values)
            if not math.isfinite(sum(values))
            else sum(values) / len(values)
            for key, values in metrics.items()
        },
        attempts=max((call.attempts for call in calls), default=0),
        error=failed.error if failed else None,
        where=failed.where if failed else None,
        traceback=failed.traceback if failed else None,
        call_metrics=tuple(call.metrics for call in calls),
        faults=tuple(fault for call in calls for fault in call.faults),
        failed_attempts=tuple(failed for call in calls for failed in call.failed_attempts),
    )


def weighted_rewards(
    graders: Sequence[GraderRecord], *, num_trajectories: int
) -> list[float | None]:
    """Return the final reward of each trajectory: the sum of weight × reward (OBS-12).

    A trajectory that a grader with a weight left ungraded has no final reward, nor has one whose
    sum is too large for a float. A grader of weight
    0 is only observed: whatever it gives, it changes no reward.
    """
    counted = [record for record in graders if record.weight != 0]
    rewards: list[float | None] = []
    for index in range(num_trajectories):
        parts = [(record.weight, record.rewards[index]) for record in counted]
        missing = not parts or any(reward is None for _, reward in parts)
        reward = sum(w * r for w, r in parts if r is not None)
        rewards.append(None if missing or not math.isfinite(reward) else reward)
    return rewards


def _too_large(counted: Sequence[GraderRecord], rewards: Sequence[float | None]) -> int | None:
    """Return the first member that all of them rewarded, and whose weighted sum is no float."""
    return next(
        (
            index
            for index, reward in enumerate(rewards)
            if reward is None and counted and all(r.rewards[index] is not None for r in counted)
        ),
        None,
    )


_ORDER = (Verdict.DISCARD, Verdict.RETRY, Verdict.FAILURE, Verdict.SUCCESS)


def _worst(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the verdict that decides: a drop of the group, then a failure, then success."""
    return next((verdict for verdict in _ORDER if verdict in verdicts), Verdict.SUCCESS)
