"""Packing changes no number: logprobs and gradients are those of one sequence at a time."""

import copy

import pytest
import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
)

from arkdev.backends.local.packing import pack
from arkdev.backends.local.policy import Policy
from arkdev.backends.local.settings import LoraSettings
from arkdev.errors import ConfigurationError
from tests.local.random_models import (
    FAMILIES,
    SHAPE,
    VOCABULARY,
    gradients,
    groups,
    random_model,
    reference_logprobs,
    sequence,
)

LAYOUTS = {
    "shared prefixes": {"most_tokens": 10_000},
    "shared prefixes, small passes": {"most_tokens": 90},
    "shared prefixes, one sequence each": {"most_tokens": 1},
    "packed, nothing shared": {"most_tokens": 200, "shares_prefixes": False},
    "padded": {"most_tokens": 150, "is_packed": False},
}


def loss_of(logprobs, packed):
    return -(logprobs * packed.advantages * packed.weights).sum()


def by_sequence(policy, passes, sequences, *, temperature=1.0):
    """Logprobs of each sequence, whatever the order of the passes."""
    found = {}
    for packed in passes:
        logprobs = policy.token_logprobs(packed, temperature=temperature)
        sizes = [sum(sequences[index].loss_mask[1:]) for index in packed.sequences]
        found |= dict(zip(packed.sequences, logprobs.split(sizes), strict=True))
    return [found[index] for index in range(len(sequences))]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("family", FAMILIES)
def test_logprobs_and_gradients_are_those_of_one_sequence_at_a_time(family, layout):
    sequences = groups()
    model = random_model(family)
    alone = copy.deepcopy(model)
    policy = Policy(model)
    passes = pack(sequences, **LAYOUTS[layout])
    expected = [reference_logprobs(alone, one, temperature=0.7) for one in sequences]

    for ours, theirs in zip(
        by_sequence(policy, passes, sequences, temperature=0.7), expected, strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-5)
    for packed in passes:
        loss_of(policy.token_logprobs(packed, temperature=0.7), packed).backward()
    for one, logprobs in zip(sequences, expected, strict=True):
        advantage = max(one.advantages, key=abs)
        (-logprobs.sum() * advantage * 0.02).backward()
    ours, theirs = gradients(model), gradients(alone)
    assert float((ours - theirs).norm() / theirs.norm()) < 3e-6


def test_what_sequences_share_is_computed_once():
    ids = list(range(40))
    sequences = [sequence([*ids, 50 + last], [40], index=last) for last in range(4)]

    (packed,) = pack(sequences, most_tokens=1000)

    assert packed.num_tokens == 40 + 4
    assert packed.num_sequence_tokens == 4 * 41
    assert packed.num_trained == 4


def test_equal_sequences_and_one_that_another_goes_on_from_keep_their_own_gradient():
    model = random_model()
    ids = [(7 * i) % VOCABULARY for i in range(30)]
    sequences = [
        sequence(ids, range(20, 30), advantage=1.0, index=0),
        sequence(ids, range(20, 30), advantage=-0.5, index=1),
        sequence([*ids, *ids[:9]], range(20, 39), advantage=0.25, index=2),
    ]
    policy = Policy(model)

    grads = []
    for layout in ({"most_tokens": 1000}, {"most_tokens": 1}):
        model.zero_grad()
        for packed in pack(sequences, **layout):
            loss_of(policy.token_logprobs(packed, temperature=1.0), packed).backward()
        grads.append(gradients(model))

    assert pack(sequences, most_tokens=1000)[0].num_tokens == 39
    torch.testing.assert_close(grads[0], grads[1], rtol=1e-4, atol=1e-5)


def test_a_sliding_window_sees_as_far_as_alone():
    torch.manual_seed(0)
    model = MistralForCausalLM(MistralConfig(**SHAPE, sliding_window=9)).eval()
    alone = copy.deepcopy(model)
    policy = Policy(model)
    sequences = groups()

    assert policy.layout == "packed"
    found = by_sequence(policy, policy.pack(sequences, most_tokens=500), sequences)
    for ours, one in zip(found, sequences, strict=True):
        torch.testing.assert_close(ours, reference_logprobs(alone, one), rtol=0, atol=2e-5)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (
            lambda: Gemma2ForCausalLM(Gemma2Config(**SHAPE, query_pre_attn_scalar=8)),
            "capped behind the head",
        ),
        (
            lambda: MambaForCausalLM(
                MambaConfig(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2)
            ),
            "cannot be packed",
        ),
    ],
    ids=["gemma2", "mamba"],
)
def test_a_model_that_cannot_be_packed_is_trained_in_padded_batches_and_says_so(model, reason):
    torch.manual_seed(0)
    model = model().eval()
    alone = copy.deepcopy(model)
    policy = Policy(model)
    sequences = groups(num_prompts=1)

    assert policy.layout == "padded"
    assert reason in policy.layout_reason
    found = by_sequence(policy, policy.pack(sequences, most_tokens=500), sequences)
    for ours, one in zip(found, sequences, strict=True):
        torch.testing.assert_close(ours, reference_logprobs(alone, one), rtol=0, atol=5e-5)


def test_a_packed_model_still_answers_as_usual():
    model = random_model()
    ids = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6], [2, 7, 1, 8, 0, 0, 0, 0]])
    mask = torch.tensor([[1] * 8, [1] * 4 + [0] * 4])
    before = model(ids, attention_mask=mask).logits
    policy = Policy(model)
    for packed in policy.pack(groups(num_prompts=1), most_tokens=500):
        policy.token_logprobs(packed, temperature=1.0)

    after = model(ids, attention_mask=mask).logits

    torch.testing.assert_close(after[0], before[0])
    torch.testing.assert_close(after[1, :4], before[1, :4])


def test_bfloat16_passes_are_close_to_float32_and_train_float32_weights():
    sequences = groups(num_prompts=1)
    exact, rounded = Policy(random_model()), Policy(random_model(), dtype=torch.bfloat16)

    assert rounded.layout == "packed", rounded.layout_reason
    (packed,) = exact.pack(sequences, most_tokens=1000)
    ours = rounded.token_logprobs(packed, temperature=1.0)
    ours.sum().backward()

    theirs = exact.token_logprobs(packed, temperature=1.0)
    assert ours.dtype == torch.float32
    assert float((ours - theirs).detach().abs().mean()) < 0.03
    assert all(p.grad.dtype == torch.float32 for p in rounded.model.parameters())


@pytest.mark.parametrize("family", FAMILIES)
def test_adapters_train_alone_and_their_base_is_the_reference(family, tmp_path):
    sequences = groups(num_prompts=1)
    base = random_model(family)
    base.save_pretrained(tmp_path)
    expected = [reference_logprobs(base, one).detach() for one in sequences]
    policy = Policy.load(tmp_path, lora=LoraSettings(rank=4, alpha=8), device="cpu")
    (packed,) = policy.pack(sequences, most_tokens=1000)
    order = torch.cat([expected[index] for index in packed.sequences])

    begun = policy.token_logprobs(packed, temperature=1.0)
    with torch.no_grad():
        for parameter in policy.trained_parameters().values():
            parameter.normal_(0, 0.1)
    moved = policy.token_logprobs(packed, temperature=1.0)
    reference = policy.reference_logprobs(packed, temperature=1.0)
    moved.sum().backward()

    torch.testing.assert_close(begun, order, rtol=0, atol=2e-5)
    torch.testing.assert_close(reference, order, rtol=0, atol=2e-5)
    assert float((moved - reference).detach().abs().max()) > 1e-3
    assert all("lora_" in name for name in policy.trained_parameters())
    assert all(p.grad is not None for p in policy.trained_parameters().values())


def test_a_reference_stays_where_the_policy_began():
    sequences = groups(num_prompts=1)
    policy = Policy(random_model(), keeps_reference=True)
    (packed,) = policy.pack(sequences, most_tokens=1000)
    before = policy.token_logprobs(packed, temperature=0.7).detach()
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.mul_(1.2)

    torch.testing.assert_close(policy.reference_logprobs(packed, temperature=0.7), before)
    moved = policy.token_logprobs(packed, temperature=0.7).detach()
    assert float((moved - before).abs().max()) > 0.01


def test_a_folder_without_a_model_is_named(tmp_path):
    with pytest.raises(ConfigurationError) as caught:
        Policy.load(tmp_path)

    assert str(tmp_path) in str(caught.value)
