"""Small random models, seeded."""

import torch
from transformers import (
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

VOCABULARY = 101
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 1024,
}


def randomised(model, seed=0):
    """The model with weights so large that its distributions are far from flat."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(1 + 0.2 * noise if parameter.dim() == 1 else 0.15 * noise)
    return model.eval()


def qwen3(seed=0, **settings):
    config = Qwen3Config(
        **SIZES | {"num_key_value_heads": 2, "head_dim": 16, "tie_word_embeddings": True} | settings
    )
    return randomised(Qwen3ForCausalLM(config), seed)


def llama(seed=0, **settings):
    """Queries with keys of their own, and scaled rotations."""
    scaled = {
        "rope_type": "llama3",
        "rope_theta": 10_000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    config = LlamaConfig(**SIZES | {"num_key_value_heads": 4, "rope_parameters": scaled} | settings)
    return randomised(LlamaForCausalLM(config), seed)


def qwen2(seed=0):
    """Biases of q, k and v."""
    return randomised(Qwen2ForCausalLM(Qwen2Config(**SIZES, num_key_value_heads=2)), seed)


def mistral(seed=0, *, window=None):
    config = MistralConfig(**SIZES, num_key_value_heads=2, sliding_window=window)
    return randomised(MistralForCausalLM(config), seed)


def gpt_neox(seed=0):
    """Of another family: rotates a part of each head, LayerNorm, parallel residuals."""
    config = GPTNeoXConfig(**SIZES)
    return randomised(GPTNeoXForCausalLM(config), seed)


def model_logprobs(model, token_ids, *, temperature=1.0):
    """Of each token but the first, by the model's own forward pass."""
    with torch.no_grad():
        logits = model(torch.tensor([token_ids])).logits[0].float()
    table = (logits / temperature).log_softmax(-1)
    return [table[index, token].item() for index, token in enumerate(token_ids[1:])]
