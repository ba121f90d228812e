"""Supervised training on generated dialogues: the model's own turns are the targets."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from random import Random

import torch
from torch.nn.functional import cross_entropy, linear
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from tools.tiny_model import arithmetic, echo, search, weather
from tools.tiny_model.dialogue import Dialogue, check_held_out
from tools.tiny_model.tokenizer import CONTEXT, END_OF_TEXT, END_OF_TURN

IGNORED = -100
DOMAINS: Mapping[str, Callable[..., Dialogue]] = {
    "weather": weather.dialogue,
    "arithmetic": arithmetic.dialogue,
    "large arithmetic": arithmetic.large_dialogue,
    "search": search.dialogue,
    "echo": echo.dialogue,
}
LOG_EVERY = 50
MOST_PADDING = 0.3


@dataclass(frozen=True)
class Row:
    """One dialogue in tokens; `targets` is IGNORED where the model does not speak."""

    domain: str
    ids: list[int]
    targets: list[int]


@dataclass(frozen=True)
class Course:
    """How one model is trained. `dialogues[domain]` is the number in every batch."""

    batches: int
    learning_rate: float
    dialogues: Mapping[str, int]
    is_mixture: bool
    seed: int
    warm_up: int = 50
    last_share: float = 0.02  # of the learning rate, at the end
    weight_decay: float = 0.01


def new_model(tokenizer: PreTrainedTokenizerFast, *, seed: int) -> Qwen3ForCausalLM:
    """Random weights: 1.15M parameters in Qwen3's architecture, 4.6 MB in float32."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=160,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=CONTEXT,
        rope_theta=10_000.0,
        tie_word_embeddings=True,
        attention_dropout=0.0,
        bos_token_id=None,
        eos_token_id=tokenizer.convert_tokens_to_ids(END_OF_TURN),
        pad_token_id=tokenizer.convert_tokens_to_ids(END_OF_TEXT),
        dtype="float32",
    )
    return Qwen3ForCausalLM(config)


def train(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, course: Course) -> None:
    """Train `model` in place; prints the loss of each domain now and then."""
    rng = Random(course.seed)
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=course.learning_rate,
        betas=(0.9, 0.98),
        weight_decay=course.weight_decay,
        fused=True,
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _share(step, course))
    model.train()
    start = time.monotonic()
    sums = dict.fromkeys(course.dialogues, 0.0)
    for step in range(1, course.batches + 1):
        for domain, loss in backward(model, tokenizer, drawn(tokenizer, rng, course)).items():
            sums[domain] += loss
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        if step % LOG_EVERY == 0:
            losses = "  ".join(f"{name} {total / LOG_EVERY:.4f}" for name, total in sums.items())
            print(f"{step:5d}  {losses}  {time.monotonic() - start:.0f} s", flush=True)
            sums = dict.fromkeys(sums, 0.0)
    model.eval()


def _share(step: int, course: Course) -> float:
    """Linear warm-up, then half a cosine."""
    if step < course.warm_up:
        return (step + 1) / course.warm_up
    done = (step - course.warm_up) / max(course.batches - course.warm_up, 1)
    return course.last_share + (1 - course.last_share) * (1 + math.cos(math.pi * done)) / 2


def drawn(tokenizer: PreTrainedTokenizerFast, rng: Random, course: Course) -> list[Row]:
    """One batch."""
    return [
        Row(domain, *encoded(tokenizer, DOMAINS[domain](rng, is_mixture=course.is_mixture)))
        for domain, count in course.dialogues.items()
        for _ in range(count)
    ]


def backward(
    model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, rows: list[Row]
) -> dict[str, float]:
    """Add the batch's gradient; return the mean cross-entropy of each domain.

    Every domain has the same weight, whatever the number of its tokens. Rows of about the same
    length are computed together.
    """
    losses = dict.fromkeys((row.domain for row in rows), 0.0)
    targets = dict.fromkeys(losses, 0)
    for row in rows:
        targets[row.domain] += sum(target != IGNORED for target in row.targets)
    for chunk in chunks(rows):
        ids, following = padded(chunk, pad=tokenizer.pad_token_id)
        spoken = following != IGNORED
        hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
        # logits for the model's own tokens alone
        logits = linear(hidden[spoken], model.lm_head.weight)
        by_token = cross_entropy(logits, following[spoken], reduction="none")
        weights = torch.tensor([1 / targets[row.domain] for row in chunk])
        by_row = torch.zeros(len(chunk)).index_add(0, spoken.nonzero()[:, 0], by_token) * weights
        (by_row.sum() / len(losses)).backward()
        for row, loss in zip(chunk, by_row.tolist(), strict=True):
            losses[row.domain] += loss
    return losses


def chunks(rows: list[Row]) -> Iterator[list[Row]]:
    """Rows sorted by length, cut where padding would exceed MOST_PADDING."""
    chunk: list[Row] = []
    for row in sorted(rows, key=lambda row: len(row.ids)):
        if chunk and len(row.ids) > len(chunk[0].ids) * (1 + MOST_PADDING):
            yield chunk
            chunk = []
        chunk.append(row)
    yield chunk


def padded(rows: list[Row], *, pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(ids, following), both [rows, longest - 1]; `following` is the target of each position.

    Padding is on the right and attention is causal, so that no mask is needed.
    """
    longest = max(len(row.ids) for row in rows)
    ids = torch.tensor([row.ids + [pad] * (longest - len(row.ids)) for row in rows])
    targets = torch.tensor([row.targets + [IGNORED] * (longest - len(row.targets)) for row in rows])
    return ids[:, :-1], targets[:, 1:]


def encoded(tokenizer: PreTrainedTokenizerFast, dialogue: Dialogue) -> tuple[list[int], list[int]]:
    """Token ids, and the same with IGNORED where the model does not speak."""
    check_held_out(dialogue)
    ids: list[int] = tokenizer.apply_chat_template(
        dialogue.messages,
        tools=dialogue.tools or None,
        enable_thinking=dialogue.thinking,
        tokenize=True,
        return_dict=False,
    )
    opening = tokenizer.encode("<|im_start|>assistant\n", add_special_tokens=False)
    end = tokenizer.convert_tokens_to_ids(END_OF_TURN)
    targets = [IGNORED] * len(ids)
    position = 0
    while position < len(ids):
        if ids[position : position + len(opening)] != opening:
            position += 1
            continue
        position += len(opening)
        stop = ids.index(end, position) + 1
        targets[position:stop] = ids[position:stop]
        position = stop
    return ids, targets
