"""Small models with random weights, and sequences for them."""

import random

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from arkdev.backends.local.batch import TrainingBatch, TrainingSequence

VOCABULARY = 61
SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "initializer_range": 0.15,
}
FAMILIES = ("qwen3", "llama")


def random_model(family="qwen3", *, seed=0, **changes):
    torch.manual_seed(seed)
    if family == "qwen3":
        return Qwen3ForCausalLM(Qwen3Config(**SHAPE, tie_word_embeddings=True, **changes)).eval()
    return LlamaForCausalLM(LlamaConfig(**SHAPE, tie_word_embeddings=False, **changes)).eval()


def sequence(token_ids, trained, *, advantage=1.0, weight=1.0, rollout=-1.0, index=0):
    """A sequence whose tokens at the places `trained` are trained."""
    places = set(trained)

    def row(value):
        return tuple(value if place in places else 0.0 for place in range(len(token_ids)))

    return TrainingSequence(
        trajectory_id=f"t{index}",
        sample_index=index,
        token_ids=tuple(token_ids),
        loss_mask=tuple(place in places for place in range(len(token_ids))),
        rollout_logprobs=row(rollout),
        advantages=row(advantage),
        token_weights=row(weight),
        policy_version=0,
    )


def groups(*, num_prompts=3, num_answers=4, seed=0, weight=0.02):
    """Groups whose prompts begin alike and whose answers have two turns, some begin alike too."""
    rng = random.Random(seed)

    def tokens(number):
        return [rng.randrange(VOCABULARY) for _ in range(number)]

    system, sequences = tokens(17), []
    for index in range(num_prompts):
        prompt = system + tokens(rng.randrange(5, 14))
        first = tokens(11)
        for answer in range(num_answers):
            own = first if answer % 2 else tokens(rng.randrange(1, 12))
            turn = prompt + own
            tool, last = tokens(rng.randrange(3, 9)), tokens(rng.randrange(1, 15))
            places = [*range(len(prompt), len(turn))]
            places += range(len(turn) + len(tool), len(turn) + len(tool) + len(last))
            sequences.append(
                sequence(
                    turn + tool + last,
                    places,
                    advantage=rng.gauss(0, 1),
                    weight=weight,
                    index=index,
                )
            )
    return sequences


def batch_of(sequences, *, step=0):
    return TrainingBatch(step=step, sequences=tuple(sequences))


def reference_logprobs(model, one, *, temperature=1.0):
    """The trained tokens' logprobs of one sequence, by the model's own forward pass."""
    logits = model(torch.tensor([one.token_ids])).logits[0].float() / temperature
    logprobs = torch.log_softmax(logits, dim=-1)
    places = [i for i in range(1, len(one.token_ids)) if one.loss_mask[i]]
    return torch.stack([logprobs[i - 1, one.token_ids[i]] for i in places])


def gradients(model):
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
