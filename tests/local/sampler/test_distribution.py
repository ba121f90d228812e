import math

import pytest
import torch

from arkdev.backends.local.engine import SamplingParameters
from arkdev.backends.local.sampler import distribution
from arkdev.backends.local.sampler.distribution import Rows, sample, uniform_numbers

CPU = torch.device("cpu")


def parameters(**settings):
    return SamplingParameters(max_new_tokens=8, **settings)


def sampled(logits, *settings, uniforms=None, seen=None):
    logits = torch.tensor(logits, dtype=torch.float32)
    rows = Rows(settings, CPU, seen or [None] * len(settings))
    return sample(logits, rows, uniforms=uniforms or [0.0] * len(settings))


def test_the_logprob_is_of_the_distribution_at_the_temperature_that_was_sampled_at():
    """Field case 4.1."""
    found = sampled([[2.0, 0.0]], parameters(temperature=0.5))
    assert found.token_ids == [0]
    assert found.logprobs[0] == pytest.approx(-0.018150, abs=1e-6)


def test_at_temperature_zero_the_most_probable_token_has_its_logprob_at_temperature_one():
    found = sampled([[0.0, 2.0]], parameters(temperature=0.0, top_k=1), uniforms=[0.0])
    assert found.token_ids == [1]
    assert found.logprobs[0] == pytest.approx(-math.log1p(math.exp(-2)), abs=1e-6)


def test_top_k_and_top_p_leave_out_tokens_and_the_rest_is_renormalised():
    logits = [[math.log(share) for share in (0.5, 0.3, 0.15, 0.05)]] * 3
    found = sampled(
        logits,
        parameters(top_k=2),
        parameters(top_p=0.6),
        parameters(top_k=3, top_p=0.5),
        uniforms=[0.99, 0.99, 0.99],
    )
    # of two: .3/.8; .5 do not reach .6, .8 do: .3/.8; of three renormalised .526 reaches .5 alone
    assert found.token_ids == [1, 1, 0]
    assert found.logprobs == pytest.approx([math.log(0.375), math.log(0.375), 0.0], abs=1e-6)


def test_a_repetition_penalty_divides_positive_and_multiplies_negative_logits_of_seen_tokens():
    seen = torch.tensor([True, True, False])
    found = sampled(
        [[2.0, -1.0, 1.0]], parameters(repetition_penalty=2.0), uniforms=[0.9999], seen=[seen]
    )
    expected = torch.tensor([1.0, -2.0, 1.0]).log_softmax(-1)
    assert found.token_ids == [2]
    assert found.logprobs[0] == pytest.approx(expected[2].item(), abs=1e-6)


def test_the_most_probable_tokens_are_those_of_the_distribution_sampled_from():
    found = sampled(
        [[0.0, 2.0, 1.0]] * 3,
        parameters(num_top_logprobs=2, temperature=0.5),
        parameters(num_top_logprobs=3, top_k=2),
        parameters(),
    )
    plain, cut, none = found.top_logprobs
    table = (torch.tensor([0.0, 2.0, 1.0]) / 0.5).log_softmax(-1)
    assert [token for token, _ in plain] == [1, 2]
    assert [logprob for _, logprob in plain] == pytest.approx(table[[1, 2]].tolist(), abs=1e-6)
    assert [token for token, _ in cut] == [1, 2]
    assert sum(math.exp(logprob) for _, logprob in cut) == pytest.approx(1)
    assert none == ()


def test_what_a_row_gets_does_not_depend_on_the_rows_beside_it():
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(6, 701, generator=generator) * 3
    settings = [
        parameters(),
        parameters(temperature=0.0),
        parameters(top_p=0.9),
        parameters(temperature=1.7, top_k=20),
        parameters(temperature=0.3, top_k=50, top_p=0.5, num_top_logprobs=4),
        parameters(num_top_logprobs=2),
    ]
    numbers = [0.1, 0.2, 0.95, 0.4, 0.6, 0.99]
    together = sample(logits, Rows(settings, CPU, [None] * 6), uniforms=numbers)
    for row, one in enumerate(settings):
        alone = sample(logits[row : row + 1], Rows([one], CPU, [None]), uniforms=[numbers[row]])
        assert alone.token_ids[0] == together.token_ids[row]
        assert alone.logprobs[0] == together.logprobs[row]
        assert (alone.top_logprobs or [()])[0] == together.top_logprobs[row]


def test_tokens_come_as_often_as_their_probabilities_say():
    logits = torch.tensor([[1.0, 0.0, -1.0, 2.0, -float("inf")]])
    numbers = uniform_numbers(7, num_tokens=20_000)
    rows = Rows([parameters()] * len(numbers), CPU, [None] * len(numbers))
    found = sample(logits.expand(len(numbers), -1), rows, uniforms=numbers)
    shares = torch.bincount(torch.tensor(found.token_ids), minlength=5) / len(numbers)
    expected = logits[0].softmax(-1)
    errors = (expected * (1 - expected) / len(numbers)).sqrt()
    assert ((shares - expected).abs() <= 4 * errors).all()


def test_a_row_that_needs_more_than_the_first_candidates_gets_all(monkeypatch):
    logits = (torch.randn(3, 300, generator=torch.Generator().manual_seed(2))).tolist()
    settings = [parameters(top_p=0.95), parameters(top_k=200), parameters(top_p=0.1)]
    numbers = [0.93, 0.97, 0.5]
    whole = sampled(logits, *settings, uniforms=numbers)
    monkeypatch.setattr(distribution, "_NUM_CANDIDATES", 16)
    few = sampled(logits, *settings, uniforms=numbers)
    assert few.token_ids == whole.token_ids
    assert few.logprobs == pytest.approx(whole.logprobs, abs=1e-6)


def test_numbers_follow_from_the_seed_and_differ_without_one():
    assert uniform_numbers(5, num_tokens=3) == uniform_numbers(5, num_tokens=9)[:3]
    assert uniform_numbers(5, num_tokens=3) != uniform_numbers(6, num_tokens=3)
    assert uniform_numbers(None, num_tokens=3) != uniform_numbers(None, num_tokens=3)
    assert uniform_numbers(-1, num_tokens=1)


def test_a_top_k_beyond_the_vocabulary_leaves_nothing_out():
    (found,) = sampled([[1.0, 0.0]], parameters(top_k=10**40), uniforms=[0.99]).token_ids
    assert found == 1


def test_top_k_alone_keeps_the_tokens_that_rounding_gives_no_room():
    found = sampled([[15.3, 0.0, -0.1]], parameters(top_k=2, num_top_logprobs=2), uniforms=[0.0])
    assert len(found.top_logprobs[0]) == 2
