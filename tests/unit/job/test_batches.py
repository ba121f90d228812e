"""Batches: every sample once an epoch, the same at every start, short batches at an epoch's end."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arkdev.job.batches import BatchPlan

quick = settings(max_examples=60, database=None, deadline=None, derandomize=True)
sizes = st.integers(1, 60)


@quick
@given(
    num_samples=sizes, batch_size=st.integers(1, 20), epochs=st.integers(1, 4), seed=st.integers()
)
def test_an_epoch_has_every_sample_once(num_samples, batch_size, epochs, seed):
    plan = BatchPlan(num_samples, batch_size, seed=seed, num_epochs=epochs)
    batches = list(plan.batches())
    assert len(batches) == len(plan) == epochs * plan.steps_per_epoch
    for epoch in range(epochs):
        of_epoch = [batch for batch in batches if batch.epoch == epoch]
        seen = [index for batch in of_epoch for index in batch.indices]
        assert sorted(seen) == list(range(num_samples))
        assert {len(batch.indices) for batch in of_epoch[:-1]} <= {batch_size}
        assert 1 <= len(of_epoch[-1].indices) <= batch_size


@quick
@given(num_samples=sizes, batch_size=st.integers(1, 20), steps=st.integers(1, 50), data=st.data())
def test_a_job_that_goes_on_has_the_batches_of_one_that_never_stopped(
    num_samples, batch_size, steps, data
):
    plan = BatchPlan(num_samples, batch_size, seed=3, num_steps=steps)
    whole = list(plan.batches())
    start = data.draw(st.integers(0, steps))
    again = BatchPlan(num_samples, batch_size, seed=3, num_steps=steps)
    assert list(again.batches(start=start)) == whole[start:]
    for batch in whole:
        assert plan.step_at(batch.epoch, batch.step_in_epoch) == batch.step
        assert again.batch(batch.step) == batch


def test_epochs_and_seeds_have_orders_of_their_own():
    plan = BatchPlan(50, 50, seed=0, num_epochs=2)
    first, second = (batch.indices for batch in plan.batches())
    assert first != second
    assert BatchPlan(50, 50, seed=1, num_epochs=1).batch(0).indices not in (first, second)


def test_without_shuffling_the_order_is_the_datas():
    plan = BatchPlan(5, 2, num_epochs=2, is_shuffled=False)
    assert [batch.indices for batch in plan.batches()] == [(0, 1), (2, 3), (4,)] * 2


def test_a_plan_is_what_it_always_was():
    """A job that was begun by an older arkdev goes on with its own batches."""
    plan = BatchPlan(7, 3, seed=11, num_steps=4)
    assert [batch.indices for batch in plan.batches()] == [*((4, 2, 3), (0, 1, 6), (5,), (2, 6, 4))]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "exactly one of num_epochs and num_steps"),
        ({"num_epochs": 1, "num_steps": 1}, "exactly one of num_epochs and num_steps"),
        ({"num_epochs": 0}, "num_epochs is 0; at least 1"),
        ({"num_steps": 1, "batch_size": 0}, "batch_size is 0; at least 1"),
        ({"num_steps": 1, "num_samples": 0}, "num_samples is 0; at least 1"),
    ],
)
def test_a_plan_without_an_end_or_with_nothing_in_it_is_refused(fields, said):
    with pytest.raises(ValueError, match=said):
        BatchPlan(**{"num_samples": 4, "batch_size": 2, **fields})


@pytest.mark.parametrize("step", [-1, 4])
def test_there_is_no_step_outside_of_the_plan(step):
    plan = BatchPlan(4, 2, num_epochs=2)
    with pytest.raises(IndexError, match="there is no step"):
        plan.batch(step)
    with pytest.raises(IndexError):
        plan.step_at(1, 2)
    with pytest.raises(IndexError):
        plan.step_at(2, 0)
