"""From random weights to `tiny-teacher`, and from there to `tiny`; both measured and written."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3ForCausalLM

from tools.tiny_model.card import model_card
from tools.tiny_model.evaluation import WORKSPACES, mean_reward
from tools.tiny_model.tokenizer import END_OF_TEXT, END_OF_TURN, make_tokenizer
from tools.tiny_model.training import Course, new_model, train

SEED = 20260428
COPYING = Course(
    batches=600,
    learning_rate=3e-3,
    dialogues={"weather": 16, "echo": 16},
    is_mixture=False,
    seed=SEED,
)
COMPETENCE = Course(
    batches=1800,
    learning_rate=2.5e-3,
    dialogues={"weather": 10, "arithmetic": 48, "search": 16, "echo": 6},
    is_mixture=False,
    seed=SEED + 1,
)
ADDING = Course(
    batches=500,
    learning_rate=1.5e-3,
    dialogues={"weather": 8, "arithmetic": 32, "large arithmetic": 64, "search": 8},
    is_mixture=False,
    seed=SEED + 2,
)
MIXTURE = Course(
    batches=250,
    learning_rate=1e-3,
    dialogues={"weather": 32, "arithmetic": 64, "search": 12},
    is_mixture=True,
    seed=SEED + 3,
)
REPEATS = 8  # attempts at each validation sample, when measured at temperature 1


def make_models(folder: Path) -> None:
    """Make both models below `folder`; the same weights on every run of one machine."""
    tokenizer = make_tokenizer()
    model = new_model(tokenizer, seed=SEED)
    train(model, tokenizer, COPYING)
    train(model, tokenizer, COMPETENCE)
    train(model, tokenizer, ADDING)
    write(model, tokenizer, folder / "tiny-teacher")
    train(model, tokenizer, MIXTURE)
    write(model, tokenizer, folder / "tiny")


def write(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Save in Hugging Face layout, with the rewards measured on the validation questions."""
    model.generation_config = GenerationConfig(
        do_sample=True,
        temperature=1.0,
        eos_token_id=[tokenizer.convert_tokens_to_ids(e) for e in (END_OF_TURN, END_OF_TEXT)],
        pad_token_id=tokenizer.pad_token_id,
    )
    # batches that were padded leave their padding in the tokenizer
    tokenizer.backend_tokenizer.no_padding()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    settings = folder / "tokenizer_config.json"
    named = json.loads(settings.read_text(encoding="utf-8"))
    # the name that every release of transformers knows
    named["tokenizer_class"] = "PreTrainedTokenizerFast"
    settings.write_text(json.dumps(named, indent=2) + "\n", encoding="utf-8")
    rewards = measured(model, tokenizer)
    print(folder.name, rewards)
    (folder / "README.md").write_text(model_card(folder.name, rewards), encoding="utf-8")


def measured(
    model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast
) -> dict[str, tuple[float, float]]:
    """Mean reward of each domain on its validation file: (greedy, at temperature 1)."""
    torch.manual_seed(SEED)
    return {
        domain: (
            mean_reward(model, tokenizer, domain, temperature=0.0),
            mean_reward(model, tokenizer, domain, repeats=REPEATS),
        )
        for domain in WORKSPACES
    }
