"""The statistics of a run, computed record by record; memory grows by a few floats per rollout."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from arkdev.harness.advantages import has_own_advantages
from arkdev.harness.distributions import (
    CountDistribution,
    LatencyDistribution,
)
from arkdev.harness.failure_counts import FailureCounts
from arkdev.harness.failures import verdict_of_grading
from arkdev.harness.grader_numbers import GraderNumbers, by_name, by_number
from arkdev.harness.group_numbers import GroupNumbers
from arkdev.harness.occurrences import ErrorCounts, Examples
from arkdev.harness.services import ServiceSummary
from arkdev.harness.stalls import StallRecord, merged
from arkdev.harness.summary import (
    Summary,
    WarningSummary,
)
from arkdev.harness.tool_numbers import ToolNumbers
from arkdev.runs.records import (
    FailedGrading,
    GraderRecord,
    GroupRecord,
    TrajectoryRecord,
    TurnRecord,
    Verdict,
)

CONSTANT_REWARD_MIN = 8
"""From so many equal rewards on (and no other) the report warns."""


class RunStatistics:
    """Add a run's records, each trajectory before its group; ask for `summary` at any time.

    `num_generations` is the number of rollouts per sample, `success_threshold` the weighted reward
    from which on a rollout counts as a success in pass@k, `grader_places` the file:line of each
    grader by its name.
    """

    def __init__(
        self,
        num_generations: int,
        *,
        success_threshold: float = 1.0,
        grader_places: Mapping[str, str] | None = None,
        services: Callable[[], tuple[ServiceSummary, ...]] = tuple,
    ) -> None:
        self._grader_places = grader_places or {}
        self._stalls: list[Callable[[], Iterable[StallRecord]]] = []
        self._services = services
        self._num_generations = num_generations
        self._success_threshold = success_threshold
        self._rollouts = _Rollouts()
        self._groups = GroupNumbers(num_generations, success_threshold)
        self._graders: dict[str, GraderNumbers] = {}
        self._warnings: dict[str, Examples] = {}
        self._details: dict[str, str] = {}
        self._errors = ErrorCounts()
        self._failures = FailureCounts()
        self._unsuccessful: set[str] = set()
        self._with_own = Examples()
        """Graded groups whose graders gave advantages."""
        self._without_own = 0

    def take_stalls(self, source: Callable[[], Iterable[StallRecord]]) -> None:
        """Ask `source` for stalls whenever a summary is made."""
        self._stalls.append(source)

    def add_trajectory(self, record: TrajectoryRecord) -> None:
        """Count one finished rollout."""
        if record.verdict is not Verdict.SUCCESS:
            self._unsuccessful.add(record.trajectory_id)
        self._rollouts.add(record)
        self._failures.add_trajectory(record)
        self._warn(record.warnings, record.trajectory_id)
        attempts = record.attempts if record.is_first_of_call else ()
        for number, attempt in enumerate(attempts, start=1):
            if attempt.verdict is not Verdict.SUCCESS:
                self._errors.add(
                    "rollout",
                    message=attempt.error or f"{attempt.verdict} without an error text",
                    where=attempt.where,
                    example=record.trajectory_id,
                    is_final=number == len(attempts),
                )

    def add_group(self, record: GroupRecord) -> None:
        """Count one group, graded or dropped."""
        self._groups.add(record, unsuccessful=self._unsuccessful)
        self._failures.add_group(record)
        self._rollouts.forget_shared_turns(record.sample_index)
        first = record.trajectory_ids[0] if record.trajectory_ids else str(record.sample_index)
        self._warn(record.warnings, first)
        if any(reward is not None for reward in record.rewards):
            if any(g.weight != 0 and has_own_advantages(g) for g in record.graders):
                self._with_own.add(first)
            else:
                self._without_own += 1
        members = [name for name in record.trajectory_ids if name not in self._unsuccessful]
        for grader in record.graders:
            place = self._grader_places.get(grader.name, "")
            self._graders.setdefault(
                grader.name, GraderNumbers(grader.name, grader.weight, place=place)
            ).add(grader, num_members=len(members), example=first)
            self._add_errors(grader, record, first=first)
        is_explained = any(grader.verdict is not Verdict.SUCCESS for grader in record.graders)
        is_explained = is_explained or len(members) < len(record.trajectory_ids)
        if record.error and not is_explained:
            self._errors.add("group", message=record.error, where=None, example=first)

    def _add_errors(self, grader: GraderRecord, group: GroupRecord, *, first: str) -> None:
        """Count the failed attempts of a grader, those included that another one made good."""
        attempts = grader.failed_attempts
        if not attempts and grader.verdict is not Verdict.SUCCESS:  # a record that names none
            ended = FailedGrading(grader.verdict, error=grader.error, where=grader.where)
            attempts = (ended,) * max(1, grader.attempts)
        last = {failed.trajectory_id: number for number, failed in enumerate(attempts)}
        for number, failed in enumerate(attempts):
            final = verdict_of_grading(failed.trajectory_id, grader, group)
            self._errors.add(
                f"grader {grader.name}",
                message=failed.error or f"{failed.verdict} without an error text",
                where=failed.where,
                example=failed.trajectory_id or first,
                is_final=final is not Verdict.SUCCESS and number == last[failed.trajectory_id],
            )

    def summary(self) -> Summary:
        """Return the statistics of what was added so far."""
        rollouts, groups = self._rollouts, self._groups
        reward = groups.rewards.summary()
        graders = tuple(grader.summary() for grader in self._graders.values())
        num_failures = rollouts.verdicts[Verdict.FAILURE] + groups.verdicts[Verdict.FAILURE]
        num_failures += sum(grader.verdicts.get(Verdict.FAILURE, 0) for grader in graders)
        num_graded = reward.num_graded if reward else 0
        num_successful = rollouts.verdicts[Verdict.SUCCESS]
        warnings = [
            WarningSummary(code, examples.count, tuple(examples.ids), self._details.get(code, ""))
            for code, examples in self._warnings.items()
        ]
        if reward and reward.min == reward.max and num_graded >= CONSTANT_REWARD_MIN:
            warnings.append(WarningSummary("reward_constant", num_graded, ()))
        if self._without_own and self._with_own.count:
            with_own = self._with_own
            warnings.append(
                WarningSummary("advantages_in_part", with_own.count, tuple(with_own.ids))
            )
        if rollouts.finish_reasons["length"] > num_successful / 2:
            warnings.append(WarningSummary("answers_cut", rollouts.finish_reasons["length"], ()))
        return Summary(
            num_rollouts=rollouts.verdicts.total(),
            num_generations=self._num_generations,
            success_threshold=self._success_threshold,
            verdicts=by_name(rollouts.verdicts),
            attempts=by_number(rollouts.attempts),
            num_recovered=rollouts.num_recovered,
            num_graded=num_graded,
            num_ungraded=groups.num_ungraded,
            num_dropped=groups.num_dropped,
            num_pending=num_successful - num_graded - groups.num_ungraded - groups.num_dropped,
            would_fail_job=num_failures > 0,
            reward=reward,
            success=groups.success(),
            lowest=groups.lowest,
            highest=groups.highest,
            graders=graders,
            groups=groups.summary(),
            rollout_latency=rollouts.latency.summary(),
            model_call_latency=rollouts.call_latency.summary(),
            tools=rollouts.tools.summary(),
            services=self._services(),
            turns=rollouts.turns.summary(),
            prompt_tokens=rollouts.prompt_tokens.summary(),
            completion_tokens=rollouts.completion_tokens.summary(),
            longest_context=rollouts.contexts.summary(),
            finish_reasons=dict(rollouts.finish_reasons.most_common()),
            num_model_calls=rollouts.num_calls,
            num_shared_turns=rollouts.num_shared_turns,
            num_model_call_retries=rollouts.num_call_retries,
            num_reruns=rollouts.num_reruns,
            limit_wait_s=rollouts.limit_wait_s,
            warnings=tuple(sorted(warnings, key=lambda warning: -warning.count)),
            errors=self._errors.summary(),
            failures=self._failures.summary(),
            first_failure=rollouts.first_failure,
            stalls=merged(record for source in self._stalls for record in source()),
        )

    def _warn(self, warnings: Iterable[str], example: str) -> None:
        """Count each code, the text before the first colon, once for `example`."""
        parts = [warning.partition(": ") for warning in warnings]
        for code in sorted({code for code, _, _ in parts}):
            self._warnings.setdefault(code, Examples()).add(example)
        for code, _, detail in parts:
            if detail:
                self._details.setdefault(code, detail)


class _Rollouts:
    """Everything that trajectories say without their rewards."""

    def __init__(self) -> None:
        self.verdicts: Counter[Verdict] = Counter()
        self.attempts: Counter[int] = Counter()
        self.num_recovered = 0
        self.first_failure: str | None = None
        self.latency = LatencyDistribution()
        self.call_latency = LatencyDistribution()
        self.tools = ToolNumbers()
        self.turns = CountDistribution()
        self.prompt_tokens = CountDistribution()
        self.completion_tokens = CountDistribution()
        self.contexts = CountDistribution()
        self.finish_reasons: Counter[str] = Counter()
        self.num_calls = 0
        self.num_shared_turns = 0
        self.num_call_retries = 0
        self.num_reruns = 0
        self.limit_wait_s = 0.0
        self._response_ids: dict[int, set[str]] = {}
        """By sample, whose group is not done: the responses that are counted already."""

    def add(self, record: TrajectoryRecord) -> None:
        is_success = record.verdict is Verdict.SUCCESS
        self.verdicts[record.verdict] += record.num_trajectories
        self.attempts[len(record.attempts)] += record.num_trajectories
        self.num_recovered += is_success and len(record.attempts) > 1
        if record.is_first_of_call:
            self.latency.add(record.duration_s)
            self.num_reruns += len(record.attempts) - 1
            self.num_call_retries += sum(a.num_model_call_retries for a in record.attempts)
            self.limit_wait_s += sum(a.limit_wait_s for a in record.attempts)
        for turn in record.turns:
            self._add_turn(turn, record)
        if is_success:
            self._add_counts(record)
        elif self.first_failure is None:
            self.first_failure = record.trajectory_id

    def forget_shared_turns(self, sample_index: int) -> None:
        """The group of this sample is complete."""
        self._response_ids.pop(sample_index, None)

    def _add_turn(self, turn: TurnRecord, record: TrajectoryRecord) -> None:
        if turn.response_id is not None:
            counted = self._response_ids.setdefault(record.sample_index, set())
            if turn.response_id in counted:
                self.num_shared_turns += 1
                return
            counted.add(turn.response_id)
        self.num_calls += 1
        self.call_latency.add(turn.duration_s)
        self.tools.add(turn, record.trajectory_id)

    def _add_counts(self, record: TrajectoryRecord) -> None:
        self.turns.add(len(record.turns))
        self.finish_reasons[record.finish_reason or "unknown"] += 1
        turns = record.turns
        if turns:
            self.prompt_tokens.add(_total(turn.prompt_tokens for turn in turns))
            self.completion_tokens.add(_total(turn.completion_tokens for turn in turns))
            contexts = [_total((turn.prompt_tokens, turn.completion_tokens)) for turn in turns]
            known = [context for context in contexts if context is not None]
            self.contexts.add(max(known) if len(known) == len(contexts) else None)
        else:
            usage = record.usage or {}
            self.prompt_tokens.add(usage.get("prompt_tokens"))
            self.completion_tokens.add(usage.get("completion_tokens"))


def _total(counts: Iterable[int | None]) -> int | None:
    """Sum, or None when there is an unknown among them."""
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total
