"""Two graders in training terms, against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest

from arkdev.harness.grader_diff import DiffOfGraders, GraderDiff
from arkdev.harness.rank_correlation import pearson, spearman
from arkdev.runs.recorded import RecordedTrajectory
from arkdev.runs.records import (
    Attempt,
    GraderRecord,
    GroupRecord,
    TokenRecord,
    TrajectoryRecord,
    Verdict,
)


def trajectory(
    name: str,
    *,
    usage: int | None = None,
    weights: tuple[float, ...] | None = None,
    verdict: Verdict = Verdict.SUCCESS,
) -> RecordedTrajectory:
    sample, generation = map(int, name.split("."))
    record = TrajectoryRecord(
        name,
        sample,
        generation,
        verdict,
        duration_s=1.0,
        attempts=(Attempt(verdict, 1.0),),
        usage=None if usage is None else {"completion_tokens": usage},
    )
    zeros = (0.0,) * len(weights or ())
    tokens = TokenRecord(name, tuple(map(int, zeros)), weights, zeros) if weights else None
    return RecordedTrajectory(record, tokens, b"", None)


def graded(members: list[RecordedTrajectory], rewards: list[float | None], **own) -> GroupRecord:
    names = tuple(member.record.trajectory_id for member in members)
    grader = GraderRecord("g", weight=1.0, verdict=Verdict.SUCCESS, rewards=tuple(rewards), **own)
    return GroupRecord(0, Verdict.SUCCESS, names, tuple(rewards), (grader,))


def compared(*groups: tuple[list[RecordedTrajectory], GroupRecord, GroupRecord]) -> GraderDiff:
    diff = DiffOfGraders("a", "b")
    for members, a, b in groups:
        diff.add(members, a, b)
    return diff.summary()


def group(
    a: list[float | None], b: list[float | None], *, sizes: list[int] | None = None, index: int = 0
) -> tuple[list[RecordedTrajectory], GroupRecord, GroupRecord]:
    members = [
        trajectory(f"{index}.{generation}", usage=sizes[generation] if sizes else None)
        for generation in range(len(a))
    ]
    return members, graded(members, a), graded(members, b)


def test_the_worked_example_of_the_documents() -> None:
    """docs/replay.md: four answers, of 10, 30, 40 and 20 tokens.

    A: mean 0.25, deviations 0.75 -0.25 -0.25 -0.25, std 0.5:   1.5 -0.5 -0.5 -0.5
    B: mean 0.375, deviations 0.125 0.625 -0.375 -0.375, std 0.4787: 0.261 1.306 -0.783 -0.783
    weights of A: 15 15 20 10, together 60; the second one turns round: 15/60
    """
    diff = compared(group([1.0, 0.0, 0.0, 0.0], [0.5, 1.0, 0.0, 0.0], sizes=[10, 30, 40, 20]))
    pairs = diff.pairs
    assert (pairs.num_pairs, pairs.num_same, pairs.num_flipped) == (6, 2, 1)
    assert (pairs.num_ties_broken, pairs.num_ties_made, pairs.num_tied) == (2, 0, 1)
    assert (diff.signs.num_same, diff.signs.num_flipped) == (3, 1)
    assert diff.signal.num_both == 1
    assert diff.gradient.counted_by == "completion tokens"
    assert diff.gradient.flipped == pytest.approx(0.25)
    assert diff.gradient.lost == 0.0
    assert diff.moved[0].trajectory_id == "0.1"
    assert diff.moved[0].advantage_a == pytest.approx(-0.5, abs=1e-5)
    assert diff.moved[0].advantage_b == pytest.approx(0.625 / math.sqrt(0.6875 / 3), abs=1e-5)
    assert (diff.mean_a, diff.mean_b) == (0.25, 0.375)
    assert diff.flipped_groups == ("0.0",)


def test_the_same_rewards_change_nothing() -> None:
    diff = compared(group([1.0, 0.0, 0.5], [1.0, 0.0, 0.5]))
    assert (diff.pairs.num_same, diff.signs.num_same, diff.moved) == (3, 3, ())
    assert (diff.gradient.flipped, diff.gradient.lost) == (0.0, 0.0)
    assert (diff.pearson, diff.spearman) == pytest.approx((1.0, 1.0))


def test_another_scale_changes_nothing_either() -> None:
    diff = compared(group([1.0, 0.0, 0.5], [10.0, 5.0, 7.5]))
    assert diff.pairs.num_same == 3
    assert diff.gradient.flipped == 0.0
    assert [abs(one.advantage_b - one.advantage_a) < 1e-4 for one in diff.moved] == [True] * len(
        diff.moved
    )


def test_groups_gain_and_lose_their_signal() -> None:
    diff = compared(
        group([1.0, 1.0], [1.0, 0.0], index=0),  # gains
        group([1.0, 0.0], [0.3, 0.1 + 0.2], index=1),  # loses: the same but for rounding
        group([0.0, 0.0], [2.0, 2.0], index=2),  # never had one
    )
    signal = diff.signal
    assert (signal.num_gained, signal.num_lost, signal.num_neither, signal.num_both) == (1, 1, 1, 0)
    assert (diff.signs.num_gained, diff.signs.num_lost) == (2, 2)
    assert (diff.pairs.num_ties_broken, diff.pairs.num_ties_made, diff.pairs.num_tied) == (1, 1, 1)
    assert (diff.gradient.flipped, diff.gradient.lost) == (0.0, 1.0)


def test_an_advantage_that_should_be_zero_has_no_sign() -> None:
    # the mean of 0.1, 0.2, 0.3 is not 0.2 in floating point
    diff = compared(group([0.1, 0.2, 0.3], [0.3, 0.2, 0.1]))
    assert (diff.signs.num_flipped, diff.signs.num_same) == (2, 1)
    assert diff.gradient.flipped == pytest.approx(1.0)


def test_only_groups_that_both_graded_whole_are_compared() -> None:
    diff = compared(
        group([1.0, 0.0], [None, None], index=0),
        group([None, 1.0], [0.0, 1.0], index=1),
        group([None, None], [None, None], index=2),
    )
    assert (diff.num_groups, diff.num_only_a, diff.num_only_b, diff.num_neither) == (0, 1, 1, 1)
    assert (diff.mean_a, diff.pearson, diff.gradient.flipped) == (None, None, None)


def test_a_failed_rollout_in_a_group_leaves_the_others_compared() -> None:
    members = [trajectory("0.0"), trajectory("0.1", verdict=Verdict.FAILURE), trajectory("0.2")]
    a, b = graded(members, [1.0, None, 0.0]), graded(members, [0.0, None, 1.0])
    diff = compared((members, a, b))
    assert (diff.num_groups, diff.num_trajectories, diff.pairs.num_flipped) == (1, 2, 1)


def test_token_evidence_counts_before_usage_and_usage_before_nothing() -> None:
    """Weights 1.0, 0.0 of one loss_weight: only trained tokens count: 1 against 3."""
    members = [
        trajectory("0.0", usage=50, weights=(0.0, 1.0)),
        trajectory("0.1", usage=50, weights=(0.0, 1.0, 1.0, 1.0)),
    ]
    a, b = graded(members, [1.0, 0.0]), graded(members, [1.0, 1.0])
    assert compared((members, a, b)).gradient.counted_by == "trained tokens"
    unknown = [trajectory("1.0"), trajectory("1.1", usage=5)]
    c, d = graded(unknown, [1.0, 0.0]), graded(unknown, [0.0, 1.0])
    assert compared((members, a, b), (unknown, c, d)).gradient.counted_by == "trajectories"


def test_advantages_of_a_grader_s_own_are_used_token_by_token() -> None:
    """B gives advantages itself: of the three trained tokens of the first answer two turn round.

    A: rewards 1 and 0: ±0.7071 each. Weight of A: 3 tokens and 1 token. Turned: 2 of 4.
    """
    members = [
        trajectory("0.0", weights=(0.0, 1.0, 1.0, 1.0)),
        trajectory("0.1", weights=(0.0, 1.0)),
    ]
    own = ((9.0, 1.0, -1.0, -1.0), (9.0, -1.0))
    a = graded(members, [1.0, 0.0])
    b = graded(members, [1.0, 0.0], tok_advantages=own)
    diff = compared((members, a, b))
    assert diff.gradient.flipped == pytest.approx(0.5)
    assert diff.signs.num_flipped == 1  # the mean of 1, -1, -1 is below 0
    assert diff.moved[0].advantage_b == pytest.approx(-1 / 3)


def test_advantages_for_each_trajectory_stand_as_they_are() -> None:
    members, a, _ = group([1.0, 0.0], [0.0, 0.0])
    b = graded(members, [1.0, 0.0], seq_advantages=(-2.0, 3.0))
    diff = compared((members, a, b))
    assert diff.signs.num_flipped == 2
    assert diff.moved[0].advantage_b == 3.0


def test_ranks_share_the_mean_of_their_places() -> None:
    # ranks 1.5 1.5 3 4 and 1 2 3 4: 1 - correlation by hand: 4.5 / sqrt(4.5 * 5)
    assert spearman([0.0, 0.0, 1.0, 2.0], [1.0, 2.0, 3.0, 100.0]) == pytest.approx(
        4.5 / math.sqrt(4.5 * 5)
    )
    assert pearson([1.0, 1.0], [1.0, 2.0]) is None
    assert pearson([1.0], [1.0]) is None
