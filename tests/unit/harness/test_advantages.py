"""The documented GRPO, worked by hand, and advantages that graders give; field case 3.2."""

import math

import pytest

from arkdev import GroupGraderResult, group_grader, rollout, single_grader
from arkdev.errors import PluginResultError
from arkdev.harness.advantages import (
    batch_advantages,
    group_advantages,
    grpo_advantages,
    token_advantages,
)
from arkdev.runs.reader import RunReader
from arkdev.runs.records import GraderRecord, GroupRecord, Verdict
from arkdev.runs.writer import RunWriter
from tests.running import QUESTION, always_one, as_grader, lines, running, with_tokens


@rollout
async def asks(context, proxy, sample):
    await proxy.async_rollout_client().chat.completions.create(**QUESTION)


def grader(name: str = "own", *, weight: float = 1.0, **fields) -> GraderRecord:
    return GraderRecord(name, weight, Verdict.SUCCESS, (1.0, 0.0), **fields)


def group(sample: int, *graders: GraderRecord, rewards=(1.0, 0.0)) -> GroupRecord:
    ids = tuple(f"{sample}.{index}" for index in range(len(rewards)))
    return GroupRecord(sample, Verdict.SUCCESS, ids, rewards, graders=graders)


def test_very_large_rewards_have_the_advantages_of_small_ones_in_proportion():
    huge = grpo_advantages([1.7e308, -1.7e308, 1.7e308, 1e307])
    assert huge == pytest.approx(grpo_advantages([17e6, -17e6, 17e6, 1e6]))


def test_grpo_is_the_documented_formula():
    # mean 0.25, squares 0.5625 + 3 · 0.0625 = 0.75, over n - 1 = 3: variance 0.25, std 0.5
    winner, *others = grpo_advantages([1.0, 0.0, 0.0, 0.0])
    assert winner == pytest.approx(0.75 / 0.500001, abs=1e-15)
    assert others == pytest.approx([-0.25 / 0.500001] * 3, abs=1e-15)
    # mean 3, squares 4 + 1 + 9 = 14, over 2: std sqrt(7)
    std = math.sqrt(7) + 1e-6
    assert grpo_advantages([1, 2, 6]) == pytest.approx([-2 / std, -1 / std, 3 / std], abs=1e-15)


def test_rewards_that_hardly_differ_are_damped_by_the_epsilon():
    # mean 1e-6, deviations ±1e-6, std sqrt(2)e-6: 1 / (sqrt(2) + 1)
    assert grpo_advantages([0.0, 2e-6]) == pytest.approx([1 - math.sqrt(2), math.sqrt(2) - 1])


def test_a_group_of_one_keeps_its_reward():
    assert [grpo_advantages([reward]) for reward in (0.7, 0.0, -2.0)] == [[0.7], [0.0], [-2.0]]
    assert grpo_advantages([]) == []


@pytest.mark.parametrize(
    "rewards",
    [[0.0] * 4, [0.1] * 3, [0.1 + 0.2, 0.3, 0.3], [0.1 + 0.2 - 0.3, 0.0], [7e15 + 1, 7e15]],
)
def test_equal_rewards_give_exactly_0_also_when_sums_were_rounded(rewards):
    assert grpo_advantages(rewards) == [0.0] * len(rewards)


def test_large_rewards_do_not_overflow():
    assert grpo_advantages([1e300, -1e300]) == pytest.approx([math.sqrt(0.5), -math.sqrt(0.5)])


def test_members_without_a_reward_have_no_advantage_and_do_not_count_in_the_others():
    found = group_advantages(group(0, rewards=(1.0, None, 0.0, None)))
    assert found[1] is found[3] is None
    assert [found[0], found[2]] == grpo_advantages([1.0, 0.0])


def test_a_graders_own_advantages_stand_as_they_are_whatever_the_weights():
    own = grader(weight=5.0, seq_advantages=(3.0, -4.0))
    observed = grader("observed", weight=0.0, seq_advantages=(9.0, 9.0))
    assert group_advantages(group(0, observed, grader("rewards only"), own)) == (3.0, -4.0)
    with_none = group(0, grader(seq_advantages=(3.0, None)), rewards=(1.0, None))
    assert group_advantages(with_none) == (3.0, None)
    own_tokens = grader(tok_advantages=((1.0, 2.0), (3.0,)))
    assert group_advantages(group(0, own_tokens)) == ((1.0, 2.0), (3.0,))


def test_two_graders_that_both_give_advantages_are_refused_by_name():
    two = (grader("a", seq_advantages=(1.0, 0.0)), grader("b", tok_advantages=((1.0,), (0.0,))))
    with pytest.raises(PluginResultError, match="graders a and b both gave advantages"):
        group_advantages(group(0, *two))


def test_a_batch_with_advantages_for_some_of_its_samples_only_is_refused():
    own, none = grader(seq_advantages=(1.0, 0.0)), grader()
    batch = [group(4, own), group(7, none), group(8, own)]
    with pytest.raises(
        PluginResultError, match=r"own gave advantages for 2 of 3 groups .* none for sample 7"
    ):
        batch_advantages(batch)
    without_rewards = group(7, rewards=(None, None))
    kept = batch_advantages([batch[0], without_rewards])
    assert kept == {"4.0": 1.0, "4.1": 0.0}, "a group that is not trained on has no say"


def test_both_kinds_may_be_in_one_batch_and_become_one():
    batch = [
        group(0, grader(seq_advantages=(2.0, -1.0))),
        group(1, grader(tok_advantages=((0.5, 0.25, -8.0), (9.0, 9.0)))),
    ]
    weights = {"0.0": [0, 1, 1], "0.1": [0, 1], "1.0": [0, 1, 1], "1.1": [1, 0]}
    expanded = {
        name: token_advantages(advantage, loss_weight=weights[name])
        for name, advantage in batch_advantages(batch).items()
    }
    assert expanded == {
        "0.0": [0.0, 2.0, 2.0],
        "0.1": [0.0, -1.0],
        "1.0": [0.0, 0.25, -8.0],
        "1.1": [9.0, 0.0],
    }


def test_an_advantage_of_a_sequence_goes_to_each_of_its_trained_tokens():
    assert token_advantages(-0.5, loss_weight=[0, 0, 1, 1, 0.5]) == [0, 0, -0.5, -0.5, -0.5]


def test_advantages_of_tokens_are_masked_again_and_placeholders_do_not_matter():
    assert token_advantages((99.0, 2.0, 99.0), loss_weight=[0, 1, 0]) == [0, 2.0, 0]
    with pytest.raises(PluginResultError, match="2 tok_advantages for 3 tokens"):
        token_advantages((1.0, 2.0), loss_weight=[0, 1, 1])


async def test_a_grader_may_give_advantages_of_its_own_and_the_record_keeps_them(tmp_path):
    @group_grader
    def own(context, sample, trajectories):
        rewards = [1.0] * len(trajectories)
        return GroupGraderResult(rewards=rewards, seq_advantages=[2.0, -1.0])

    calls = []

    @rollout
    async def second_fails(context, proxy, sample):
        calls.append(None)
        if 2 <= len(calls) <= 5:
            raise RuntimeError("no")
        await asks(context, proxy, sample)

    async with running() as run:
        (found,) = await run.samples(second_fails, own, n=3, concurrency=1)
    (record,) = found.graders
    assert record.seq_advantages == (2.0, None, -1.0), "by member, as the rewards are"
    assert record.rewards == found.rewards == (1.0, None, 1.0)
    assert (record.tok_advantages, group_advantages(found)) == (None, (2.0, None, -1.0))
    writer = RunWriter.create(tmp_path, kind="test", settings={}, hashes={}, versions={})
    writer.group(found)
    writer.finish("finished", {})
    assert list(RunReader(writer.folder).groups()) == [found]


async def test_advantages_of_tokens_align_with_the_tokens_that_the_grader_saw(tmp_path):
    @group_grader
    def own(context, sample, trajectories):
        rows = [[0.5] * len(t.total_token_ids or ()) for t in trajectories]
        assert [len(t.total_loss_weight or ()) for t in trajectories] == [len(r) for r in rows]
        if sample.extra["index"]:
            rows[0].pop()
        return GroupGraderResult(rewards=[1.0] * len(rows), tok_advantages=rows)

    async with running(lambda _: with_tokens([1, 2, 3], [4, 5], [-0.1, -0.2])) as run:
        good, short = await run.samples(asks, own, lines=lines(2), n=2)
    assert good.graders[0].tok_advantages == ((0.5,) * 5,) * 2
    assert short.verdict is Verdict.FAILURE
    assert "own returned 4 tok_advantages for trajectory 0, which has 5 tokens" in short.error
    writer = RunWriter.create(tmp_path, kind="test", settings={}, hashes={}, versions={})
    writer.group(good)
    writer.finish("finished", {})
    assert list(RunReader(writer.folder).groups()) == [good]


async def test_a_group_to_which_two_graders_gave_advantages_has_failed():
    def gives(context, sample, trajectories):
        rewards = [0.0] * len(trajectories)
        return GroupGraderResult(rewards=rewards, seq_advantages=rewards)

    graders = [group_grader(name=name)(gives) for name in ("a", "b")]
    async with running() as run:
        (found,) = await run.samples(asks, *graders, always_one)
    assert (found.verdict, found.error.partition("\n")[0]) == (
        Verdict.FAILURE,
        "graders a and b both gave advantages",
    )
    async with running() as run:
        (found,) = await run.samples(asks, graders[0], as_grader(graders[1], weight=0))
    assert found.verdict is Verdict.SUCCESS, "one of weight 0 is only observed"


async def test_a_single_grader_cannot_give_advantages():
    @single_grader
    def own(context, sample, trajectory):
        return GroupGraderResult(rewards=[1.0], seq_advantages=[1.0])

    async with running() as run:
        (found,) = await run.samples(asks, own)
    assert "own returned advantages" in found.error
    assert found.rewards == (None,)
