"""What `train.py` measures of arkdev, and beside it; one process for each row.

    python train_rows.py ROW SETTINGS.json

A process says ``ready``, does its work once for each line on standard input, and answers with a
line of JSON: ``seconds``, ``tokens``, ``peak_mb`` and what else it has measured. So the rows take
turns, and each has a memory of its own.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from arkdev.backends.local.attention import NAME, PassAttention
from arkdev.backends.local.batch import TrainingBatch, TrainingSequence
from arkdev.backends.local.engine import (
    GenerationEngine,
    GenerationRequest,
    SamplingParameters,
)
from arkdev.backends.local.learner import PolicyLearner
from arkdev.backends.local.policy import Policy
from arkdev.backends.local.sampler.engine import TorchEngine
from arkdev.backends.local.settings import UpdateSettings
from arkdev.backends.local.train import LoopSettings, StepDone, train
from arkdev.backends.local.vllm.engine import start_vllm
from arkdev.backends.local.vllm.settings import VllmSettings
from arkdev.harness.advantages import grpo_advantages
from arkdev.harness.loss_weights import token_weights
from train_memory import peak_mb

START_LIMIT_S = 600.0


async def told_to_go() -> bool:
    """Wait for a line; False when there are no more."""
    return bool(await asyncio.to_thread(sys.stdin.readline))


def say(answer: Mapping[str, Any]) -> None:
    """Answer with a line."""
    print(json.dumps({**answer, "peak_mb": peak_mb()}), file=OUT, flush=True)


class EvenGroups:
    """Groups as TRL makes them: no plugins, a reward that costs nothing."""

    num_steps = 10_000

    def __init__(self, engine: GenerationEngine, settings: Mapping[str, Any]) -> None:
        self._engine = engine
        self._settings = settings
        self.prompts = prompts_of(settings)
        self.started = 0.0

    async def training_batch(self, step: int) -> TrainingBatch:
        """See `GroupSource`. Waits until the step is asked for."""
        if not await told_to_go():
            raise EOFError
        self.started = time.perf_counter()
        sequences = await self.sequences(step)
        return TrainingBatch(step, tuple(sequences))

    async def sequences(self, step: int) -> list[TrainingSequence]:
        """What a step is trained on."""
        groups, size = self._settings["groups"], self._settings["group_size"]
        chosen = random.Random(step).sample(self.prompts, groups)
        wanted = [prompt for prompt in chosen for _ in range(size)]
        answers = await sampled(self._engine, wanted, self._settings, seed=step)
        rewards = [sum(i % 2 == 0 for i in a.token_ids) / len(a.token_ids) for a in answers]
        advantages = [
            advantage
            for start in range(0, len(rewards), size)
            for advantage in grpo_advantages(rewards[start : start + size])
        ]
        masks = [
            [False] * len(prompt) + [True] * len(answer.token_ids)
            for prompt, answer in zip(wanted, answers, strict=True)
        ]
        weights = token_weights(masks, mode="token-mean")
        return [
            TrainingSequence(
                trajectory_id=str(index),
                sample_index=index // size,
                token_ids=(*prompt, *answer.token_ids),
                loss_mask=tuple(mask),
                rollout_logprobs=(*[0.0] * len(prompt), *answer.logprobs),
                advantages=tuple(advantage * own for own in mask),
                token_weights=tuple(weight),
                policy_version=answer.policy_version,
            )
            for index, (prompt, answer, mask, advantage, weight) in enumerate(
                zip(wanted, answers, masks, advantages, weights, strict=True)
            )
        ]

    async def validation_round(self, step: int) -> None:
        """See `GroupSource`; none is due."""


class NothingSaved:
    """TRL saves nothing here either."""

    def after_step(self, step: int, *, score: float | None, is_last: bool) -> None:
        """See `Saving`."""


def prompts_of(settings: Mapping[str, Any]) -> list[list[int]]:
    """The prompts as ids, as TRL's trainer makes them of the same texts."""
    tokenizer = AutoTokenizer.from_pretrained(settings["model"])
    return [tokenizer(text)["input_ids"] for text in settings["prompts"]]


async def sampled(
    engine: GenerationEngine, wanted: list[list[int]], settings: Mapping[str, Any], *, seed: int
) -> list[Any]:
    """Answers of `new_tokens` tokens each, all at once."""
    requests = [
        GenerationRequest(
            tuple(prompt), SamplingParameters(settings["new_tokens"], seed=10_000 * seed + index)
        )
        for index, prompt in enumerate(wanted)
    ]
    return await asyncio.gather(*[engine.generate(request) for request in requests])


def torch_engine(model: Any, settings: Mapping[str, Any]) -> TorchEngine:
    """The engine with room for the longest prompt and its answer."""
    longest = max(map(len, prompts_of(settings))) + settings["new_tokens"]
    return TorchEngine(model, max_context_tokens=longest)


async def grpo_step(settings: Mapping[str, Any]) -> None:
    """Rollouts, advantages, update, new weights in the sampler, and the check that it has them."""
    policy = Policy.load(settings["model"], device="cpu")
    learner = PolicyLearner(policy, UpdateSettings(lr=settings["lr"]))
    engine = torch_engine(policy.model, settings)
    groups = EvenGroups(engine, settings)

    def tell(done: StepDone) -> None:
        gaps = {name: done.metrics[name] for name in ("sync_gap_mean", "sync_gap_max")}
        say({"seconds": time.perf_counter() - groups.started, **gaps, **done.times})

    print("ready", file=OUT, flush=True)
    try:
        await train(groups, learner, engine, NothingSaved(), settings=LoopSettings(), tell=tell)
    except* EOFError:
        pass
    await engine.close()


async def generation(engine: GenerationEngine, settings: Mapping[str, Any]) -> None:
    """All answers of a step."""
    prompts, number = prompts_of(settings), 0
    print("ready", file=OUT, flush=True)
    while await told_to_go():
        number += 1
        chosen = random.Random(number).sample(prompts, settings["groups"])
        wanted = [prompt for prompt in chosen for _ in range(settings["group_size"])]
        started = time.perf_counter()
        answers = await sampled(engine, wanted, settings, seed=number)
        seconds = time.perf_counter() - started
        say({"seconds": seconds, "tokens": sum(len(answer.token_ids) for answer in answers)})


async def by_torch(settings: Mapping[str, Any]) -> None:
    """Generation by the engine torch."""
    model = AutoModelForCausalLM.from_pretrained(settings["model"], dtype=torch.float32)
    engine = torch_engine(model, settings)
    await generation(engine, settings)
    await engine.close()


@asynccontextmanager
async def vllm(settings: Mapping[str, Any]) -> AsyncIterator[GenerationEngine]:
    """The engine vllm."""
    engine = await start_vllm(
        VllmSettings(Path(settings["model"])),
        log=Path(settings["folder"]) / "vllm-server.log",
        tell=lambda text: print(text, file=sys.stderr),
        start_limit_s=START_LIMIT_S,
        python=Path(settings["vllm_python"]),
    )
    try:
        yield engine
    finally:
        await engine.close()


async def by_vllm(settings: Mapping[str, Any]) -> None:
    """Generation by the engine vllm."""
    async with vllm(settings) as engine:
        await generation(engine, settings)


async def by_transformers(settings: Mapping[str, Any]) -> None:
    """Generation by `transformers.generate`, which pads prompts on the left."""
    tokenizer = AutoTokenizer.from_pretrained(settings["model"], padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(settings["model"], dtype=torch.float32)
    new_tokens, number = settings["new_tokens"], 0
    print("ready", file=OUT, flush=True)
    while await told_to_go():
        number += 1
        chosen = random.Random(number).sample(settings["prompts"], settings["groups"])
        texts = [text for text in chosen for _ in range(settings["group_size"])]
        started = time.perf_counter()
        model.generate(
            **tokenizer(texts, return_tensors="pt", padding=True, return_token_type_ids=False),
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            max_new_tokens=new_tokens,
            min_new_tokens=new_tokens,
        )
        say({"seconds": time.perf_counter() - started, "tokens": len(texts) * new_tokens})


async def updates(settings: Mapping[str, Any], *, is_bare: bool) -> None:
    """Updates with one step's batch; or forward and backward pass of the same packed sequences by
    the same layers, with whole logits and cross entropy, and nothing else."""
    policy = Policy.load(settings["model"], device="cpu")
    learner = PolicyLearner(policy, UpdateSettings(lr=settings["lr"]))
    engine = torch_engine(policy.model, settings)
    sequences = tuple(await EvenGroups(engine, settings).sequences(0))
    await engine.close()
    passes = policy.pack(sequences, most_tokens=policy.tokens_of_a_pass())
    print("ready", file=OUT, flush=True)
    while await told_to_go():
        started = time.perf_counter()
        if is_bare:
            bare(policy, passes)
        else:
            learner.learn(TrainingBatch(0, sequences))
        tokens = sum(len(sequence.token_ids) for sequence in sequences)
        say({"seconds": time.perf_counter() - started, "tokens": tokens})


def bare(policy: Policy, passes: list[Any]) -> None:
    """Forward and backward pass."""
    policy.model.set_attn_implementation(NAME)
    policy.model.zero_grad(set_to_none=True)
    for packed in passes:
        hidden = policy.model.model(
            input_ids=packed.token_ids,
            attention_mask=packed.token_ids.new_ones((1, 1, 1, 1)),
            position_ids=packed.position_ids,
            use_cache=False,
            pass_attention=PassAttention(packed.plan),
        ).last_hidden_state[0]
        logits = policy.model.lm_head(hidden[packed.predictors])
        torch.nn.functional.cross_entropy(logits, packed.targets).backward()


ROWS = {
    "step": grpo_step,
    "update": partial(updates, is_bare=False),
    "bare": partial(updates, is_bare=True),
    "torch": by_torch,
    "transformers": by_transformers,
    "vllm": by_vllm,
}


def main() -> None:
    """Run a row."""
    settings = json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
    torch.set_num_threads(settings["threads"])
    asyncio.run(ROWS[sys.argv[1]](settings))


if __name__ == "__main__":
    OUT, sys.stdout = sys.stdout, sys.stderr
    main()
