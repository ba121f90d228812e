"""How much each token counts in a step's loss (field cases 3.4 and 3.5, OPD-16)."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arkdev.harness.loss_weights import (
    LossAggMode,
    sequence_scales,
    token_weights,
    weighted_loss,
)

MODES = list(LossAggMode)
C = 16
quick = settings(max_examples=60, database=None, deadline=None, derandomize=True)
RNG = np.random.default_rng(5)


def weights_of(loss_weights, mode):
    return token_weights(loss_weights, mode=mode, norm_tokens=C)


def reference(losses, masks, mode) -> float:
    """The definitions once more, over padded float64 matrices as trainers have them."""
    width = max(map(len, masks))
    loss, mask = (
        np.array([[*row, *[0.0] * (width - len(row))] for row in rows], dtype=np.float64)
        for rows in (losses, masks)
    )
    sums, sizes = (loss * mask).sum(axis=1), mask.sum(axis=1)
    there = sizes > 0
    if not there.any():
        return 0.0
    if mode == "token-mean":
        return float(sums.sum() / sizes.sum())
    if mode == "seq-mean-token-mean":
        return float(np.mean(sums[there] / sizes[there]))
    return float(np.mean(sums[there])) / (C if mode.endswith("norm") else 1)


def test_field_case_3_4_masked_tokens_leave_numerator_and_denominator():
    """10 kept and 10 masked tokens with a loss of 1 each: 1.0, not 0.5."""
    masks = [[1.0] * 10 + [0.0] * 10]
    assert weighted_loss([[1.0] * 20], weights_of(masks, LossAggMode.TOKEN_MEAN)) == pytest.approx(
        1.0, abs=1e-15
    )
    assert weighted_loss(
        [[1.0] * 20], weights_of(masks, LossAggMode.SEQ_MEAN_TOKEN_MEAN)
    ) == pytest.approx(1.0, abs=1e-15)


@pytest.mark.parametrize("mode", MODES)
def test_field_case_3_4_all_masked_gives_a_loss_and_gradients_of_0(mode):
    """Also where the losses of masked tokens are no numbers; nothing is divided by 0."""
    masks = [[0.0] * 10, [0.0] * 3, []]
    weights = weights_of(masks, mode)
    losses = [[math.nan] * 10, [math.inf, -math.inf, 1.0], []]
    assert weighted_loss(losses, weights) == 0.0
    assert all(weight == 0.0 for row in weights for weight in row)
    # the gradient of a sum of weight × loss with respect to each token's loss is its weight
    model = Toy(masks)
    assert np.all(model.gradient(weights) == 0.0)


@pytest.mark.parametrize("mode", MODES)
def test_a_sequence_that_is_masked_as_a_whole_is_in_no_mean(mode):
    losses, masks = [[2.0, 4.0], [8.0]], [[1.0, 1.0], [1.0]]
    alone = weighted_loss(losses, weights_of(masks, mode))
    beside = weighted_loss([*losses, [7.0] * 5], weights_of([*masks, [0.0] * 5], mode))
    assert beside == alone


ROWS = [[2.0] * 5, [10.0]]
"""Field case 3.5."""
ROW_MASKS = [[1.0] * 5, [1.0]]


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (LossAggMode.TOKEN_MEAN, 20 / 6),
        (LossAggMode.SEQ_MEAN_TOKEN_MEAN, 6.0),
        (LossAggMode.SEQ_MEAN_TOKEN_SUM, 10.0),
        (LossAggMode.SEQ_MEAN_TOKEN_SUM_NORM, 10.0 / C),
    ],
)
def test_field_case_3_5_the_loss_is_that_of_the_step_whatever_the_micro_batch(mode, expected, size):
    """3.3333 for token-mean with micro-batches of 1 and of 2; 6.0 is the sequence mean."""
    weights = weights_of(ROW_MASKS, mode)
    parts = [
        weighted_loss(ROWS[start : start + size], weights[start : start + size])
        for start in range(0, len(ROWS), size)
    ]
    assert sum(parts) == pytest.approx(expected, abs=1e-12)


class Toy:
    """A policy of one weight vector: the loss of a token is -A log softmax(W x)[y]."""

    def __init__(self, masks, *, num_words=7, num_features=4):
        shapes = [len(row) for row in masks]
        self.w = RNG.normal(size=(num_words, num_features))
        self.x = [RNG.normal(size=(n, num_features)) for n in shapes]
        self.y = [RNG.integers(num_words, size=n) for n in shapes]
        self.advantages = RNG.normal(size=len(shapes))

    def losses(self, w):
        found = []
        for x, y, advantage in zip(self.x, self.y, self.advantages, strict=True):
            logits = x @ w.T
            logprobs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
            found.append((-advantage * logprobs[np.arange(len(y)), y]).tolist())
        return found

    def gradient(self, weights, *, rows=None):
        """Analytic: of -A log softmax it is A (softmax - onehot) xᵀ, times the token's weight."""
        total = np.zeros_like(self.w)
        for i in range(len(self.x)) if rows is None else rows:
            logits = self.x[i] @ self.w.T
            probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
            probs[np.arange(len(self.y[i])), self.y[i]] -= 1
            total += self.advantages[i] * (probs * np.array(weights[i])[:, None]).T @ self.x[i]
        return total


@pytest.mark.parametrize("mode", MODES)
def test_field_case_3_5_gradients_are_equal_for_every_micro_batch(mode):
    masks = [[1.0] * 5, [1.0], [0.0, 0.0, 1.0, 1.0, 0.0, 1.0], [0.0] * 4]
    weights = weights_of(masks, mode)
    model = Toy(masks)
    whole = model.gradient(weights)
    for size in (1, 2, 3):
        rows = [range(s, min(s + size, 4)) for s in range(0, 4, size)]
        parts = sum(model.gradient(weights, rows=part) for part in rows)
        assert np.abs(parts - whole).max() < 1e-6
    assert np.abs(whole).max() > 1e-3


@pytest.mark.parametrize("mode", MODES)
def test_the_gradient_is_that_of_the_aggregated_loss(mode):
    """Central differences of the independent loss against the analytic gradient by weights."""
    masks = [[1.0] * 3, [0.0, 1.0], [0.0] * 2]
    weights = weights_of(masks, mode)
    model = Toy(masks)
    step = 1e-6
    numeric = np.zeros_like(model.w)
    for place in np.ndindex(model.w.shape):
        moved = np.zeros_like(model.w)
        moved[place] = step
        ends = [reference(model.losses(w), masks, mode) for w in (model.w + moved, model.w - moved)]
        numeric[place] = (ends[0] - ends[1]) / (2 * step)
    assert np.abs(numeric - model.gradient(weights)).max() < 1e-6


rows = st.lists(
    st.lists(st.tuples(st.floats(-50, 50), st.sampled_from([0.0, 1.0])), max_size=6),
    min_size=1,
    max_size=6,
)


@quick
@given(rows=rows, mode=st.sampled_from(MODES))
def test_the_loss_is_that_of_an_independent_reference(rows, mode):
    losses = [[loss for loss, _ in row] for row in rows]
    masks = [[mask for _, mask in row] for row in rows]
    weights = weights_of(masks, mode)
    assert weighted_loss(losses, weights) == pytest.approx(
        reference(losses, masks, mode), rel=1e-12, abs=1e-12
    )


@quick
@given(rows=rows, mode=st.sampled_from(MODES), data=st.data())
def test_no_split_into_micro_batches_changes_the_loss(rows, mode, data):
    losses = [[loss for loss, _ in row] for row in rows]
    weights = weights_of([[mask for _, mask in row] for row in rows], mode)
    order = data.draw(st.permutations(range(len(rows))))
    cut = data.draw(st.integers(0, len(rows)))
    parts = [
        weighted_loss([losses[i] for i in part], [weights[i] for i in part])
        for part in (order[:cut], order[cut:])
    ]
    assert sum(parts) == pytest.approx(weighted_loss(losses, weights), rel=1e-12, abs=1e-12)


@quick
@given(
    kept=st.lists(st.just(0.0) | st.floats(1e-200, 1e6), min_size=1, max_size=20).filter(any),
    mode=st.sampled_from([LossAggMode.TOKEN_MEAN, LossAggMode.SEQ_MEAN_TOKEN_MEAN]),
)
def test_the_weights_of_a_mean_add_up_to_1(kept, mode):
    scales = sequence_scales(kept, mode=mode)
    total = math.fsum(s * size for s, size in zip(scales, kept, strict=True))
    assert total == pytest.approx(1.0)


def test_weights_of_half_count_by_half_against_the_others_of_the_mean():
    """A loss weight is relative: the same weight for all tokens changes nothing in a mean."""
    even = weights_of([[1.0, 1.0]], LossAggMode.TOKEN_MEAN)
    assert weights_of([[0.5, 0.5]], LossAggMode.TOKEN_MEAN) == even
    assert weights_of([[1.0, 0.5]], LossAggMode.TOKEN_MEAN) == [
        [pytest.approx(2 / 3), pytest.approx(1 / 3)]
    ]


def test_the_constant_of_the_norm_is_asked_for_and_not_made_up():
    with pytest.raises(ValueError, match="needs a constant"):
        sequence_scales([1.0], mode=LossAggMode.SEQ_MEAN_TOKEN_SUM_NORM)


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf, 5e-324])
def test_a_loss_weight_that_is_no_weight_is_refused(bad):
    with pytest.raises(ValueError, match="0 or more"):
        token_weights([[bad]], mode=LossAggMode.TOKEN_MEAN)
