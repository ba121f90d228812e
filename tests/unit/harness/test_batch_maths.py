"""The maths of a step against independent references, and its laws, on random input.

Advantages (ADV-02, ADV-05), weighted rewards (OBS-12), batches under discards, drops and failures
(field case 3.3), through whole jobs and from any step on.
"""

from __future__ import annotations

import math
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from arkdev.harness.advantages import EPSILON, are_equal, grpo_advantages
from arkdev.harness.batches import compose_batch
from arkdev.harness.grading import weighted_rewards
from arkdev.job.batches import BatchPlan
from arkdev.runs.records import GraderRecord, GroupRecord, Verdict

quick = settings(max_examples=40, database=None, deadline=None, derandomize=True)
# multiples of 1/64 below 2^20: sums, shifts and doublings of them are exact
exact = st.integers(-(2**26), 2**26).map(lambda n: n / 64)
groups = st.lists(exact, min_size=2, max_size=12)


def reference(rewards) -> np.ndarray:
    """The documents' code in float64: sample variance, std + 1e-6, mean 0 and std 1 of one."""
    r = np.array(rewards, dtype=np.float64)
    if len(r) == 1:
        return (r - 0.0) / 1.0
    return (r - r.mean()) / (r.std(ddof=1) + 1e-6)


@quick
@given(groups)
def test_advantages_are_those_of_the_documents_code(rewards):
    np.testing.assert_allclose(grpo_advantages(rewards), reference(rewards), rtol=1e-9, atol=1e-9)


@quick
@given(rewards=groups, shift=exact)
def test_what_is_added_to_all_rewards_changes_nothing(rewards, shift):
    moved = [reward + shift for reward in rewards]
    assume(are_equal(moved) == are_equal(rewards))  # a large shift makes a small spread no spread
    assert grpo_advantages(moved) == pytest.approx(grpo_advantages(rewards), rel=1e-9, abs=1e-9)


@quick
@given(rewards=groups, power=st.integers(-6, 6))
def test_a_scale_changes_them_by_the_epsilon_alone(rewards, power):
    """With k r in place of r: deviation × k / (std × k + 1e-6)."""
    k = 2.0**power
    scaled = [k * reward for reward in rewards]
    assume(not are_equal(rewards) and not are_equal(scaled))
    std = float(np.std(rewards, ddof=1))
    factor = k * (std + EPSILON) / (k * std + EPSILON)
    expected = [factor * advantage for advantage in grpo_advantages(rewards)]
    assert grpo_advantages(scaled) == pytest.approx(expected, rel=1e-9)


@quick
@given(rewards=groups, seed=st.integers(0, 2**32))
def test_each_member_keeps_its_own_whatever_the_order(rewards, seed):
    order = list(range(len(rewards)))
    Random(seed).shuffle(order)
    found = grpo_advantages([rewards[i] for i in order])
    expected = grpo_advantages(rewards)
    assert found == pytest.approx([expected[i] for i in order], rel=1e-12, abs=1e-15)


@quick
@given(groups)
def test_they_add_up_to_nothing_and_have_the_order_of_the_rewards(rewards):
    advantages = grpo_advantages(rewards)
    assert math.fsum(advantages) == pytest.approx(0.0, abs=1e-9)
    pairs = sorted(zip(rewards, advantages, strict=True))
    assert all(a <= b for (_, a), (_, b) in pairwise(pairs))


@quick
@given(reward=st.floats(-1e300, 1e300), size=st.integers(1, 12))
def test_equal_rewards_give_exactly_0_and_one_alone_keeps_its_own(reward, size):
    assert grpo_advantages([reward] * size) == ([reward] if size == 1 else [0.0] * size)


maybe = st.none() | exact


@quick
@given(data=st.data(), size=st.integers(1, 6))
def test_final_rewards_are_weighted_sums_and_a_weight_of_0_never_counts(data, size):
    """Not even when the grader of that weight left something ungraded."""
    weights = data.draw(st.lists(st.integers(-8, 8).map(float), min_size=1, max_size=5))
    rewards = [data.draw(st.lists(maybe, min_size=size, max_size=size)) for _ in weights]
    graders = [
        GraderRecord("g", weight, Verdict.SUCCESS, tuple(row))
        for weight, row in zip(weights, rewards, strict=True)
    ]
    found = weighted_rewards(graders, num_trajectories=size)
    counted = [(w, row) for w, row in zip(weights, rewards, strict=True) if w != 0]
    for member in range(size):
        own = [(w, row[member]) for w, row in counted]
        if not own or any(reward is None for _, reward in own):
            assert found[member] is None
        else:
            expected = float(np.dot([w for w, _ in own], [r for _, r in own]))
            assert found[member] == pytest.approx(expected, rel=1e-12, abs=1e-9)
    kept = [grader for grader in graders if grader.weight != 0]
    assert weighted_rewards(kept, num_trajectories=size) == found


def outcome(step: int, sample: int, seed: int) -> GroupRecord:
    """What becomes of a sample's group in a step: always the same."""
    random = Random(f"{seed}/{step}/{sample}")
    verdict = random.choice([Verdict.SUCCESS] * 3 + list(Verdict))
    size = random.randint(1, 4)
    rewards = tuple(random.choice([None, 0.0, 1.0, random.random()]) for _ in range(size))
    if verdict is not Verdict.SUCCESS:
        rewards = (None,) * size
    ids = tuple(f"{step}/{sample}.{member}" for member in range(size))
    return GroupRecord(sample, verdict, ids, rewards, phase="train", step=step)


@quick
@given(
    num_samples=st.integers(1, 25),
    batch_size=st.integers(1, 8),
    epochs=st.integers(1, 3),
    seed=st.integers(0, 2**32),
    data=st.data(),
)
def test_no_sample_is_twice_and_none_is_lost_uncounted_through_a_whole_job(
    num_samples, batch_size, epochs, seed, data
):
    """However groups end, in whatever order they are done, and wherever the job goes on."""
    plan = BatchPlan(num_samples, batch_size, seed=seed, num_epochs=epochs)
    random = Random(seed)

    def step_of(batch):
        done = [outcome(batch.step, sample, seed) for sample in batch.indices]
        random.shuffle(done)
        return compose_batch(batch, done)

    whole = [step_of(batch) for batch in plan.batches()]
    for epoch in range(epochs):
        steps = [step for step in whole if step.batch.epoch == epoch]
        seen = [
            s for step in steps for s in (*(g.sample_index for g in step.groups), *step.dropped)
        ]
        assert sorted(seen) == list(range(num_samples))
    for step in whole:
        kept = [group.sample_index for group in step.groups]
        assert kept == [sample for sample in step.batch.indices if sample not in step.dropped]
        assert all(any(reward is not None for reward in g.rewards) for g in step.groups)
        for group in step.groups:  # what a group is given does not depend on the others
            own = iter(grpo_advantages([r for r in group.rewards if r is not None]))
            for name, reward in zip(group.trajectory_ids, group.rewards, strict=True):
                assert step.advantages.get(name) == (None if reward is None else next(own))
    start = data.draw(st.integers(0, len(whole)))
    again = BatchPlan(num_samples, batch_size, seed=seed, num_epochs=epochs)
    assert [step_of(batch) for batch in again.batches(start=start)] == whole[start:]
