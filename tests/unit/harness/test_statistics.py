import json
import math

import pytest

from arkdev.harness.group_numbers import pass_at_k
from arkdev.harness.statistics import RunStatistics
from arkdev.runs.records import (
    Attempt,
    GraderRecord,
    GroupRecord,
    TrajectoryRecord,
    TurnRecord,
    Verdict,
)

S, F, D, R = Verdict.SUCCESS, Verdict.FAILURE, Verdict.DISCARD, Verdict.RETRY


def rollout(
    trajectory_id: str, *attempts: Verdict, num_turns: int = 1, error: str = "boom", **fields
) -> TrajectoryRecord:
    verdicts = attempts or (S,)
    sample, generation = map(int, trajectory_id.split("."))
    records = [
        Attempt(verdict, 0.1, error=None if verdict is S else error, where="plugins/rollout.py:3")
        for verdict in verdicts
    ]
    fields = {"turns": (TurnRecord(0.0, 0.1),) * num_turns, **fields}
    return TrajectoryRecord(
        trajectory_id, sample, generation, verdicts[-1], 0.5, tuple(records), **fields
    )


def group(sample: int, *rewards: float | None, verdict: Verdict = S, **fields) -> GroupRecord:
    ids = tuple(f"{sample}.{index}" for index in range(len(rewards)))
    return GroupRecord(sample, verdict, ids, rewards, **fields)


def run_of(*groups: tuple[float | None, ...], n: int = 2, **options: object) -> RunStatistics:
    """Successful rollouts with these rewards, one tuple per sample."""
    statistics = RunStatistics(n, **options)
    for sample, rewards in enumerate(groups):
        for generation in range(len(rewards)):
            statistics.add_trajectory(rollout(f"{sample}.{generation}"))
        statistics.add_group(group(sample, *rewards))
    return statistics


def test_mean_counts_each_rollout_once_and_failed_ones_apart():
    statistics = RunStatistics(3)
    statistics.add_trajectory(rollout("0.0", num_turns=2))
    statistics.add_trajectory(rollout("0.1", num_turns=8))
    statistics.add_trajectory(rollout("0.2", F, F, F, F))
    statistics.add_group(group(0, 1.0, 0.0, None, verdict=F))
    summary = statistics.summary()

    assert (summary.reward.mean, summary.reward.num_graded) == (0.5, 2)
    assert summary.verdicts == {"success": 2, "failure": 1}
    assert summary.num_ungraded == 0
    assert summary.would_fail_job


def test_grader_that_fails_leaves_its_rollouts_ungraded_never_zero():
    statistics = run_of((1.0, 0.5))
    for generation in range(2):
        statistics.add_trajectory(rollout(f"1.{generation}"))
    judge = GraderRecord("judge", 1.0, F, (), attempts=4, error="503", where="plugins/g.py:9")
    statistics.add_group(group(1, None, None, verdict=F, graders=(judge,)))
    summary = statistics.summary()

    assert (summary.reward.mean, summary.reward.num_ungraded) == (0.75, 2)
    assert summary.num_ungraded == 2
    assert summary.graders[0].reward is None
    assert summary.graders[0].verdicts == {"failure": 1}
    assert [(e.source, e.message, e.where) for e in summary.errors] == [
        ("grader judge", "503", "plugins/g.py:9")
    ]
    assert summary.would_fail_job


def test_every_rollout_is_accounted_for():
    statistics = run_of((1.0, 0.0), (0.5, None))
    statistics.add_trajectory(rollout("2.0", D))
    statistics.add_trajectory(rollout("2.1"))
    statistics.add_group(GroupRecord(2, D, ("2.0", "2.1"), (), error="no city"))
    statistics.add_trajectory(rollout("3.0", R, R, R, R))
    statistics.add_trajectory(rollout("3.1"))
    statistics.add_group(group(3, None, None, verdict=R))
    statistics.add_trajectory(rollout("4.0"))
    summary = statistics.summary()

    assert summary.num_rollouts == 9
    assert summary.verdicts == {"success": 7, "discard": 1, "retry": 1}
    counts = (summary.num_graded, summary.num_ungraded, summary.num_dropped, summary.num_pending)
    assert counts == (3, 1, 2, 1)
    assert not summary.would_fail_job
    assert summary.groups.verdicts == {"success": 2, "discard": 1, "retry": 1}


def test_attempts_tell_who_recovered():
    statistics = RunStatistics(1)
    statistics.add_trajectory(rollout("0.0"))
    statistics.add_trajectory(rollout("1.0", R, R, S))
    statistics.add_trajectory(rollout("2.0", F, F, F, F))
    summary = statistics.summary()

    assert summary.attempts == {"1": 1, "3": 1, "4": 1}
    assert summary.num_recovered == 1
    assert summary.first_failure == "2.0"


def test_standard_error_is_clustered_by_sample():
    # mean 0.5; group sums of deviations: 1.0, -1.0, 0.0
    # sqrt(3/2 * (1 + 1 + 0)) / 6
    summary = run_of((1.0, 1.0), (0.0, 0.0), (1.0, 0.0)).summary()
    assert summary.reward.standard_error == pytest.approx(math.sqrt(3) / 6)
    assert summary.reward.std == pytest.approx(math.sqrt(6 * 0.25 / 5))


def test_standard_error_of_single_rollouts_is_the_usual_one():
    summary = run_of((1.0,), (2.0,), (4.0,), n=1).summary()
    assert summary.reward.standard_error == pytest.approx(summary.reward.std / math.sqrt(3))
    assert run_of((1.0, 2.0)).summary().reward.standard_error is None


def test_zero_variance_counts_groups_of_two_or_more_rewards():
    summary = run_of((1.0, 1.0), (0.0, 0.0), (0.0, 0.0), (1.0, 0.0), (1.0, None)).summary()
    zero = summary.groups.zero_variance

    assert (zero.num_groups, zero.num_eligible, zero.share) == (3, 4, 0.75)
    assert [(v.reward, v.num_groups) for v in zero.values] == [(0.0, 2), (1.0, 1)]


def test_pass_at_k_is_unbiased_and_leaves_incomplete_groups_out():
    groups = [(1.0, 0.0, 0.0, 0.0), (1.0, 1.0, 0.5, 0.0), (0.0, None, 1.0, 1.0)]
    summary = run_of(*groups, n=4).summary()

    # c = 1 and c = 2 of 4: k=1: (1/4 + 2/4)/2; k=2: (1/2 + 5/6)/2; k=4: 1
    assert [(p.k, p.num_groups) for p in summary.groups.pass_at_k] == [(1, 2), (2, 2), (4, 2)]
    values = [p.value for p in summary.groups.pass_at_k]
    assert values == pytest.approx([0.375, 2 / 3, 1.0])
    assert summary.groups.num_incomplete == 1


def test_success_threshold_decides_what_passes():
    summary = run_of((0.5, 0.0), success_threshold=0.5).summary()
    assert summary.groups.pass_at_k[0].value == 0.5
    assert run_of((0.5, 0.0)).summary().groups.pass_at_k[0].value == 0.0


def test_pass_at_k_needs_more_than_one_rollout_per_sample():
    assert run_of((1.0,), n=1).summary().groups.pass_at_k == ()
    assert pass_at_k(5, c=0, k=3) == 0.0
    assert pass_at_k(5, c=3, k=3) == 1.0


def test_grader_metrics_are_aggregated_to_max_min_and_mean():
    statistics = RunStatistics(1)
    for sample, length in enumerate([10.0, 20.0, 60.0]):
        statistics.add_trajectory(rollout(f"{sample}.0"))
        record = GraderRecord("g", 0.5, S, (1.0,), {"length": length}, attempts=1 + sample)
        statistics.add_group(group(sample, 0.5, graders=(record,)))
    (grader,) = statistics.summary().graders

    metric = grader.metrics["length"]
    assert (metric.count, metric.min, metric.mean, metric.max) == (3, 10.0, 30.0, 60.0)
    assert (grader.weight, grader.reward.mean) == (0.5, 1.0)
    assert grader.attempts == {"1": 1, "2": 1, "3": 1}


def test_metrics_of_each_call_count_by_themselves():
    # of a grader that is called for each trajectory: the extremes are those of its calls
    statistics = RunStatistics(2)
    for name in ("0.0", "0.1"):
        statistics.add_trajectory(rollout(name))
    calls = ({"length": 10.0, "short": 1.0}, {"length": 50.0})
    record = GraderRecord("g", 1.0, S, (1.0, 0.0), {"length": 30.0}, call_metrics=calls)
    statistics.add_group(group(0, 1.0, 0.0, graders=(record,)))
    metrics = statistics.summary().graders[0].metrics
    length, short = metrics["length"], metrics["short"]
    assert (length.count, length.min, length.mean, length.max) == (2, 10.0, 30.0, 50.0)
    assert (short.count, short.mean) == (1, 1.0)  # missing is not 0


def test_unknown_tokens_are_counted_as_unknown_and_left_out_of_averages():
    statistics = RunStatistics(1)
    known = (TurnRecord(0, 1, "stop", 10, 4), TurnRecord(1, 1, "stop", 30, 6))
    unknown = (TurnRecord(0, 1, "stop", 10, 4), TurnRecord(1, 1, "stop", None, None))
    statistics.add_trajectory(rollout("0.0", turns=known))
    statistics.add_trajectory(rollout("1.0", turns=unknown))
    statistics.add_trajectory(rollout("2.0", turns=(), usage=None))
    statistics.add_trajectory(rollout("3.0", turns=(), usage={"completion_tokens": 20}))
    summary = statistics.summary()

    completion = summary.completion_tokens
    assert (completion.num_known, completion.num_unknown) == (2, 2)
    assert (completion.mean, completion.total) == (15.0, 30)
    assert summary.prompt_tokens.num_unknown == 3
    assert summary.longest_context.max == 36


def test_tools_are_timed_where_a_turn_calls_one_of_them():
    turns = (
        TurnRecord(0, 0.2, tool_calls=("search",), tool_duration_s=0.5),
        TurnRecord(1, 0.4, tool_calls=("search", "read"), tool_duration_s=2.0),
        TurnRecord(2, 0.6),
    )
    statistics = RunStatistics(1)
    statistics.add_trajectory(rollout("0.0", turns=turns, finish_reason="length"))
    summary = statistics.summary()

    assert [(t.name, t.num_calls, t.latency and t.latency.max_s) for t in summary.tools] == [
        ("search", 2, 0.5),
        ("read", 1, None),
        ("several tools", 0, 2.0),
    ]
    assert summary.num_model_calls == 3
    assert summary.model_call_latency.p50_s == pytest.approx(0.4)
    assert summary.finish_reasons == {"length": 1}


def test_warnings_are_counted_by_rollout_with_three_examples():
    statistics = RunStatistics(1)
    for sample in range(5):
        codes = ("not_json", "not_json") if sample else ("text_replaced",)
        statistics.add_trajectory(rollout(f"{sample}.0", warnings=codes))
    first, second = statistics.summary().warnings

    assert (first.code, first.count, first.examples) == ("not_json", 4, ("1.0", "2.0", "3.0"))
    assert (second.code, second.count) == ("text_replaced", 1)


def test_warnings_with_details_count_as_their_code_and_keep_the_first_detail():
    statistics = RunStatistics(1)
    for sample in range(2):
        details = (f"bad: call_{sample}: x", f"bad: call_{sample}b: x")
        statistics.add_trajectory(rollout(f"{sample}.0", warnings=details))
    (warning,) = statistics.summary().warnings

    assert (warning.code, warning.count, warning.detail) == ("bad", 2, "call_0: x")


def test_reward_that_never_varies_is_a_warning():
    constant = run_of(*[(0.1, 0.1)] * 4).summary()
    assert [w.code for w in constant.warnings] == ["reward_constant"]
    assert (constant.reward.mean, constant.reward.std) == (0.1, 0.0)
    assert run_of(*[(0.1, 0.1)] * 3, (0.1, 0.2)).summary().warnings == ()


def test_errors_are_grouped_by_place_and_message_without_numbers():
    statistics = RunStatistics(1)
    statistics.add_trajectory(rollout("0.0", R, S, error="timed out after 2.1 s"))
    statistics.add_trajectory(rollout("1.0", R, R, R, R, error="timed out after 3 s\nTraceback"))
    statistics.add_trajectory(rollout("2.0", F, F, F, F, error="KeyError: 'city'"))
    timeout, fatal = statistics.summary().errors

    assert (fatal.message, fatal.count, fatal.num_final) == ("KeyError: 'city'", 4, 1)
    assert fatal.where == "plugins/rollout.py:3"
    assert (timeout.message, timeout.count, timeout.num_final) == ("timed out after 2.1 s", 5, 1)
    assert timeout.examples == ("0.0", "1.0")


def test_summary_of_nothing_and_its_json():
    empty = RunStatistics(4).summary()
    assert (empty.num_rollouts, empty.reward, empty.groups) == (0, None, None)
    json.dumps(empty.to_json(), allow_nan=False)

    document = run_of((1.0, 0.0)).summary().to_json()
    assert document["reward"]["quantiles"]["p50"] == 0.5
    assert document["groups"]["pass_at_k"][1] == {"k": 2, "value": 1.0, "num_groups": 1}
    json.dumps(document, allow_nan=False)


def test_attempts_of_a_grader_count_like_those_of_a_rollout():
    statistics = RunStatistics(1)
    statistics.add_trajectory(rollout("0.0"))
    judge = GraderRecord("judge", 1.0, F, (None,), attempts=4, error="503")
    statistics.add_group(group(0, None, verdict=F, graders=(judge,)))
    (error,) = statistics.summary().errors
    assert (error.count, error.num_final) == (4, 1)


def test_answers_cut_short_are_warned_of_when_most_are():
    def codes(*reasons: str) -> list[str]:
        statistics = RunStatistics(1)
        for index, reason in enumerate(reasons):
            statistics.add_trajectory(rollout(f"{index}.0", finish_reason=reason))
        return [warning.code for warning in statistics.summary().warnings]

    assert codes("length", "length", "stop") == ["answers_cut"]
    assert codes("length", "stop", "stop") == []


def test_a_success_may_miss_the_threshold_by_a_rounding_error():
    total = 0.1 + 0.7 + 0.2
    summary = run_of((1.0, total), success_threshold=1.0000000000000002).summary()
    assert summary.groups.pass_at_k[0].value == 1.0


def test_advantages_of_graders_for_some_samples_only_are_a_warning():
    statistics = RunStatistics(2)
    own = GraderRecord("own", 1.0, S, (1.0, 0.0), seq_advantages=(1.0, -1.0))
    none = GraderRecord("own", 1.0, S, (1.0, 0.0))
    statistics.add_group(group(0, 1.0, 0.0, graders=(own,)))
    assert statistics.summary().warnings == ()
    statistics.add_group(group(1, 1.0, 0.0, graders=(none,)))
    (warning,) = statistics.summary().warnings
    assert (warning.code, warning.count, warning.examples) == ("advantages_in_part", 1, ("0.0",))


def test_a_group_whose_rewards_differ_by_rounding_alone_has_no_signal():
    zero = run_of((0.1 + 0.2, 0.3), (1.0, 0.5)).summary().groups.zero_variance
    assert (zero.num_groups, zero.num_eligible) == (1, 2)
