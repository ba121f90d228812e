"""Batches under discards (field case 3.3): groups leave whole, the others stay bit for bit."""

import dataclasses

import pytest

from arkdev.errors import PluginResultError
from arkdev.harness.advantages import token_advantages
from arkdev.harness.batches import compose_batch
from arkdev.job.batches import Batch
from arkdev.runs.records import GraderRecord, GroupRecord, Verdict

REWARDS = {7: (1.0, 0.0, 0.5, 0.0), 3: (0.1, 0.7, 0.7, 0.3), 5: (0.0, 0.0, 0.0, 1.0)}
BATCH = Batch(step=2, epoch=0, step_in_epoch=2, indices=(7, 3, 5))


def group(sample: int, verdict: Verdict = Verdict.SUCCESS, **changes) -> GroupRecord:
    rewards = REWARDS[sample] if verdict is Verdict.SUCCESS else (None,) * 4
    ids = tuple(f"{sample}.{member}" for member in range(4))
    return dataclasses.replace(GroupRecord(sample, verdict, ids, rewards), **changes)


def test_a_masked_member_takes_no_value_from_the_others():
    """(a) One truncated member of group 0 enters no loss; the other 11 keep their values."""
    composed = compose_batch(BATCH, map(group, (7, 3, 5)))
    weights = {name: [0.0, 1.0, 1.0] for name in composed.advantages}
    before = {
        name: token_advantages(advantage, loss_weight=weights[name])
        for name, advantage in composed.advantages.items()
    }
    weights["7.1"] = [0.0, 0.0, 0.0]
    after = {
        name: token_advantages(advantage, loss_weight=weights[name])
        for name, advantage in composed.advantages.items()
    }
    assert after.pop("7.1") == [0.0, 0.0, 0.0]
    assert before.pop("7.1") != [0.0, 0.0, 0.0]
    assert len(after) == 11
    assert after == before


@pytest.mark.parametrize("verdict", [Verdict.DISCARD, Verdict.RETRY])
def test_a_discarded_group_leaves_whole_and_the_others_are_as_without_it(verdict):
    """(b) Group 1 leaves; groups 0 and 2 are bit-identical to a run without it."""
    composed = compose_batch(BATCH, [group(5), group(3, verdict), group(7)])
    without = compose_batch(dataclasses.replace(BATCH, indices=(7, 5)), map(group, (7, 5)))
    assert [kept.sample_index for kept in composed.groups] == [7, 5]
    assert composed.groups == without.groups
    assert composed.advantages == without.advantages
    assert {name.partition(".")[0] for name in composed.advantages} == {"7", "5"}
    assert not composed.is_skipped
    why = "discarded" if verdict is Verdict.DISCARD else "dropped after its retries"
    assert composed.message == f"step 2 is smaller: 1 of its 3 groups left (1 {why})"


def test_a_step_that_loses_all_its_groups_is_skipped_with_a_message():
    """(c) Everything discarded: no NaN, nothing to wait for."""
    composed = compose_batch(BATCH, [group(n, Verdict.DISCARD) for n in (3, 5, 7)])
    assert composed.is_skipped
    assert (composed.groups, composed.advantages, composed.num_without_signal) == ((), {}, 0)
    assert composed.message == "step 2 is skipped: none of its 3 groups is left (3 discarded)"


def test_the_order_is_the_plans_whatever_was_done_first():
    composed = [
        compose_batch(BATCH, map(group, order)) for order in ((7, 3, 5), (5, 7, 3), (3, 5, 7))
    ]
    assert [g.sample_index for g in composed[1].groups] == [7, 3, 5]
    assert composed[0] == composed[1] == composed[2]
    assert list(composed[0].advantages) == list(composed[2].advantages)
    assert composed[0].message == ""


def test_ungraded_and_failed_groups_are_told_apart():
    ungraded = group(3, rewards=(None,) * 4)
    composed = compose_batch(BATCH, [group(7), ungraded, group(5, Verdict.FAILURE)])
    assert dict(composed.dropped) == {3: "ungraded", 5: "failed"}
    assert "(1 ungraded, 1 failed)" in composed.message


def test_a_member_without_a_reward_is_in_no_batch():
    composed = compose_batch(BATCH, [group(7, rewards=(1.0, None, 0.0, 0.0)), group(3), group(5)])
    assert "7.1" not in composed.advantages
    assert len(composed.advantages) == 11


def test_a_batch_with_nothing_to_learn_says_so():
    same = [group(n, rewards=(0.5,) * 4) for n in (7, 3, 5)]
    composed = compose_batch(BATCH, same)
    assert not composed.is_skipped
    assert composed.num_without_signal == 3
    assert composed.message.startswith("step 2 has nothing to learn from")
    assert compose_batch(BATCH, [*same[:2], group(5)]).num_without_signal == 2


def test_advantages_for_some_groups_alone_are_refused_but_not_for_one_that_left():
    own = GraderRecord(
        "mine", 1.0, Verdict.SUCCESS, (1.0,) * 4, seq_advantages=(1.0, -1.0, 0.0, 0.0)
    )
    with pytest.raises(PluginResultError, match="mine gave advantages for 2 of 3 groups"):
        compose_batch(BATCH, [group(7, graders=(own,)), group(3), group(5, graders=(own,))])
    composed = compose_batch(
        BATCH,
        [group(7, graders=(own,)), group(3, Verdict.DISCARD), group(5, graders=(own,))],
    )
    assert composed.advantages["5.1"] == -1.0


@pytest.mark.parametrize("samples", [(7, 3), (7, 3, 5, 4), (7, 3, 3)])
def test_the_groups_of_another_step_are_refused(samples):
    groups = [dataclasses.replace(group(5), sample_index=sample) for sample in samples]
    with pytest.raises(ValueError, match="step 2"):
        compose_batch(BATCH, groups)
