"""What became of failures, against tables worked by hand; field cases 3.6, 3.7 and 5.2."""

import asyncio
import pickle

import pytest

from arkdev import (
    GroupGraderResult,
    PluginStatus,
    RolloutResult,
    RolloutRetryException,
    Runtime,
    group_grader,
    rollout,
    single_grader,
)
from arkdev.harness.failure_counts import FailureCounts
from arkdev.harness.failures import failures_of, fate, sibling_shift
from arkdev.harness.statistics import RunStatistics
from arkdev.harness.summary import FailureRow, FailureSummary
from arkdev.harness.swallowed_errors import QUESTIONS, is_error_text
from arkdev.observe.attempt import current_attempt
from arkdev.runs.records import (
    Attempt,
    FailedGrading,
    FaultRecord,
    FaultSide,
    GraderRecord,
    GroupRecord,
    HandledBy,
    TrajectoryRecord,
    Verdict,
)
from tests.running import QUESTION, always_one, lines, running

S, F, D, R = Verdict.SUCCESS, Verdict.FAILURE, Verdict.DISCARD, Verdict.RETRY


def fault(
    side: str = "tool",
    kind: str = "503",
    by: HandledBy = HandledBy.PLUGIN,
    *,
    is_injected: bool = False,
    trajectory_id: str | None = None,
    is_answered_later: bool = False,
) -> FaultRecord:
    return FaultRecord(
        FaultSide(side),
        kind,
        "host",
        0.1,
        is_injected,
        by,
        trajectory_id=trajectory_id,
        is_answered_later=is_answered_later,
    )


def trajectory(name: str, *attempts: Attempt, **fields) -> TrajectoryRecord:
    sample, generation = map(int, name.split("."))
    attempts = attempts or (Attempt(S, 0.1),)
    return TrajectoryRecord(name, sample, generation, attempts[-1].verdict, 0.1, attempts, **fields)


def went_on_after(*faults: FaultRecord) -> Attempt:
    return Attempt(S, 0.1, faults=faults)


def group(*rewards: float | None, verdict: Verdict = S, sample: int = 0, **fields) -> GroupRecord:
    ids = tuple(f"{sample}.{index}" for index in range(len(rewards)))
    fields.setdefault("graders", (GraderRecord("g", 1.0, S, rewards),))
    return GroupRecord(sample, verdict, ids, rewards, **fields)


def found(record: GroupRecord, *trajectories: TrajectoryRecord) -> FailureSummary:
    """The failures of one group; members that are not given succeeded at once."""
    counts = FailureCounts()
    given = {one.trajectory_id: one for one in trajectories}
    for name in record.trajectory_ids:
        counts.add_trajectory(given.get(name) or trajectory(name))
    counts.add_group(record)
    summary = counts.summary()
    assert summary is not None
    return summary


def told(row: FailureRow) -> tuple:
    return row.side, row.kind, row.handling, row.count, row.attempts, row.verdicts, row.fates


# Rewards 1, 0, 0.5, 0.25 of a group in which 0.1 had a tool fault.
#
# With it: mean 0.4375, deviations 0.5625, -0.4375, 0.0625, -0.1875; squares 0.31640625 + 0.19140625
# + 0.00390625 + 0.03515625 = 0.546875; over 3: 0.182292; std 0.426956.
# Without: mean 0.583333, deviations 0.416667, -0.083333, -0.333333; squares 0.173611 + 0.006944
# + 0.111111 = 0.291667; over 2: 0.145833; std 0.381881.
#
#            0.0                0.2                0.3
# with       0.5625/0.426957    0.0625/0.426957    -0.1875/0.426957
#            = 1.31746          = 0.14638          = -0.43915
# without    0.416667/0.381882  -0.083333/0.381882 -0.333333/0.381882
#            = 1.09109          = -0.21822         = -0.87287
# shift      +0.22637           +0.36460           +0.43372           mean 0.34157
#                               sign changed
SHIFTED = (1.0, 0.0, 0.5, 0.25)


def test_the_shift_of_each_sibling_against_dropping_a_trajectory():
    moved = sibling_shift(group(*SHIFTED), "0.1")
    table = {one.trajectory_id: (one.advantage, one.without, one.shift) for one in moved}
    assert list(table) == ["0.0", "0.2", "0.3"]
    assert table["0.0"] == pytest.approx((1.31746, 1.09109, 0.22637), abs=2e-5)
    assert table["0.2"] == pytest.approx((0.14638, -0.21822, 0.36460), abs=2e-5)
    assert table["0.3"] == pytest.approx((-0.43915, -0.87287, 0.43372), abs=2e-5)
    assert [one.changes_sign for one in moved] == [False, True, False]


def test_a_fault_in_a_group_is_told_with_its_fate_and_its_shift():
    summary = found(group(*SHIFTED), trajectory("0.1", went_on_after(fault())))
    (row,) = summary.faults
    assert told(row) == ("tool", "503", "plugin", 1, {"1": 1}, {"success": 1}, {"trained": 1})
    assert (row.shift.num_trajectories, row.shift.num_siblings) == (1, 3)
    assert (row.shift.num_sign_changes, row.shift.largest_of) == (1, "0.1")
    assert row.shift.largest == pytest.approx(0.43372, abs=2e-5)
    assert row.shift.mean == pytest.approx(0.34157, abs=2e-5)
    assert (summary.num_faults, summary.num_injected, summary.failed_attempts) == (1, 0, ())


def test_a_trajectory_with_several_faults_of_a_kind_moves_its_siblings_once():
    twice = went_on_after(fault(), fault(), fault("tool", "timeout"))
    by_503, by_timeout = found(group(*SHIFTED), trajectory("0.1", twice)).faults
    assert (by_503.count, by_503.fates, by_503.shift.num_trajectories) == (2, {"trained": 2}, 1)
    assert (by_timeout.count, by_timeout.shift) == (1, by_503.shift)


def test_each_faulty_trajectory_is_dropped_by_itself():
    bad = [trajectory(f"0.{index}", went_on_after(fault())) for index in range(4)]
    (row,) = found(group(*SHIFTED), *bad).faults
    assert (row.shift.num_trajectories, row.shift.num_siblings) == (4, 12)
    singles = [sibling_shift(group(*SHIFTED), f"0.{index}") for index in range(4)]
    shifts = [abs(one.shift) for moved in singles for one in moved]
    assert row.shift.mean == pytest.approx(sum(shifts) / 12)
    assert row.shift.largest == max(shifts)


def test_in_a_group_without_signal_nothing_is_moved():
    assert sibling_shift(group(1.0, 1.0), "0.0") is None
    (row,) = found(group(1.0, 1.0), trajectory("0.0", went_on_after(fault()))).faults
    assert (row.fates, row.shift) == ({"no_signal": 1}, None)


def test_of_two_the_one_that_is_left_keeps_its_reward():
    # with: ±0.5 / (sqrt(0.5) + 1e-6) = ±0.70711; alone: mean 0, std 1
    (moved,) = sibling_shift(group(0.6, 0.1), "0.1")
    assert (moved.advantage, moved.without) == (pytest.approx(0.70711, abs=1e-5), 0.6)


def test_where_nothing_can_be_said_of_a_shift_nothing_is():
    own = GraderRecord("own", 1.0, S, (1.0, 0.0), seq_advantages=(1.0, -1.0))
    assert sibling_shift(group(1.0, 0.0, graders=(own,)), "0.0") is None
    assert sibling_shift(group(1.0, None), "0.0") is None, "alone"
    assert sibling_shift(group(1.0, None, 0.0), "0.1") is None, "not in it"
    assert sibling_shift(group(1.0, 0.0, verdict=F), "0.0") is None, "a job would have failed"
    (row,) = found(group(1.0), trajectory("0.0", went_on_after(fault()))).faults
    assert row.shift is None


FATES = {
    "trained": (group(1.0, 0.0), "0.0", S),
    "no_signal": (group(1.0, 1.0), "0.0", S),
    "dropped": (group(None, None, verdict=D), "0.0", S),
    "ungraded": (group(None, 1.0, verdict=F), "0.0", S),
    "job_fails": (group(1.0, None, verdict=F), "0.0", S),
    "pending": (None, "0.0", S),
}


@pytest.mark.parametrize("expected", FATES)
def test_fates(expected):
    record, name, verdict = FATES[expected]
    assert fate(record, name, verdict=verdict) == expected


def test_the_fate_of_a_group_and_of_rollouts_that_did_not_succeed():
    assert fate(group(None, None, verdict=F), None) == "ungraded"
    assert fate(group(1.0, None, verdict=F), None) == "job_fails"
    assert fate(group(1.0, 0.0), None) == "trained"
    assert fate(group(None, 1.0, verdict=F), "0.0", verdict=F) == "job_fails"
    assert [fate(None, "0.0", verdict=verdict) for verdict in (F, D, R)] == [
        "job_fails",
        "dropped",
        "dropped",
    ]
    own = GraderRecord("own", 1.0, S, (1.0, 1.0), tok_advantages=((0.0, 0.0), (0.0, 0.5)))
    assert fate(group(1.0, 1.0, graders=(own,)), "0.0") == "trained", "equal rewards, own signal"


def test_who_handled_a_fault():
    nobody = HandledBy.NOBODY
    resent = Attempt(S, 0.1, faults=(fault("model", "429", HandledBy.HARNESS),))
    failed = Attempt(F, 0.1, error="x", where="a.py:1", faults=(fault("tool", "503", nobody),))
    gave_up = Attempt(D, 0.1, error="x", faults=(fault("tool", "timeout", nobody),))
    summary = found(
        group(1.0, 0.0, None, None, verdict=D),
        trajectory("0.0", resent),
        trajectory("0.1", failed, Attempt(S, 0.1)),
        trajectory("0.2", failed, failed, failed, failed),
        trajectory("0.3", gave_up),
    )
    assert [(row.side, row.kind, row.handling, row.count) for row in summary.faults] == [
        ("tool", "503", "nobody", 4),
        ("model", "429", "resent", 1),
        ("tool", "503", "repeated", 1),
        ("tool", "timeout", "given_up", 1),
    ]
    assert [(row.kind, row.handling, row.count) for row in summary.failed_attempts] == [
        ("exception", "nobody", 4),
        ("discard", "given_up", 1),
        ("exception", "repeated", 1),
    ]


SCRIPT = {
    0: [PluginStatus.RETRY, PluginStatus.RETRY, PluginStatus.SUCCESS],
    1: [PluginStatus.RETRY] * 4,
    2: [PluginStatus.FAILURE] * 4,
    3: [PluginStatus.DISCARD],
    4: [None],
    5: [ValueError("no")] * 4,
    6: [RolloutRetryException("down"), PluginStatus.SUCCESS],
}


async def test_scripted_statuses_give_exactly_these_rows():
    """Field case 3.6."""
    script = {index: iter(ends) for index, ends in SCRIPT.items()}

    @rollout
    async def scripted(context, proxy, sample):
        await proxy.async_rollout_client().chat.completions.create(**QUESTION)
        end = next(script[sample.extra["index"]])
        if isinstance(end, Exception):
            raise end
        return None if end is None else RolloutResult(status=end, error="scripted")

    async with running() as run:
        await run.samples(scripted, lines=lines(7))
    summary = statistics_of(run, n=1).summary()
    job_fails = {"failure": 4}, {"job_fails": 4}
    assert [told(row) for row in summary.failures.failed_attempts] == [
        ("rollout", "exception", "nobody", 4, {"4": 4}, *job_fails),
        ("rollout", "failure", "nobody", 4, {"4": 4}, *job_fails),
        ("rollout", "retry", "nobody", 4, {"4": 4}, {"retry": 4}, {"dropped": 4}),
        ("rollout", "retry", "repeated", 3, {"2": 1, "3": 2}, {"success": 3}, {"trained": 3}),
        ("rollout", "discard", "given_up", 1, {"1": 1}, {"discard": 1}, {"dropped": 1}),
    ]
    assert (summary.failures.faults, summary.failures.suspicions) == ((), ())
    assert summary.failures.num_failed_attempts == 16


def statistics_of(run, *, n: int) -> RunStatistics:
    statistics = RunStatistics(n)
    for finished in run.finished:
        statistics.add_trajectory(finished.record)
    for record in run.groups:
        statistics.add_group(record)
    return statistics


async def test_broken_graders_give_exactly_these_rows():
    """Field case 3.7, and one that a second attempt made good."""
    tries = iter(range(100))

    @rollout
    async def asks(context, proxy, sample):
        await proxy.async_rollout_client().chat.completions.create(**QUESTION)

    @group_grader(runtime=Runtime(timeout=0.5))
    async def breaks(context, sample, trajectories):
        match sample.extra["index"]:
            case 0:
                raise RuntimeError("judge answered 503")
            case 1:
                await asyncio.sleep(60)
            case 2:
                return [float("nan")] * len(trajectories)
            case 3:
                return GroupGraderResult(status="discard", error="no judge")
        if next(tries) == 0:
            return GroupGraderResult(status="retry", error="judge is busy")
        return [1.0, 0.0]

    async with running() as run:
        await run.samples(asks, breaks, lines=lines(5), n=2)
    summary = statistics_of(run, n=2).summary()
    ungraded = {"4": 4}, {"failure": 4}, {"ungraded": 4}
    assert [told(row) for row in summary.failures.failed_attempts] == [
        ("grader", "bad_result", "nobody", 4, *ungraded),
        ("grader", "exception", "nobody", 4, *ungraded),
        ("grader", "timeout", "nobody", 4, *ungraded),
        ("grader", "discard", "given_up", 1, {"1": 1}, {"discard": 1}, {"dropped": 1}),
        ("grader", "retry", "repeated", 1, {"2": 1}, {"success": 1}, {"trained": 1}),
    ]
    assert summary.num_ungraded == 6


async def test_a_single_graders_failures_fall_on_the_trajectory_that_it_was_grading():
    @rollout
    async def asks(context, proxy, sample):
        await proxy.async_rollout_client().chat.completions.create(**QUESTION)

    calls = []

    @single_grader
    def judge_fails_once(context, sample, trajectory):
        calls.append(None)
        if len(calls) == 2:
            current_attempt.get().fault("tool", "503", "judge.example", detail="busy")
            raise RuntimeError("judge answered 503")
        return float(len(calls))

    async with running() as run:
        (record,) = await run.samples(asks, judge_fails_once, n=2, concurrency=1)
    (grader,) = record.graders
    (recorded,) = grader.faults
    assert recorded.trajectory_id == grader.failed_attempts[0].trajectory_id
    assert recorded.handled_by is HandledBy.NOBODY
    assert grader.failed_attempts == (
        FailedGrading(
            F,
            "RuntimeError: judge answered 503",
            grader.failed_attempts[0].where,
            recorded.trajectory_id,
        ),
    )
    failures = statistics_of(run, n=2).summary().failures
    (row,) = failures.faults
    assert (row.handling, row.examples) == ("repeated", (recorded.trajectory_id,))
    assert row.shift.num_siblings == 1
    mine, other = (
        failures_of(finished.record, record)
        for finished in sorted(
            run.finished, key=lambda f: f.record.trajectory_id != recorded.trajectory_id
        )
    )
    assert [(one.source, one.kind) for one in mine] == [
        ("judge_fails_once", "503"),
        ("judge_fails_once", "exception"),
    ]
    assert other == []


def test_one_trajectory_that_stays_ungraded_does_not_blame_the_others():
    failed = (FailedGrading(F, "RuntimeError: x", "g.py:1", "0.0"),) * 4
    failed += (FailedGrading(F, "RuntimeError: x", "g.py:1", "0.1"),)
    grader = GraderRecord("g", 1.0, F, (None, 1.0), attempts=4, failed_attempts=failed)
    nobody, repeated = found(group(None, 1.0, verdict=F, graders=(grader,))).failed_attempts
    assert (nobody.handling, nobody.count, nobody.fates) == ("nobody", 4, {"ungraded": 4})
    assert (repeated.handling, repeated.count, repeated.fates) == ("repeated", 1, {"job_fails": 1})


def test_each_grading_of_a_single_grader_took_as_many_attempts_as_it_took_itself():
    failed = (FailedGrading(F, "ValueError: x", "g.py:1", "0.0"),) * 3
    failed += (FailedGrading(F, "KeyError: x", "g.py:2", "0.1"),)
    broken = (fault(by=HandledBy.NOBODY, trajectory_id="0.1"),)
    grader = GraderRecord(
        "g", 1.0, S, (0.0, 1.0, 2.0), attempts=4, failed_attempts=failed, faults=broken
    )
    summary = found(group(0.0, 1.0, 2.0, graders=(grader,)))
    (row,), (by_fault,) = summary.failed_attempts, summary.faults
    assert (row.attempts, by_fault.attempts) == ({"4": 3, "2": 1}, {"2": 1})


def test_a_grading_that_failed_keeps_its_own_verdict_beside_one_that_gave_the_sample_up():
    failed = (FailedGrading(F, "failed", None, "0.0"),) * 4 + (FailedGrading(D, "no", None, "0.1"),)
    grader = GraderRecord("g", 1.0, D, (None, None), attempts=4, failed_attempts=failed)
    rows = found(group(None, None, verdict=D, graders=(grader,))).failed_attempts
    assert [(row.kind, row.verdicts, row.attempts) for row in rows] == [
        ("failure", {"failure": 4}, {"4": 4}),
        ("discard", {"discard": 1}, {"1": 1}),
    ]


def test_the_failures_of_a_group_rollout_count_once_and_concern_the_whole_group():
    attempts = (Attempt(F, 0.1, error="x", where="a.py:1", faults=(fault("tool", "503"),)),)
    attempts += (Attempt(S, 0.1),)
    members = [trajectory(f"0.{index}", *attempts, call_size=2) for index in range(2)]
    summary = found(group(1.0, 0.0), *members)
    (row,) = summary.failed_attempts
    assert told(row)[2:] == ("repeated", 1, {"2": 1}, {"success": 1}, {"trained": 1})
    assert (row.examples, row.shift) == (("0.0",), None)
    assert [row.count for row in summary.faults] == [1]
    assert len(failures_of(members[1], group(1.0, 0.0))) == 2, "each member can be asked"


def test_a_run_without_failures_says_nothing():
    counts = FailureCounts()
    counts.add_trajectory(trajectory("0.0"))
    counts.add_group(group(1.0))
    assert counts.summary() is None
    assert RunStatistics(1).summary().failures is None


def test_what_is_not_graded_yet_is_pending_and_counted_once():
    counts = FailureCounts()
    counts.add_trajectory(trajectory("0.1", went_on_after(fault())))
    for _ in range(2):
        (row,) = counts.summary().faults
        assert (row.count, row.fates, row.shift) == (1, {"pending": 1}, None)
    counts.add_group(group(1.0, 0.0))
    (row,) = counts.summary().faults
    assert (row.count, row.fates) == (1, {"trained": 1})


def test_memory_does_not_grow_with_the_number_of_groups():
    counts, sizes = FailureCounts(), []
    for sample in range(400):
        for generation in range(4):
            faults = (fault(by=HandledBy.PLUGIN),) if generation == sample % 5 else ()
            counts.add_trajectory(trajectory(f"{sample}.{generation}", went_on_after(*faults)))
        counts.add_group(group(*SHIFTED, sample=sample))
        sizes.append(len(pickle.dumps(counts)))
    assert sizes[-1] - sizes[20] < 100
    assert counts.summary().num_faults == 320


ERROR_TEXTS = [
    "Error: 503",
    "error",
    '{"error": "upstream"}',
    "the search failed: no answer",
    "Request timed out after 5 s",
    "search failed with HTTP 503",
    "ReadTimeout",
    "HTTPStatusError: Server error '503 Service Unavailable'",
    "HTTP 503",
    "502 Bad Gateway",
    "搜索失败，请稍后再试",
    [{"type": "text", "text": "Traceback (most recent call last):"}],
]
ORDINARY_TEXTS = [
    "21 degrees",
    "503 results",
    "Error bars in the plot show that it failed to reach ...",
    "The 1962 error of judgement",
    "Failing that, take the bus",
    "Paris is the capital. An error is likely.",
    "",
    None,
]


def test_which_tool_results_are_plainly_errors():
    assert [text for text in ERROR_TEXTS if not is_error_text(text)] == []
    assert [text for text in ORDINARY_TEXTS if is_error_text(text)] == []


def asked(summary: FailureSummary | None) -> list[tuple]:
    suspicions = summary.suspicions if summary is not None else ()
    assert all(one.code in QUESTIONS for one in suspicions)
    return [
        (one.code, one.count, [(e.trajectory_id, e.reward, e.cause) for e in one.examples])
        for one in suspicions
    ]


def test_a_low_reward_after_an_error_is_asked_about():
    timed_out = went_on_after(fault("tool", "timeout"), fault("model", "500"))
    cause = "tool timeout, model 500"
    low = "low_reward_after_error"
    for rewards in ((0.5, 1.0), (0.0, 0.0), (-1.0, -2.0)):
        summary = found(group(*rewards), trajectory("0.0", timed_out))
        assert asked(summary) == [(low, 1, [("0.0", rewards[0], cause)])]
    for rewards in ((1.0, 0.5), (1.0, 1.0), (0.5,)):
        assert asked(found(group(*rewards), trajectory("0.0", timed_out))) == []
    assert asked(found(group(None, 1.0, verdict=D), trajectory("0.0", timed_out))) == []


def test_an_error_in_a_group_rollout_is_asked_of_the_group_not_of_one_member():
    members = [trajectory(f"0.{index}", went_on_after(fault()), call_size=3) for index in range(3)]
    (asked_once,) = found(group(1.0, 0.0, -1.0), *members).suspicions
    assert asked_once.count == 1
    (suspect,) = asked_once.examples
    assert (suspect.trajectory_id, suspect.reward) == ("0.2", -1.0)
    assert suspect.is_whole_group
    assert asked(found(group(1.0, 1.0, 1.0), *members)) == []
    alone = found(group(1.0, 0.0), trajectory("0.1", went_on_after(fault()))).suspicions
    assert not alone[0].examples[0].is_whole_group


def test_a_model_error_that_was_swallowed_is_asked_about_also_without_a_fault():
    swallowed = trajectory("0.0", warnings=("exception_swallowed: EndpointError: no",))
    assert asked(found(group(0.0, 1.0), swallowed)) == [
        ("low_reward_after_error", 1, [("0.0", 0.0, "model error")])
    ]


def test_what_the_plugin_never_saw_is_not_asked_about():
    resent = went_on_after(fault("model", "429", HandledBy.HARNESS), fault("tool", "slow"))
    failed = Attempt(F, 0.1, error="x", faults=(fault(by=HandledBy.NOBODY),))
    as_a_policy_may_answer = went_on_after(fault("model", "garbage"), fault("model", "empty"))
    summary = found(
        group(0.0, 0.0, 0.0),
        trajectory("0.0", resent),
        trajectory("0.1", failed, Attempt(S, 0.1)),
        trajectory("0.2", as_a_policy_may_answer),
    )
    assert asked(summary) == []
    garbage = trajectory("0.0", went_on_after(fault("tool", "garbage")))
    assert asked(found(group(0.0, 0.0), garbage)) != [], "a service gives no garbage on its own"


def test_what_the_plugins_own_retry_made_good_is_not_asked_about():
    mended = fault(is_answered_later=True)
    assert asked(found(group(0.0, 1.0), trajectory("0.0", went_on_after(mended)))) == []
    both = went_on_after(mended, fault("tool", "timeout"))
    assert asked(found(group(0.0, 1.0), trajectory("0.0", both))) == [
        ("low_reward_after_error", 1, [("0.0", 0.0, "tool timeout")])
    ]


def test_an_error_told_to_the_model_is_asked_about_whatever_the_reward():
    messages = ({"role": "tool", "content": "Error: 503 from search"},)
    member = trajectory("0.0", went_on_after(fault()), messages=messages)
    assert asked(found(group(1.0, 0.0), member)) == [
        ("error_as_tool_result", 1, [("0.0", 1.0, "tool 503")])
    ]
    fine = trajectory("0.0", went_on_after(fault()), messages=({**messages[0], "content": "21"},))
    assert asked(found(group(1.0, 0.0), fine)) == []


def test_a_reward_from_a_grader_whose_call_failed_is_asked_about():
    broken = (fault("tool", "503", trajectory_id="0.1"), fault("tool", "503", trajectory_id="0.1"))
    single = GraderRecord("judge", 1.0, S, (1.0, 0.0), faults=broken)
    code = "reward_after_grader_error"
    summary = found(group(1.0, 0.0, graders=(single,)))
    assert asked(summary) == [(code, 1, [("0.1", 0.0, "tool 503")])]
    whole = GraderRecord("judge", 1.0, S, (0.5, 0.25), faults=(fault("tool", "timeout"),))
    summary = found(group(1.0, 0.0, graders=(whole,)))
    assert asked(summary) == [(code, 1, [("0.1", 0.25, "tool timeout")])]
    repeated = GraderRecord("judge", 1.0, S, (1.0, 0.0), faults=(fault(by=HandledBy.NOBODY),))
    assert asked(found(group(1.0, 0.0, graders=(repeated,)))) == [], "its attempt failed: good"
    observed = GraderRecord("judge", 0.0, S, (0.0, 0.0), faults=broken)
    assert asked(found(group(1.0, 0.0, graders=(observed,)))) == [], "it decides nothing"


def test_at_most_three_examples_are_kept_and_all_are_counted():
    bad = [trajectory(f"0.{index}", went_on_after(fault())) for index in range(5)]
    ((_, count, examples),) = asked(found(group(0.0, 0.0, 0.0, 0.0, 0.0), *bad))
    assert (count, [name for name, _, _ in examples]) == (5, ["0.0", "0.1", "0.2"])


async def test_a_tool_error_that_a_rollout_swallows_shows_up_in_the_run():
    @rollout
    async def swallows(context, proxy, sample):
        client = proxy.async_rollout_client()
        messages = [*QUESTION["messages"]]
        await client.chat.completions.create(model="m", messages=messages)
        if sample.extra["index"] == 0:
            current_attempt.get().fault("tool", "503", "api.example", detail="busy")
            return RolloutResult(extra={"reward": 0.0})
        return RolloutResult(extra={"reward": 1.0})

    @single_grader
    def from_extra(context, sample, trajectory):
        return trajectory.extra["reward"]

    async with running() as run:
        await run.samples(swallows, from_extra, always_one, lines=lines(2))
    failures = statistics_of(run, n=1).summary().failures
    assert asked(failures) == [], "1 of two graders: the weighted reward is 1"
    async with running() as run:
        await run.samples(swallows, from_extra, lines=lines(2))
    failures = statistics_of(run, n=1).summary().failures
    assert asked(failures) == [("low_reward_after_error", 1, [("0.0", 0.0, "tool 503")])]


def test_errors_of_a_grader_that_a_later_attempt_made_good_are_listed_with_their_texts():
    repaired = (FailedGrading(F, "ValueError: once", "g.py:1", "0.1"),)
    failing = (FailedGrading(F, "KeyError: always", "g.py:2", "0.0"),) * 4
    statistics = RunStatistics(2)
    for name in ("0.0", "0.1"):
        statistics.add_trajectory(trajectory(name))
    grader = GraderRecord(
        "g", 1.0, F, (None, 1.0), attempts=4, error="x", failed_attempts=failing + repaired
    )
    statistics.add_group(group(None, 1.0, verdict=F, graders=(grader,)))
    assert [
        (one.source, one.message, one.where, one.count, one.num_final, one.examples)
        for one in statistics.summary().errors
    ] == [
        ("grader g", "KeyError: always", "g.py:2", 4, 1, ("0.0",)),
        ("grader g", "ValueError: once", "g.py:1", 1, 0, ("0.1",)),
    ]
