"""What changed between two gradings."""

from __future__ import annotations

from arkdev.harness.reward_changes import ChangesOfRewards, ChangesOfRun
from arkdev.runs.records import GraderRecord, GroupRecord, Verdict


def grader(name: str, *rewards: float | None) -> GraderRecord:
    return GraderRecord(name, weight=1.0, verdict=Verdict.SUCCESS, rewards=rewards)


def record(*graders: GraderRecord, verdict: Verdict = Verdict.SUCCESS) -> GroupRecord:
    return GroupRecord(0, verdict, ("0.0", "0.1"), graders[0].rewards, graders)


def test_means_are_over_those_that_have_both_rewards() -> None:
    changes = ChangesOfRewards("x")
    names = ["0.0", "0.1", "0.2", "0.3", "0.4"]
    changes.add(names, before=[1.0, 2.0, None, 4.0, None], after=[1.0, 4.0, 9.0, None, None])
    summary = changes.summary()
    assert (summary.num_compared, summary.num_unchanged, summary.num_raised) == (2, 1, 1)
    assert (summary.num_newly_graded, summary.num_newly_ungraded) == (1, 1)
    assert (summary.mean_before, summary.mean_after) == (1.5, 2.5)
    assert (summary.newly_ungraded, summary.num_changed) == (("0.3",), 3)


def test_the_largest_changes_come_first_and_the_earlier_of_equals() -> None:
    changes = ChangesOfRewards("x")
    for index, delta in enumerate([1.0, -3.0, 2.0, 3.0, 0.5, 0.25, 0.125]):
        changes.add([f"{index}.0"], before=[10.0], after=[10.0 + delta])
    largest = [change.trajectory_id for change in changes.summary().largest]
    assert largest == ["1.0", "3.0", "2.0", "0.0", "4.0"]


def test_huge_rewards_have_a_mean() -> None:
    changes = ChangesOfRewards("x")
    changes.add(["0.0", "0.1"], before=[1e308, 1e308], after=[1e308, 1e308])
    assert changes.summary().mean_after == 1e308


def test_graders_that_came_and_went_are_named() -> None:
    changes = ChangesOfRun()
    before = record(grader("kept", 1.0, 1.0), grader("gone", 0.0, 0.0))
    after = record(grader("kept", 1.0, 0.5), grader("new", 2.0, 2.0))
    changes.add(before, after)
    summary = changes.summary()
    assert [part.name for part in summary.graders] == ["kept"]
    assert summary.graders[0].num_lowered == 1
    assert (summary.new_graders, summary.gone_graders) == (("new",), ("gone",))


def test_verdicts_that_changed_are_counted() -> None:
    changes = ChangesOfRun()
    good = record(grader("g", 1.0, 1.0))
    changes.add(good, good)
    changes.add(good, record(grader("g", None, None), verdict=Verdict.DISCARD))
    (change,) = changes.summary().verdicts
    assert (change.before, change.after, change.num_groups) == ("success", "discard", 1)
