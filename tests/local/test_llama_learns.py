"""A second family, in earnest: a Llama-shaped policy learns what nobody has shown it.

The task: a question of three digits, and an answer of one that is even when the first of the three
is, and odd when it is. A warm-up of some seconds teaches the form alone, with digits at random, so
half of the answers are right. That its gradients are those of plain passes: `test_packed_passes`.
"""

from __future__ import annotations

import asyncio
import math
import random
import statistics
from collections.abc import Mapping

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from arkdev.backends.local.batch import TrainingBatch, TrainingSequence
from arkdev.backends.local.engine import GenerationRequest, SamplingParameters
from arkdev.backends.local.learner import PolicyLearner
from arkdev.backends.local.policy import Policy
from arkdev.backends.local.sampler.engine import TorchEngine
from arkdev.backends.local.settings import UpdateSettings
from arkdev.backends.local.train import LoopSettings, StepDone, train
from arkdev.harness.advantages import grpo_advantages
from arkdev.harness.loss_weights import token_weights

QUESTION, ANSWER, END = 10, 11, 12
NUM_DIGITS = 3
GROUPS, GROUP_SIZE, NUM_STEPS = 16, 8, 36
NUM_HELD_OUT = 300

Prompt = tuple[int, ...]


def small_llama() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=13,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=32,
        tie_word_embeddings=True,
        initializer_range=0.1,
    )
    return LlamaForCausalLM(config)


def prompts(seed: int, number: int) -> list[Prompt]:
    source = random.Random(seed)
    return [
        (QUESTION, *[source.randrange(10) for _ in range(NUM_DIGITS)], ANSWER)
        for _ in range(number)
    ]


def held_out(prompt: Prompt) -> bool:
    """A fifth of all questions is neither warmed up on nor trained on."""
    return sum(prompt) % 5 == 0


def reward_of(prompt: Prompt, answer: tuple[int, ...]) -> float:
    return float(len(answer) == 2 and answer[0] < 10 and (answer[0] - prompt[1]) % 2 == 0)


def warm_up(model: LlamaForCausalLM, *, num_batches: int) -> None:
    source = random.Random(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for number in range(num_batches):
        rows = []
        for prompt in prompts(number, 64):
            if held_out(prompt):
                continue
            rows.append([*prompt, source.randrange(10), END])
        ids = torch.tensor(rows)
        labels = ids.clone()
        labels[:, : NUM_DIGITS + 2] = -100
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


class ParityGroups:
    """Implements `GroupSource` on the engine alone."""

    num_steps = NUM_STEPS

    def __init__(self, engine: TorchEngine) -> None:
        self.engine = engine

    async def answers(self, asked: list[Prompt], *, seed: int) -> list[TrainingSequence]:
        """Sequences whose advantage is the reward, for now."""
        requests = [
            GenerationRequest(
                prompt, SamplingParameters(2, seed=seed + n, stop_token_ids=frozenset({END}))
            )
            for n, prompt in enumerate(asked)
        ]
        found = await asyncio.gather(*[self.engine.generate(request) for request in requests])
        return [
            sequence(prompt, answer.token_ids, logprobs=answer.logprobs, index=n)
            for n, (prompt, answer) in enumerate(zip(asked, found, strict=True))
        ]

    async def training_batch(self, step: int) -> TrainingBatch:
        fresh = [p for p in prompts(10_000 + step, 4 * GROUPS) if not held_out(p)][:GROUPS]
        asked = [prompt for prompt in fresh for _ in range(GROUP_SIZE)]
        rolled = await self.answers(asked, seed=1000 * step)
        rewards = [max(one.advantages) for one in rolled]
        advantages = [
            advantage
            for start in range(0, len(rewards), GROUP_SIZE)
            for advantage in grpo_advantages(rewards[start : start + GROUP_SIZE])
        ]
        weights = token_weights([one.loss_mask for one in rolled], mode="token-mean")
        sequences = [
            TrainingSequence(
                trajectory_id=one.trajectory_id,
                sample_index=one.sample_index // GROUP_SIZE,
                token_ids=one.token_ids,
                loss_mask=one.loss_mask,
                rollout_logprobs=one.rollout_logprobs,
                advantages=tuple(advantage * trained for trained in one.loss_mask),
                token_weights=tuple(weight),
                policy_version=one.policy_version,
            )
            for one, advantage, weight in zip(rolled, advantages, weights, strict=True)
        ]
        return TrainingBatch(step, tuple(sequences), {"reward": statistics.mean(rewards)})

    async def validation_round(self, step: int) -> Mapping[str, float] | None:
        return None

    async def held_out_reward(self) -> tuple[float, float]:
        """Mean reward of unseen questions, and half of its 95 % interval."""
        unseen = [p for p in prompts(77, 10 * NUM_HELD_OUT) if held_out(p)][:NUM_HELD_OUT]
        rolled = await self.answers(unseen, seed=5_000_000)
        rewards = [max(one.advantages) for one in rolled]
        spread = statistics.stdev(rewards) if len(set(rewards)) > 1 else 0.0
        return statistics.mean(rewards), 1.96 * spread / math.sqrt(len(rewards))


def sequence(
    prompt: Prompt, answer: tuple[int, ...], *, logprobs: tuple[float, ...], index: int
) -> TrainingSequence:
    reward, mask = reward_of(prompt, answer), [False] * len(prompt) + [True] * len(answer)
    return TrainingSequence(
        trajectory_id=str(index),
        sample_index=index,
        token_ids=(*prompt, *answer),
        loss_mask=tuple(mask),
        rollout_logprobs=(*[0.0] * len(prompt), *logprobs),
        advantages=tuple(reward * trained for trained in mask),
        token_weights=(0.0,) * len(mask),
        policy_version=0,
    )


class NothingSaved:
    def after_step(self, step: int, *, score: float | None, is_last: bool) -> None:
        """Implements `Saving`."""


async def test_held_out_reward_rises_by_more_than_its_interval() -> None:
    model = small_llama()
    warm_up(model, num_batches=40)
    policy = Policy(model)
    assert policy.layout == "packed", policy.layout_reason
    learner = PolicyLearner(policy, UpdateSettings(lr=2e-3, num_steps=NUM_STEPS))
    engine = TorchEngine(model, max_context_tokens=32)
    groups, done = ParityGroups(engine), list[StepDone]()
    try:
        before, before_interval = await groups.held_out_reward()
        await train(
            groups, learner, engine, NothingSaved(), settings=LoopSettings(), tell=done.append
        )
        after, after_interval = await groups.held_out_reward()
    finally:
        await engine.close()
    assert len(done) == NUM_STEPS
    assert max(step.metrics["sync_gap_max"] for step in done if step.has_learned) < 1e-4
    assert 0.3 < before < 0.6
    assert after - after_interval > before + before_interval
    assert after > 0.8
