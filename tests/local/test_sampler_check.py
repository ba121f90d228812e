"""Whether the sampler has the trainer's weights is told by logprobs (field case 8.3)."""

import pytest
import torch

from arkdev.backends.local.policy import Policy
from arkdev.backends.local.sampler_check import require_same_weights, sampler_gap
from arkdev.errors import JobFailedError, PolicyEngineError
from tests.local.random_models import random_model, reference_logprobs, sequence

SEQUENCES = [[5, 3, 9, 1, 7], [2, 2, 4], [8]]


class SamplesFrom:
    """A sampler with weights of its own."""

    name = "torch"

    def __init__(self, model):
        self.model = model

    async def score(self, token_ids, *, temperature=1.0):
        one = sequence(token_ids, range(1, len(token_ids)))
        return reference_logprobs(self.model, one, temperature=temperature).tolist()


async def test_the_same_weights_agree_at_any_temperature():
    policy = Policy(random_model())
    gap = await require_same_weights(
        policy, SamplesFrom(random_model()), SEQUENCES, temperature=0.5
    )

    assert gap.largest < 1e-4
    assert gap.num_tokens == 6


async def test_old_weights_are_found_out():
    policy, engine = Policy(random_model()), SamplesFrom(random_model())
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.mul_(1.05)

    assert (await sampler_gap(policy, engine, SEQUENCES)).mean > 1e-3
    with pytest.raises(PolicyEngineError, match="does not answer with the trainer's weights"):
        await require_same_weights(policy, engine, SEQUENCES)


async def test_weights_that_have_diverged_are_not_blamed_on_the_engine():
    policy, engine = Policy(random_model()), SamplesFrom(random_model())
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.fill_(float("nan"))

    with pytest.raises(JobFailedError, match="training has diverged"):
        await require_same_weights(policy, engine, SEQUENCES)
