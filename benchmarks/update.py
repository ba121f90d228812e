"""What a training step's update costs beside the bare passes it is made of, and what sharing saves.

    python benchmarks/update.py [--prompts 16] [--answers 8] [--rounds 5] [--threads N]
                                [--shape tiny|small] [--device cuda]

A random Qwen3-shaped model; groups whose prompts begin with one system message, as tool-calling
jobs have. Each round runs every way once, in turns, so that a busy machine slows all alike. Rows:

* update     `arkdev.backends.local.update`, with AdamW's step
* bare       forward and backward pass of the same packed micro-batches by the same layers, whole
             logits and cross entropy; no losses, no metrics, no optimizer
* unshared   update of the same sequences with nothing shared (packed, no padding)
* padded     update in padded batches by transformers' own code

Memory is the most that a process of its own held, less what it held before the first step.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from arkdev.backends.local import policy as policy_module
from arkdev.backends.local.attention import NAME, PassAttention
from arkdev.backends.local.batch import TrainingBatch, TrainingSequence
from arkdev.backends.local.optimizer import make_optimizer
from arkdev.backends.local.packing import pack
from arkdev.backends.local.policy import Policy
from arkdev.backends.local.settings import UpdateSettings
from arkdev.backends.local.update import update

SHAPES = {
    "tiny": {
        "vocab_size": 2048,
        "hidden_size": 160,
        "intermediate_size": 480,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 40,
    },
    "small": {
        "vocab_size": 151_936,
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
    },
}
WAYS = ("update", "bare", "unshared", "padded")


def batch(num_prompts: int, num_answers: int, *, vocabulary: int) -> TrainingBatch:
    """Return groups: 60 tokens of a system message, 30 of a question, 20 to 60 of an answer."""
    rng = random.Random(0)

    def tokens(number: int) -> list[int]:
        return [rng.randrange(vocabulary) for _ in range(number)]

    system, sequences = tokens(60), []
    for index in range(num_prompts):
        prompt = system + tokens(30)
        for answer in range(num_answers):
            ids = prompt + tokens(rng.randrange(20, 61))
            mask = tuple(place >= len(prompt) for place in range(len(ids)))
            advantage = rng.gauss(0, 1)
            sequences.append(
                TrainingSequence(
                    trajectory_id=f"{index}.{answer}",
                    sample_index=index,
                    token_ids=tuple(ids),
                    loss_mask=mask,
                    rollout_logprobs=tuple(-7.0 * is_own for is_own in mask),
                    advantages=tuple(advantage * is_own for is_own in mask),
                    token_weights=tuple(1e-4 * is_own for is_own in mask),
                    policy_version=0,
                )
            )
    return TrainingBatch(step=0, sequences=tuple(sequences))


def ways(options: argparse.Namespace) -> dict[str, Callable[[], None]]:
    """Return a function for each row, all on one model."""
    shape = SHAPES[options.shape]
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(Qwen3Config(**shape, tie_word_embeddings=True)).to(options.device)
    is_gpu = options.device != "cpu"
    policy = Policy(model, dtype=torch.bfloat16 if is_gpu else torch.float32)
    settings = UpdateSettings(lr=1e-6)
    optimizer = make_optimizer(policy, settings)
    groups = batch(options.prompts, options.answers, vocabulary=shape["vocab_size"])
    passes = policy.pack(groups.sequences, most_tokens=policy.tokens_of_a_pass())

    def step(**layout: bool) -> Callable[[], None]:
        def run() -> None:
            policy_module.pack = lambda *args, **kwargs: pack(*args, **(kwargs | layout))
            update(policy, optimizer, groups, settings)
            policy_module.pack = pack

        return run

    def bare() -> None:
        model.set_attn_implementation(NAME)
        model.zero_grad(set_to_none=True)
        for packed in passes:
            with policy._autocast():
                hidden = model.model(
                    input_ids=packed.token_ids,
                    attention_mask=packed.token_ids.new_ones((1, 1, 1, 1)),
                    position_ids=packed.position_ids,
                    use_cache=False,
                    pass_attention=PassAttention(packed.plan),
                ).last_hidden_state[0]
                logits = model.lm_head(hidden[packed.predictors])
            torch.nn.functional.cross_entropy(logits.float(), packed.targets).backward()

    return {
        "update": step(),
        "bare": bare,
        "unshared": step(shares_prefixes=False),
        "padded": step(is_packed=False),
    }


def seconds(run: Callable[[], None], *, is_gpu: bool) -> float:
    """Return how long a call takes."""
    if is_gpu:
        torch.cuda.synchronize()
    started = time.perf_counter()
    run()
    if is_gpu:
        torch.cuda.synchronize()
    return time.perf_counter() - started


def held(is_gpu: bool, *, most: bool) -> float:
    """Return MB that this process holds, or the most that it held."""
    if is_gpu:
        return (torch.cuda.max_memory_allocated() if most else torch.cuda.memory_allocated()) / 1e6
    with open("/proc/self/status", encoding="utf-8") as file:
        lines = dict(line.split(":", 1) for line in file)
    return int(lines["VmHWM" if most else "VmRSS"].split()[0]) / 1e3


def memory_of(way: str, options: argparse.Namespace) -> float:
    """Return MB that two steps add to a process of their own."""
    arguments = [
        item
        for name, value in vars(options).items()
        if name != "memory_of"
        for item in (f"--{name}", str(value))
    ]
    done = subprocess.run(
        [sys.executable, __file__, *arguments, "--memory_of", way],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(json.loads(done.stdout)["mb"])


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--answers", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--shape", choices=SHAPES, default="tiny")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--memory_of", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    is_gpu, runs = options.device != "cpu", ways(options)
    if options.memory_of:
        before = held(is_gpu, most=False)
        for _ in range(2):
            runs[options.memory_of]()
        print(json.dumps({"mb": held(is_gpu, most=True) - before}))
        return
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    for way in WAYS:
        runs[way]()
    for _ in range(options.rounds):
        for way in WAYS:
            times[way].append(seconds(runs[way], is_gpu=is_gpu))
    groups = batch(options.prompts, options.answers, vocabulary=SHAPES[options.shape]["vocab_size"])
    tokens = sum(len(sequence.token_ids) for sequence in groups.sequences)
    print(
        f"{len(groups.sequences)} sequences, {tokens:,} tokens; {options.shape}, {options.device}, "
        f"{options.threads} threads; median of {options.rounds} interleaved rounds\n"
    )
    print(f"{'':<10}{'seconds':>9}{'tokens/s':>11}{'time / update':>15}{'memory MB':>11}")
    for way in WAYS:
        ratio = statistics.median(
            own / base for own, base in zip(times[way], times["update"], strict=True)
        )
        middle = statistics.median(times[way])
        print(
            f"{way:<10}{middle:>9.2f}{tokens / middle:>11,.0f}{ratio:>15.2f}"
            f"{memory_of(way, options):>11.0f}"
        )


if __name__ == "__main__":
    main()
