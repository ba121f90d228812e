"""An update: what it does to the weights, what it tells, and that nothing depends on its split."""

import copy
import math

import pytest
import torch

from arkdev.backends.local.batch import TrainingBatch
from arkdev.backends.local.kl import kl_estimates
from arkdev.backends.local.optimizer import make_optimizer
from arkdev.backends.local.policy import Policy
from arkdev.backends.local.settings import (
    Correction,
    KLEstimator,
    KLPlace,
    PolicyLoss,
    UpdateSettings,
)
from arkdev.backends.local.update import update
from arkdev.errors import ConfigurationError, JobFailedError
from tests.local.random_models import (
    FAMILIES,
    batch_of,
    groups,
    random_model,
    reference_logprobs,
    sequence,
)


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def updated(sequences, settings, *, family="qwen3", steps=1, keeps_reference=False):
    """Weights and metrics after some steps, from the same random model."""
    policy = Policy(random_model(family), keeps_reference=keeps_reference)
    optimizer = make_optimizer(policy, settings)
    for step in range(steps):
        metrics = update(policy, optimizer, batch_of(sequences, step=step), settings)
    return weights(policy.model), metrics


def sampled_by(model, sequences, *, temperature=1.0):
    """The same sequences with the model's own logprobs as the sampler's."""
    found = []
    for one in sequences:
        logprobs = iter(reference_logprobs(model, one, temperature=temperature).tolist())
        rollout = tuple(
            next(logprobs) if is_trained and place else 0.0
            for place, is_trained in enumerate(one.loss_mask)
        )
        found.append(
            type(one)(
                **{name: getattr(one, name) for name in one.__dataclass_fields__}
                | {"rollout_logprobs": rollout}
            )
        )
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_the_weights_do_not_depend_on_the_size_of_a_pass(family):
    settings = {"lr": 1e-3, "num_iterations_per_batch": 2}
    after = [
        updated(
            groups(), UpdateSettings(**settings, micro_batch_tokens=size), family=family, steps=2
        )
        for size in (1, 90, 100_000)
    ]

    for found, metrics in after[1:]:
        torch.testing.assert_close(found, after[0][0], rtol=0, atol=2e-5)
        assert metrics["policy_loss"] == pytest.approx(after[0][1]["policy_loss"], abs=1e-5)


@pytest.mark.parametrize(
    ("kl_coefficient", "entropy_coefficient"), [(0.0, 0.0), (0.3, 0.0), (0.3, 0.05)]
)
def test_a_step_is_that_of_a_naive_loop(kl_coefficient, entropy_coefficient):
    """One sequence at a time, transformers' own forward pass, the losses written out."""
    sequences = groups()
    settings = UpdateSettings(
        lr=1e-3,
        num_iterations_per_batch=3,
        kl_coefficient=kl_coefficient,
        entropy_coefficient=entropy_coefficient,
    )
    model = random_model()
    before = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0)
    for _ in range(3):
        optimizer.zero_grad()
        for one in sequences:
            logprobs = reference_logprobs(model, one)
            old = reference_logprobs(before, one).detach()
            advantage = max(one.advantages, key=abs)
            correction = (old - -1.0).exp().clamp(max=2.0)
            ratio = (logprobs - old).exp()
            surrogate = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
            # before the step's first update, policy and reference are one here
            kl = (old - logprobs).exp() - 1 - (old - logprobs)
            logs = torch.log_softmax(model(torch.tensor([one.token_ids])).logits[0], dim=-1)
            places = [place - 1 for place, is_own in enumerate(one.loss_mask) if is_own]
            entropy = -(logs.exp() * logs).sum(dim=-1)[places]
            gained = correction * surrogate - kl_coefficient * kl + entropy_coefficient * entropy
            (-(0.02 * gained).sum()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    found, metrics = updated(sequences, settings, keeps_reference=kl_coefficient > 0)

    torch.testing.assert_close(found, weights(model), rtol=0, atol=2e-5)
    assert metrics["num_updates"] == 3


def test_before_any_update_the_ratio_is_1_and_the_sampler_agrees():
    # field case 4.1: sampled at 0.7, trained at 0.7
    sequences = sampled_by(random_model(), groups(), temperature=0.7)
    _, metrics = updated(sequences, UpdateSettings(temperature=0.7))

    assert metrics["ratio_max"] == 1.0
    assert metrics["logprob_gap_max"] < 1e-5
    assert metrics["correction_mean"] == pytest.approx(1, abs=1e-5)
    assert abs(metrics["rollout_off_policy_kl"]) < 1e-6
    _, metrics = updated(sequences, UpdateSettings(temperature=1.0))
    assert metrics["logprob_gap_mean"] > 0.05, "the wrong temperature is seen"


def test_good_answers_become_likelier_and_bad_ones_less_likely():
    good = sequence([1, 2, 3, 4, 5, 6], [3, 4, 5], advantage=1.0, weight=1 / 6, index=0)
    bad = sequence([1, 2, 3, 9, 8, 7], [3, 4, 5], advantage=-1.0, weight=1 / 6, index=1)
    model = random_model()
    before = [float(reference_logprobs(model, one).detach().sum()) for one in (good, bad)]
    policy, settings = Policy(model), UpdateSettings(lr=1e-3)
    optimizer = make_optimizer(policy, settings)
    for step in range(5):
        update(policy, optimizer, batch_of([good, bad], step=step), settings)

    after = [float(reference_logprobs(model, one).detach().sum()) for one in (good, bad)]
    assert after[0] > before[0]
    assert after[1] < before[1]


@pytest.mark.parametrize("kind", PolicyLoss)
@pytest.mark.parametrize("place", KLPlace)
@pytest.mark.parametrize("estimator", KLEstimator)
def test_every_loss_goes_with_every_distance(kind, place, estimator):
    settings = UpdateSettings(
        lr=1e-3,
        policy_loss=kind,
        kl_coefficient=0.1,
        kl_place=place,
        kl_estimator=estimator,
        entropy_coefficient=0.01,
        num_iterations_per_batch=2,
        correction=Correction.MASKED,
        correction_cap=1e9,
    )
    _, metrics = updated(groups(num_prompts=1), settings, steps=2, keeps_reference=True)

    assert all(math.isfinite(value) for value in metrics.values())
    assert metrics["kl"] != 0


def test_a_penalty_in_the_reward_is_taken_from_the_advantages():
    """After a first step the policy differs from the reference: then compare with a batch whose
    advantages carry the penalty already."""
    sequences = groups(num_prompts=1)
    policies = [Policy(random_model(), keeps_reference=True) for _ in range(2)]
    plain = UpdateSettings(lr=1e-2, num_steps=2)
    penal = UpdateSettings(
        lr=1e-2,
        kl_coefficient=0.5,
        kl_place=KLPlace.REWARD,
        kl_estimator=KLEstimator.K1,
    )
    optimizers = [make_optimizer(policy, plain) for policy in policies]
    for policy, optimizer in zip(policies, optimizers, strict=True):
        update(policy, optimizer, batch_of(sequences), plain)
    base, moved = random_model(), policies[0].model
    lowered = []
    for one in sequences:
        penalty = kl_estimates(
            reference_logprobs(moved, one).detach(),
            reference_logprobs(base, one).detach(),
            estimator=KLEstimator.K1,
        )
        taken = iter(penalty.tolist())
        advantages = tuple(
            value - 0.5 * next(taken) if is_trained else 0.0
            for value, is_trained in zip(one.advantages, one.loss_mask, strict=True)
        )
        fields = {name: getattr(one, name) for name in one.__dataclass_fields__}
        lowered.append(type(one)(**fields | {"advantages": advantages}))

    update(policies[0], optimizers[0], batch_of(sequences, step=1), penal)
    update(policies[1], optimizers[1], batch_of(lowered, step=1), plain)

    torch.testing.assert_close(
        weights(policies[0].model), weights(policies[1].model), rtol=0, atol=1e-4
    )


def test_a_distance_in_the_loss_pulls_back_to_the_reference():
    sequences = groups(num_prompts=1)
    kl = {}
    for coefficient in (1e-9, 50.0):
        settings = UpdateSettings(lr=3e-3, kl_coefficient=coefficient)
        _, metrics = updated(sequences, settings, steps=8, keeps_reference=True)
        kl[coefficient] = metrics["kl"]

    assert kl[50.0] < 0.5 * kl[1e-9]


def test_an_entropy_bonus_raises_the_entropy():
    sequences = groups(num_prompts=1)
    entropy = {}
    for coefficient in (0.0, 1.0):
        settings = UpdateSettings(lr=1e-3, entropy_coefficient=coefficient)
        _, metrics = updated(sequences, settings, steps=8)
        entropy[coefficient] = metrics["entropy"]

    assert entropy[1.0] > entropy[0.0] + 0.01


def test_a_group_of_equal_rewards_is_measured_and_changes_nothing():
    learning = groups(num_prompts=2)
    equal = [
        type(one)(
            **{name: getattr(one, name) for name in one.__dataclass_fields__}
            | {"advantages": (0.0,) * len(one.advantages)}
        )
        for one in groups(num_prompts=1, seed=5)
    ]
    alone, _ = updated(learning, UpdateSettings(lr=1e-3))
    together, metrics = updated([*learning, *equal], UpdateSettings(lr=1e-3))

    torch.testing.assert_close(together, alone, rtol=0, atol=2e-6)
    assert metrics["sequences"] == len(learning) + len(equal)
    assert metrics["tokens"] == sum(len(one.token_ids) for one in [*learning, *equal])


@pytest.mark.parametrize(
    "sequences",
    [
        [],
        [sequence([1, 2, 3], [])],
        [sequence([1, 2, 3], [1, 2], weight=0.0)],
        [sequence([1, 2, 3], [1, 2], advantage=0.0)],
    ],
    ids=["empty", "masked", "without weight", "without advantage"],
)
def test_a_batch_with_nothing_to_learn_leaves_weights_and_momentum_alone(sequences):
    settings = UpdateSettings(lr=1e-2, weight_decay=0.1)
    policy = Policy(random_model())
    optimizer = make_optimizer(policy, settings)
    update(policy, optimizer, batch_of(groups(num_prompts=1)), settings)
    before = weights(policy.model)

    metrics = update(policy, optimizer, TrainingBatch(1, tuple(sequences)), settings)

    assert torch.equal(weights(policy.model), before)
    assert metrics["num_updates"] == 0
    assert all(math.isfinite(value) for value in metrics.values())


def test_a_gradient_that_is_no_number_stops_the_job_with_the_weights_as_they_were():
    settings = UpdateSettings(lr=1e-2, correction=Correction.NONE)
    policy = Policy(random_model())
    optimizer = make_optimizer(policy, settings)
    before = weights(policy.model)
    broken = [sequence([1, 2, 3, 4], [2, 3], advantage=float("inf"))]

    with pytest.raises(JobFailedError, match="gradient of step 4 is no finite number"):
        update(policy, optimizer, batch_of(broken, step=4), settings)

    assert torch.equal(weights(policy.model), before)


def test_gradients_are_clipped_to_their_norm():
    sequences = [sequence([1, 2, 3, 4], [2, 3], advantage=1.0, weight=1e3)]
    settings = UpdateSettings(correction=Correction.NONE, max_grad_norm=0.25)
    policy = Policy(random_model())
    metrics = update(policy, make_optimizer(policy, settings), batch_of(sequences), settings)

    norm = torch.cat([p.grad.flatten() for p in policy.model.parameters()]).norm()
    assert metrics["grad_norm"] > 1
    assert float(norm) == pytest.approx(0.25, rel=1e-3)


def test_the_learning_rate_is_that_of_the_step():
    settings = UpdateSettings(lr=1e-3, lr_warmup_steps=3)
    policy = Policy(random_model())
    optimizer = make_optimizer(policy, settings)
    found = [
        update(policy, optimizer, batch_of(groups(num_prompts=1), step=step), settings)["lr"]
        for step in range(5)
    ]

    assert found == pytest.approx([2.5e-4, 5e-4, 7.5e-4, 1e-3, 1e-3])


def test_a_penalty_needs_a_reference():
    settings = UpdateSettings(kl_coefficient=0.1)
    policy = Policy(random_model())

    with pytest.raises(ConfigurationError, match="no reference"):
        update(policy, make_optimizer(policy, settings), batch_of(groups()), settings)


def test_weight_decay_is_for_matrices_alone():
    policy = Policy(random_model())
    optimizer = make_optimizer(policy, UpdateSettings(weight_decay=0.1))

    decays = {
        id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]
    }
    assert {decays[id(p)] for p in policy.model.parameters() if p.ndim == 1} == {0.0}
    assert {decays[id(p)] for p in policy.model.parameters() if p.ndim == 2} == {0.1}


def test_clip_fractions_count_the_tokens_at_each_bound():
    settings = UpdateSettings(
        lr=0.05, num_iterations_per_batch=2, correction=Correction.NONE, max_grad_norm=1e9
    )
    _, metrics = updated(groups(num_prompts=1), settings)

    assert metrics["pg_clipfrac"] > 0
    assert metrics["pg_clipfrac"] == pytest.approx(
        metrics["clip_fraction_low"] + metrics["clip_fraction_high"]
    )
    assert metrics["ratio_max"] > 1.2
    assert metrics["ppo_kl"] != 0


def test_metrics_of_a_batch_by_hand():
    policy = Policy(random_model())
    model = random_model()
    one = sequence([1, 2, 3, 4, 5], [3, 4], advantage=2.0, weight=0.5, rollout=-1.5)
    logprobs = reference_logprobs(model, one).detach()
    settings = UpdateSettings()
    metrics = update(policy, make_optimizer(policy, settings), batch_of([one]), settings)

    gap = -1.5 - logprobs
    correction = (-gap).exp().clamp(max=2.0)
    assert metrics["policy_loss"] == pytest.approx(-(0.5 * 2 * correction).sum().item(), rel=1e-4)
    assert metrics["rollout_off_policy_kl"] == pytest.approx(gap.mean().item(), rel=1e-4)
    k3 = (-gap).exp() - 1 + gap
    assert metrics["rollout_off_policy_kl_k3"] == pytest.approx(k3.mean().item(), rel=1e-4)
    assert metrics["logprob_gap_max"] == pytest.approx(gap.abs().max().item(), rel=1e-4)
    assert metrics["trained_tokens"] == 2
    assert metrics["tokens"] == 5


def test_rejected_tokens_stay_in_the_denominator():
    """Field case 4.5: of ten tokens the mask rejects some; the others weigh a tenth each."""
    model, rng = random_model(), range(2, 12)
    one = sequence(list(range(12)), rng, advantage=1.0, weight=1 / 10)
    logprobs = reference_logprobs(model, one).detach()
    rollout = [0.0] * 12
    for place in rng:
        # w = 1 for half of the tokens, e^3 for the others
        rollout[place] = float(logprobs[place - 2]) - 3.0 * (place % 2)
    fields = {name: getattr(one, name) for name in one.__dataclass_fields__}
    sampled = type(one)(**fields | {"rollout_logprobs": tuple(rollout)})

    _, metrics = updated([sampled], UpdateSettings(correction=Correction.MASKED))

    assert metrics["policy_loss"] == pytest.approx(-5 / 10, rel=1e-4)
    assert metrics["correction_fraction"] == pytest.approx(0.5)
