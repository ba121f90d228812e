"""Both passes equal the model's own, whichever way a token's logits come about."""

import pytest
import torch

from arkdev.backends.local.sampler.kv_cache import KeyValueCache
from arkdev.backends.local.sampler.llama_forward import LlamaForward
from arkdev.backends.local.sampler.model_forward import (
    choose_forward,
    decode,
    prefill_all_logits,
    prefill_chunks,
)
from arkdev.backends.local.sampler.model_weights import plain_model, weights
from arkdev.backends.local.sampler.module_forward import ModuleForward
from arkdev.errors import ConfigurationError
from tests.local.sampler import models

CPU = torch.device("cpu")
NUM_TOKENS = 400


def fast(model):
    forward = LlamaForward(
        plain_model(model), num_positions=NUM_TOKENS, device=CPU, dtype=torch.float32
    )
    forward.load(weights(model))
    return forward


def by_modules(model):
    return ModuleForward(model, device=CPU, dtype=torch.float32)


PASSES = {"fast": fast, "modules": by_modules}
MODELS = {
    "qwen3": models.qwen3,
    "llama": models.llama,
    "qwen2": models.qwen2,
    "mistral": models.mistral,
    "llama with biases": lambda: models.llama(
        attention_bias=True, mlp_bias=True, tie_word_embeddings=True
    ),
}


def sequence(length, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(models.VOCABULARY, (length,), generator=generator).tolist()


def new_cache(forward, num_slots=3):
    cache = KeyValueCache(
        forward.cache_shape,
        num_slots=num_slots,
        num_tokens=NUM_TOKENS,
        device=CPU,
        dtype=torch.float32,
    )
    cache.allocate()
    return cache


def table(logits):
    return logits.log_softmax(-1)


def own_table(model, token_ids):
    with torch.no_grad():
        return table(model(torch.tensor([token_ids])).logits[0])


def prefilled(forward, cache, slot, token_ids, *, start=0, is_aligned=False):
    chunks = prefill_chunks(start, len(token_ids), is_aligned=is_aligned)
    with torch.inference_mode():
        return torch.cat(
            [
                prefill_all_logits(
                    forward, cache, slot, token_ids=token_ids, chunk=chunk, is_aligned=is_aligned
                )
                for chunk in chunks
            ]
        )


def assert_close(found, expected):
    assert (table(found) - expected).abs().max().item() <= 1e-5


@pytest.mark.parametrize("kind", PASSES)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("is_aligned", [False, True])
def test_prefill_and_decode_of_long_sequences_equal_the_model(name, kind, is_aligned):
    model = MODELS[name]()
    forward = PASSES[kind](model)
    cache = new_cache(forward)
    ids = [sequence(NUM_TOKENS, seed=1), sequence(90, seed=2)]
    lengths = [NUM_TOKENS - 8, 82]
    for slot, length in enumerate(lengths):
        found = prefilled(forward, cache, slot, ids[slot][:length], is_aligned=is_aligned)
        assert_close(found, own_table(model, ids[slot])[:length])
    for step in range(8):
        positions = [length + step for length in lengths]
        with torch.inference_mode():
            logits = decode(
                forward,
                cache,
                token_ids=[ids[row][position] for row, position in enumerate(positions)],
                positions=positions,
                own_lengths=is_aligned,
            )
        for row, position in enumerate(positions):
            expected = own_table(model, ids[row])[position]
            assert_close(logits[row], expected)


@pytest.mark.parametrize("kind", PASSES)
@pytest.mark.parametrize("name", ["qwen3", "llama"])
def test_a_copied_prefix_goes_on_as_its_own_sequence_in_another_slot(name, kind):
    model = MODELS[name]()
    forward = PASSES[kind](model)
    cache = new_cache(forward)
    first = sequence(100)
    forked = first[:70] + sequence(60, seed=5)
    prefilled(forward, cache, 0, first)
    cache.copy(0, 1, num_tokens=70)
    found = prefilled(forward, cache, 1, forked, start=70)
    assert_close(found, own_table(model, forked)[70:])
    cache.swap(0, 1, num_tokens=130)
    with torch.inference_mode():
        logits = decode(forward, cache, token_ids=[3, 4], positions=[130, 100])
    assert_close(logits[0], own_table(model, [*forked, 3])[-1])
    assert_close(logits[1], own_table(model, [*first, 4])[-1])


def test_a_sliding_window_and_a_model_of_another_family_go_by_their_modules():
    for model in (models.mistral(window=33), models.gpt_neox()):
        forward = choose_forward(
            model, max_context_tokens=NUM_TOKENS, device=CPU, dtype=torch.float32
        )
        assert forward.name == "modules"
        ids = sequence(150)
        cache = new_cache(forward)
        found = prefilled(forward, cache, 0, ids[:-1])
        with torch.inference_mode():
            last = decode(forward, cache, token_ids=ids[-1:], positions=[len(ids) - 1])
        assert_close(torch.cat([found, last]), own_table(model, ids))


# peft asks transformers by a name that goes away
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
@pytest.mark.parametrize("kind", PASSES)
def test_adapters_are_merged_into_a_copy_and_the_trained_model_keeps_its_bits(kind):
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=4, target_modules=["q_proj", "v_proj", "down_proj"], modules_to_save=["lm_head"]
    )
    model = get_peft_model(models.qwen3(tie_word_embeddings=False), config)
    models.randomised(model.base_model, seed=3)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    forward = PASSES[kind](model)
    ids = sequence(60)
    assert_close(prefilled(forward, new_cache(forward), 0, ids), own_table(model, ids))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name or "modules_to_save" in name:
                parameter.mul_(0.5)
    forward.load(weights(model))
    assert_close(prefilled(forward, new_cache(forward), 0, ids), own_table(model, ids))
    unchanged = [
        torch.equal(before[name], tensor)
        for name, tensor in model.state_dict().items()
        if "lora_B" not in name and "modules_to_save" not in name
    ]
    assert all(unchanged)


@pytest.mark.parametrize("kind", PASSES)
def test_weights_of_another_model_are_refused_and_change_nothing(kind):
    model = models.qwen3()
    forward = PASSES[kind](model)
    ids = sequence(20)
    for other in (models.qwen3(intermediate_size=64), models.llama()):
        with pytest.raises(ConfigurationError):
            forward.load(weights(other))
    assert_close(prefilled(forward, new_cache(forward), 0, ids), own_table(model, ids))
