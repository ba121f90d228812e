"""The losses of tokens: by hand, against float64, against finite differences, and at the edges."""

import math

import numpy as np
import pytest
import torch

from arkdev.backends.local.correction import correction_weights
from arkdev.backends.local.kl import bounded_exp, kl_estimates
from arkdev.backends.local.losses import Clip, policy_losses
from arkdev.backends.local.settings import Correction, KLEstimator, PolicyLoss

HALF = Clip(0.5, 0.5)
FIELD_CASE = [1.11, 0.22, 2.23, 5e-5, 1.35]


def losses_of(ratios, advantages, kind, *, clip=HALF, weights=None, old=-2.0, dtype=torch.float32):
    """The losses for these ratios, and the gradient of each by its own logprob."""
    old_logprobs = torch.full((len(ratios),), old, dtype=dtype)
    logprobs = old_logprobs + torch.tensor([math.log(r) for r in ratios], dtype=dtype)
    logprobs.requires_grad_()
    found = policy_losses(
        logprobs,
        old_logprobs,
        advantages=torch.tensor(advantages),
        weights=torch.ones(len(ratios)) if weights is None else torch.tensor(weights),
        kind=kind,
        clip=clip,
    )
    (grad,) = torch.autograd.grad(found.losses.sum(), logprobs)
    return found, grad


def numpy_losses(logprobs, old, advantages, kind, clip):
    """In float64, by the definitions."""
    ratios = np.exp(logprobs - old)
    low, high = 1 - clip.low, 1 + clip.high
    if kind is PolicyLoss.PPO_IS:
        return np.maximum(-ratios * advantages, -np.clip(ratios, low, high) * advantages)
    if kind is PolicyLoss.MIS_PG:
        return np.where((ratios >= low) & (ratios <= high), -ratios * advantages, 0)
    return -np.clip(ratios, low, high) * advantages * logprobs


@pytest.mark.parametrize(
    ("kind", "advantage", "without_gradient"),
    [
        (PolicyLoss.PPO_IS, 1.0, {2.23}),
        (PolicyLoss.PPO_IS, -1.0, {0.22, 5e-5}),
        (PolicyLoss.MIS_PG, 1.0, {0.22, 2.23, 5e-5}),
        (PolicyLoss.TIS_PG, 1.0, set()),
    ],
)
def test_the_tokens_without_gradient_are_those_of_the_field_case(kind, advantage, without_gradient):
    _, grad = losses_of(FIELD_CASE, [advantage] * 5, kind)

    zero = {ratio for ratio, value in zip(FIELD_CASE, grad.tolist(), strict=True) if value == 0}
    assert zero == without_gradient


def test_mis_pg_keeps_the_ratios_inside_the_band_as_weights_of_the_gradient():
    found, grad = losses_of(FIELD_CASE, [1.0] * 5, PolicyLoss.MIS_PG)

    assert grad.tolist() == pytest.approx([-1.11, 0, 0, 0, -1.35], rel=1e-5)
    assert found.losses.tolist() == pytest.approx([-1.11, 0, 0, 0, -1.35], rel=1e-5)
    assert found.is_low.tolist() == [False, True, False, True, False]
    assert found.is_high.tolist() == [False, False, True, False, False]


def test_tis_pg_caps_the_weight_and_drops_nothing():
    _, grad = losses_of(FIELD_CASE, [1.0] * 5, PolicyLoss.TIS_PG)

    assert grad.tolist() == pytest.approx([-1.11, -0.5, -1.5, -0.5, -1.35], rel=1e-5)


def test_ppo_is_by_hand():
    # ratio 1.5, band [0.8, 1.28]: A > 0 gets 1.28 A and no gradient, A < 0 keeps 1.5 A
    found, grad = losses_of(
        [1.5, 1.5, 0.7], [2.0, -2.0, -1.0], PolicyLoss.PPO_IS, clip=Clip(0.2, 0.28)
    )

    assert found.losses.tolist() == pytest.approx([-2.56, 3.0, 0.8], rel=1e-5)
    assert grad.tolist() == pytest.approx([0, 3.0, 0], rel=1e-5)
    assert found.is_high.tolist() == [True, False, False]
    assert found.is_low.tolist() == [False, False, True]


def test_when_every_ratio_is_outside_mis_pg_has_loss_and_gradient_0():
    found, grad = losses_of([9.0, 1e-4], [1.0, -1.0], PolicyLoss.MIS_PG)

    assert found.losses.tolist() == [0, 0]
    assert grad.tolist() == [0, 0]


@pytest.mark.parametrize("kind", PolicyLoss)
def test_losses_are_those_of_a_float64_reference(kind):
    rng = np.random.default_rng(0)
    logprobs, old = -rng.exponential(1.0, 400), -rng.exponential(1.0, 400)
    advantages, clip = rng.normal(0, 1, 400), Clip(0.2, 0.28)

    found = policy_losses(
        torch.tensor(logprobs, dtype=torch.float32),
        torch.tensor(old, dtype=torch.float32),
        advantages=torch.tensor(advantages, dtype=torch.float32),
        weights=torch.ones(400),
        kind=kind,
        clip=clip,
    )

    expected = numpy_losses(logprobs, old, advantages, kind, clip)
    np.testing.assert_allclose(found.losses.numpy(), expected, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("kind", PolicyLoss)
def test_gradients_are_those_of_finite_differences(kind):
    rng = np.random.default_rng(1)
    old = -rng.exponential(1.0, 60)
    ratios = rng.choice([0.3, 0.6, 0.95, 1.05, 1.2, 1.9], 60)
    advantages = rng.normal(0, 1, 60)
    clip, step = Clip(0.2, 0.28), 1e-6
    here = old + np.log(ratios)

    _, grad = losses_of(ratios, advantages.astype(np.float32), kind, clip=clip, old=0.0)
    if kind is PolicyLoss.TIS_PG:
        # the weight has no gradient: the differences are those with the weight held
        expected = -np.clip(ratios, 0.8, 1.28) * advantages
    else:
        ahead = numpy_losses(here + step, old, advantages, kind, clip)
        behind = numpy_losses(here - step, old, advantages, kind, clip)
        expected = (ahead - behind) / (2 * step)
    np.testing.assert_allclose(grad.numpy(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", PolicyLoss)
def test_huge_ratios_and_masked_infinities_stay_finite(kind, dtype):
    # field case 4.2, and its mirror; the last two positions are masked
    logprobs = torch.tensor(
        [-100.0, -0.1, -100.0, -0.1, float("-inf"), float("nan")], dtype=dtype, requires_grad=True
    )
    old = torch.tensor([-0.1, -100.0, -0.1, -100.0, -1.0, float("-inf")], dtype=dtype)
    weights = torch.tensor([0.25, 0.25, 0.25, 0.25, 0.0, 0.0])

    found = policy_losses(
        logprobs,
        old,
        advantages=torch.tensor([1.0, 1.0, -1.0, -1.0, 1.0, float("inf")]),
        weights=weights,
        kind=kind,
        clip=HALF,
    )
    loss = (weights * found.losses).sum()
    loss.backward()

    assert torch.isfinite(loss)
    assert torch.isfinite(logprobs.grad).all()
    assert logprobs.grad[4:].tolist() == [0, 0]
    assert found.losses[4:].tolist() == [0, 0] or kind is not PolicyLoss.TIS_PG


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("estimator", KLEstimator)
def test_the_distance_to_a_far_reference_stays_finite_and_keeps_its_pull(estimator, dtype):
    logprobs = torch.tensor([-100.0, -0.1], dtype=dtype, requires_grad=True)
    kl = kl_estimates(logprobs, torch.tensor([-0.1, -100.0], dtype=dtype), estimator=estimator)
    kl.sum().backward()

    assert torch.isfinite(kl).all()
    assert torch.isfinite(logprobs.grad).all()
    if estimator is not KLEstimator.K1:
        assert logprobs.grad[0] < 0, "far below the reference: the logprob is pulled up"


def test_estimates_by_hand():
    # d = log π_ref − log π = log 2
    logprobs, reference = torch.tensor([math.log(0.25)]), torch.tensor([math.log(0.5)])

    found = {e: kl_estimates(logprobs, reference, estimator=e).item() for e in KLEstimator}

    assert found[KLEstimator.K1] == pytest.approx(-math.log(2))
    assert found[KLEstimator.K2] == pytest.approx(math.log(2) ** 2 / 2)
    assert found[KLEstimator.K3] == pytest.approx(1 - math.log(2))


def test_k1_and_k3_have_the_kl_as_their_mean_and_k2_its_gradient():
    logits = torch.tensor([0.3, -1.0, 0.8], requires_grad=True)
    reference = torch.log_softmax(torch.tensor([0.1, 0.2, -0.5]), dim=0)
    logprobs = torch.log_softmax(logits, dim=0)
    exact = (logprobs.exp() * (logprobs - reference)).sum()
    (expected,) = torch.autograd.grad(exact, logits, retain_graph=True)
    means, grads = {}, {}
    for estimator in KLEstimator:
        estimates = kl_estimates(logprobs, reference, estimator=estimator)
        mean = (logprobs.exp().detach() * estimates).sum()
        means[estimator] = mean.item()
        (grads[estimator],) = torch.autograd.grad(mean, logits, retain_graph=True)

    assert means[KLEstimator.K1] == pytest.approx(exact.item(), rel=1e-5)
    assert means[KLEstimator.K3] == pytest.approx(exact.item(), rel=1e-5)
    torch.testing.assert_close(grads[KLEstimator.K2], expected)
    torch.testing.assert_close(grads[KLEstimator.K1], torch.zeros(3), rtol=0, atol=1e-6)


def test_k3_of_policies_that_are_close_is_not_rounded_away():
    logprobs, reference = torch.tensor([-1.0]), torch.tensor([-1.0 - 2**-13])
    d = -(2**-13)

    k3 = kl_estimates(logprobs, reference, estimator=KLEstimator.K3).item()

    assert k3 == pytest.approx(math.expm1(d) - d, rel=1e-2)
    assert k3 > 0


def test_exponentials_go_on_in_a_straight_line():
    x = torch.tensor([1.0, 20.0, 22.0], requires_grad=True)
    found = bounded_exp(x)
    found.sum().backward()

    assert found.tolist() == pytest.approx([math.e, math.exp(20), 3 * math.exp(20)], rel=1e-5)
    assert x.grad.tolist() == pytest.approx([math.e, math.exp(20), math.exp(20)], rel=1e-5)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Correction.NONE, [1, 1, 1, 1, 1]),
        (Correction.TRUNCATED, [1.0, 2.0, 0.5, 2.0, 1]),
        (Correction.MASKED, [1.0, 0, 0, 0, 1]),
    ],
)
def test_correction_by_hand(kind, expected):
    # w = π_old / μ = 1, 4, 1/4, e^100; the last is masked
    old = torch.tensor([-1.0, -1.0, -1.0 - math.log(4), -0.1, -1.0], requires_grad=True)
    rollout = torch.tensor([-1.0, -1.0 - math.log(4), -1.0, -100.1, float("-inf")])

    found = correction_weights(
        old, rollout, weights=torch.tensor([1.0, 1, 1, 1, 0]), kind=kind, bounds=(0.5, 2.0)
    )

    assert found.tolist() == pytest.approx(expected)
    assert not found.requires_grad
