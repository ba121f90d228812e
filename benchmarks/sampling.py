"""Tokens per second of the engine torch beside `transformers.generate`, at the same batch.

The model is random, Qwen3-shaped, of the size of the one that arkdev ships, or the one in
``--model``. Prompts come in groups of eight, as GRPO samples them. Rounds are interleaved: each
variant runs once in each round, and a ratio compares the two times of one round, so that other work
on the machine strikes both.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM

from arkdev.backends.local.engine import GenerationRequest, SamplingParameters
from arkdev.backends.local.sampler.engine import MAX_RUNNING, TorchEngine

GROUP_SIZE = 8
BASELINE = "transformers.generate"

Variant = Callable[[list[list[int]], int], None]


class UnknownQwen3(Qwen3ForCausalLM):  # type: ignore[misc]
    """The same model under a name that the fast pass does not know."""


def random_model() -> Any:
    """A model of 1.3M parameters with seeded weights."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=700,
        hidden_size=160,
        intermediate_size=440,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=40,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
    )
    return Qwen3ForCausalLM(config).eval()


def prompts(batch: int, *, num_tokens: int, vocabulary_size: int, seed: int) -> list[list[int]]:
    """Random prompts; those of a group are equal."""
    source = random.Random(seed)
    num_groups = -(-batch // GROUP_SIZE)
    groups = [
        [source.randrange(vocabulary_size) for _ in range(num_tokens)] for _ in range(num_groups)
    ]
    return [groups[index // GROUP_SIZE] for index in range(batch)]


def by_transformers(model: Any) -> Variant:
    """`generate`, sampling at temperature 1 from all tokens."""

    def run(wanted: list[list[int]], num_new: int) -> None:
        ids = torch.tensor(wanted)
        model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            max_new_tokens=num_new,
            min_new_tokens=num_new,
            pad_token_id=0,
        )

    return run


def by_engine(engine: TorchEngine) -> Variant:
    """The engine: all requests at once, each with its seed."""

    async def answers(wanted: list[list[int]], num_new: int) -> None:
        requests = [
            GenerationRequest(tuple(prompt), SamplingParameters(num_new, seed=index))
            for index, prompt in enumerate(wanted)
        ]
        await asyncio.gather(*(engine.generate(request) for request in requests))

    return lambda wanted, num_new: asyncio.run(answers(wanted, num_new))


def measure(variants: dict[str, Variant], *, batch: int, options: argparse.Namespace) -> None:
    """Print one line for each variant."""
    wall: dict[str, list[float]] = {name: [] for name in variants}
    cpu: dict[str, list[float]] = {name: [] for name in variants}
    for number in range(-1, options.rounds):
        wanted = prompts(
            batch,
            num_tokens=options.prompt_tokens,
            vocabulary_size=options.vocabulary_size,
            seed=1000 * batch + number,
        )
        for name, run in variants.items():
            started, started_cpu = time.perf_counter(), time.process_time()
            run(wanted, options.new_tokens)
            if number >= 0:  # the first round warms up
                wall[name].append(time.perf_counter() - started)
                cpu[name].append(time.process_time() - started_cpu)
    for name in variants:
        rate = batch * options.new_tokens / statistics.median(wall[name])
        ratios = [_median_ratio(times[BASELINE], times[name]) for times in (wall, cpu)]
        columns = f"{rate:>10,.0f} | {ratios[0]:>10.2f} | {ratios[1]:>8.2f}"
        print(f"| {batch:>5} | {name:<21} | {columns} |", flush=True)


def _median_ratio(baseline: list[float], own: list[float]) -> float:
    return statistics.median(base / one for base, one in zip(baseline, own, strict=True))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="a Hugging Face folder")
    parser.add_argument("--batches", default="8,32,64")
    parser.add_argument("--prompt-tokens", type=int, default=100)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = (
        AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32).eval()
        if options.model
        else random_model()
    )
    options.vocabulary_size = model.config.vocab_size
    context = max(1024, options.prompt_tokens + options.new_tokens)
    variants: dict[str, Variant] = {BASELINE: by_transformers(model)}
    engines = {
        "torch": TorchEngine(model, max_context_tokens=context),
        "torch, deterministic": TorchEngine(model, max_context_tokens=context, deterministic=True),
    }
    if not options.model:
        other = random_model()
        other.__class__ = UnknownQwen3
        other.config.model_type = "unknown"
        engines["torch, by modules"] = TorchEngine(other, max_context_tokens=context)
    # every slot of the cache is touched once before anything is timed
    first = prompts(2 * MAX_RUNNING, num_tokens=8, vocabulary_size=model.config.vocab_size, seed=0)
    for engine in engines.values():
        by_engine(engine)([[index % 7, *each] for index, each in enumerate(first)], 2)
    variants |= {name: by_engine(engine) for name, engine in engines.items()}
    print(f"{options.prompt_tokens} + {options.new_tokens} tokens, {options.threads} threads")
    print("| batch | variant               |   tokens/s | × generate | × in CPU |")
    print("|---|---|---|---|---|")
    for batch in options.batches.split(","):
        measure(variants, batch=int(batch), options=options)
    for engine in engines.values():
        asyncio.run(engine.close())


if __name__ == "__main__":
    main()
