"""Logprobs and entropy by chunks are those of a softmax over everything, and so are gradients."""

import numpy as np
import pytest
import torch

from arkdev.backends.local import head
from arkdev.backends.local.head import chosen_logprobs


def reference(hidden, weight, bias, targets, temperature):
    """In float64, by the definition."""
    logits = (hidden @ weight.T + bias) / temperature
    logits -= logits.max(axis=1, keepdims=True)
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    entropy = -(probabilities * np.log(probabilities)).sum(axis=1)
    return np.log(probabilities[np.arange(len(targets)), targets]), entropy


@pytest.fixture
def arguments():
    torch.manual_seed(0)
    return torch.randn(23, 8), torch.randn(17, 8), torch.randn(17), torch.randint(0, 17, (23,))


@pytest.mark.parametrize("chunk", [1, 5, 1000])
def test_they_are_those_of_a_float64_softmax(arguments, chunk, monkeypatch):
    monkeypatch.setattr(head, "_LEAST_CHUNK", chunk)
    monkeypatch.setattr(head, "_CHUNK_LOGITS", {"cpu": 0})
    hidden, weight, bias, targets = arguments

    logprobs, entropy = chosen_logprobs(hidden, weight, bias, targets=targets, temperature=0.6)

    expected = reference(
        *(x.double().numpy() for x in (hidden, weight, bias)), targets.numpy(), 0.6
    )
    np.testing.assert_allclose(logprobs.numpy(), expected[0], atol=2e-6)
    np.testing.assert_allclose(entropy.numpy(), expected[1], atol=2e-6)


@pytest.mark.parametrize("of_entropy", [0.0, 0.3])
def test_gradients_are_those_of_torch_itself(arguments, of_entropy, monkeypatch):
    monkeypatch.setattr(head, "_LEAST_CHUNK", 6)
    monkeypatch.setattr(head, "_CHUNK_LOGITS", {"cpu": 0})
    hidden, weight, bias, targets = arguments
    found, expected = [], []
    for results, by_chunks in ((found, True), (expected, False)):
        inputs = [x.clone().requires_grad_() for x in (hidden, weight, bias)]
        if by_chunks:
            logprobs, entropy = chosen_logprobs(*inputs, targets=targets, temperature=0.6)
        else:
            logs = torch.log_softmax((inputs[0] @ inputs[1].T + inputs[2]) / 0.6, dim=1)
            logprobs, entropy = logs.gather(1, targets[:, None])[:, 0], -(logs.exp() * logs).sum(1)
        loss = logprobs.square().sum()
        (loss + of_entropy * entropy.sum() if of_entropy else loss).backward()
        results.extend(x.grad for x in inputs)

    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_logprobs_have_the_temperature_that_was_sampled_with():
    # field case 4.1: logits [2, 0], T = 0.5, token 0; ratio 1.1149 and -0.253856 would be wrong
    hidden, weight = torch.eye(2)[:1], torch.tensor([[2.0, 0.0], [0.0, 0.0]])

    logprobs, _ = chosen_logprobs(hidden, weight, None, targets=torch.tensor([0]), temperature=0.5)

    assert logprobs.item() == pytest.approx(-0.018150, abs=1e-6)
    assert abs(float((logprobs - -0.018149927917809).exp()) - 1) < 1e-5


def test_temperature_0_counts_as_1_as_the_sampler_says():
    hidden, weight = torch.eye(2)[:1], torch.tensor([[2.0, 0.0], [0.0, 0.0]])
    logprobs, _ = chosen_logprobs(hidden, weight, None, targets=torch.tensor([0]), temperature=0)

    assert logprobs.item() == pytest.approx(-0.126928, abs=1e-6)


def test_a_token_that_cannot_be_has_no_part_in_the_entropy():
    hidden = torch.ones(1, 1, requires_grad=True)
    bias = torch.tensor([0.0, 0.0, float("-inf")])

    logprobs, entropy = chosen_logprobs(
        hidden, torch.zeros(3, 1), bias, targets=torch.tensor([1]), temperature=1.0
    )
    (logprobs + entropy).sum().backward()

    assert entropy.item() == pytest.approx(np.log(2))
    assert torch.isfinite(hidden.grad).all()


def test_no_tokens_give_no_numbers_and_gradients_of_0():
    weight = torch.randn(5, 3, requires_grad=True)
    logprobs, _ = chosen_logprobs(
        torch.zeros(0, 3), weight, None, targets=torch.zeros(0, dtype=torch.long), temperature=1.0
    )
    logprobs.sum().backward()

    assert len(logprobs) == 0
    assert float(weight.grad.abs().sum()) == 0
