"""What every `GenerationEngine` must do: one suite, run on each of them.

The engines sample from `tests.bigram_model`, whose every distribution is known in float64.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

import pytest

from arkdev.backends.local.engine import (
    Generation,
    GenerationEngine,
    GenerationRequest,
    SamplingParameters,
)
from arkdev.errors import ConfigurationError, PolicyEngineError
from tests.bigram_model import CONTEXT_LENGTH, VOCABULARY_SIZE, Table, log_softmax, random_table

CLOSE = 2e-5
"""Float32 against float64."""
PROMPT = (3, 1, 4)
IMPOSSIBLE = -40.0


@dataclass
class Subject:
    """An engine and the table that it samples from now."""

    engine: GenerationEngine
    table: Table
    source_of: Callable[[Table], Any]
    """Makes what `update_weights` takes."""
    version: int = 0

    async def change_to(self, table: Table) -> None:
        """Let it sample from another table."""
        self.version += 1
        await self.engine.update_weights(self.source_of(table), version=self.version)
        self.table = table

    async def answer(self, sampling: SamplingParameters, **options: Any) -> Generation:
        """One answer to `PROMPT`."""
        return await self.engine.generate(GenerationRequest(PROMPT, sampling), **options)


def expected_logprobs(
    answer: Generation, *, table: Table, sampling: SamplingParameters
) -> list[float]:
    """Of the sampled tokens, by the field's order: penalty, temperature, top-k, top-p."""
    seen, last, expected = set(PROMPT), PROMPT[-1], []
    for token in answer.token_ids:
        logits = [
            _penalised(x, sampling.repetition_penalty) if i in seen else x
            for i, x in enumerate(table[last])
        ]
        temperature = sampling.temperature or 1.0
        allowed = _allowed(log_softmax(logits, temperature=temperature), sampling)
        expected.append(log_softmax(logits, temperature=temperature, allowed=allowed)[token])
        seen.add(token)
        last = token
    return expected


def _penalised(logit: float, penalty: float) -> float:
    return logit / penalty if logit > 0 else logit * penalty


def _allowed(logprobs: list[float], sampling: SamplingParameters) -> list[int]:
    ranked = sorted(range(len(logprobs)), key=lambda token: -logprobs[token])
    if sampling.temperature == 0:
        return ranked
    ranked = ranked[: sampling.top_k or len(ranked)]
    total = sum(math.exp(logprobs[token]) for token in ranked)
    allowed, mass = [], 0.0
    for token in ranked:
        if mass >= sampling.top_p:
            break
        allowed.append(token)
        mass += math.exp(logprobs[token]) / total
    return allowed


async def check_logprobs_are_of_the_distribution_sampled_from(subject: Subject) -> None:
    base = SamplingParameters(24, seed=5)
    for sampling in (
        base,
        replace(base, temperature=0.5),
        replace(base, temperature=1.7, top_k=5),
        replace(base, top_p=0.8),
        replace(base, temperature=0.7, top_p=0.85, top_k=9, repetition_penalty=1.3),
    ):
        answer = await subject.answer(sampling)
        expected = expected_logprobs(answer, table=subject.table, sampling=sampling)
        assert len(answer.token_ids) == 24
        assert answer.logprobs == pytest.approx(expected, abs=CLOSE)


async def check_field_case_4_1(subject: Subject) -> None:
    """Two tokens, logits [2, 0], T = 0.5: not the raw logprob, and not the raw one over T."""
    before = subject.table
    row = [2.0, 0.0, *[IMPOSSIBLE] * (VOCABULARY_SIZE - 2)]
    await subject.change_to([row] * VOCABULARY_SIZE)
    try:
        answer = await subject.answer(SamplingParameters(40, temperature=0.5, seed=1))
    finally:
        await subject.change_to(before)
    logprobs = dict(zip(answer.token_ids, answer.logprobs, strict=True))
    assert logprobs[0] == pytest.approx(-0.018150, abs=1e-6)
    assert set(logprobs) <= {0, 1}


async def check_temperature_0_is_the_most_probable_token(subject: Subject) -> None:
    greedy = SamplingParameters(12, temperature=0.0, top_p=0.1, top_k=1)
    sampled = SamplingParameters(12, seed=2)
    answer, _ = await asyncio.gather(subject.answer(greedy), subject.answer(sampled))
    last = PROMPT[-1]
    for token in answer.token_ids:
        assert token == max(range(VOCABULARY_SIZE), key=subject.table[last].__getitem__)
        last = token
    expected = expected_logprobs(answer, table=subject.table, sampling=greedy)
    assert answer.logprobs == pytest.approx(expected, abs=CLOSE)


async def check_a_seed_repeats_an_answer(subject: Subject) -> None:
    first = await subject.answer(SamplingParameters(32, seed=11))
    again = await subject.answer(SamplingParameters(32, seed=11))
    other = await subject.answer(SamplingParameters(32, seed=12))
    assert first.token_ids == again.token_ids
    assert first.token_ids != other.token_ids


async def check_a_seed_repeats_an_answer_in_any_company(subject: Subject) -> None:
    alone = await subject.answer(SamplingParameters(32, seed=11))
    many = [SamplingParameters(20 + n % 30, seed=n) for n in range(24)]
    answers = await asyncio.gather(*[subject.answer(sampling) for sampling in many])
    beside = answers[11]
    num = min(len(alone.token_ids), len(beside.token_ids))
    assert alone.token_ids[:num] == beside.token_ids[:num]


async def check_many_long_prompts_with_seeds_at_once(subject: Subject) -> None:
    """More tokens than an engine reads in one pass, and prompts that differ from the first on."""
    prompts = [
        tuple((n * k + k) % VOCABULARY_SIZE for k in range(CONTEXT_LENGTH - 40)) for n in range(48)
    ]
    requests = [GenerationRequest(p, SamplingParameters(4, seed=7)) for p in prompts]
    together = await asyncio.gather(*[subject.engine.generate(one) for one in requests])
    assert all(len(answer.token_ids) == 4 for answer in together)
    for request, answer in zip(requests[:3], together[:3], strict=True):
        alone = await subject.engine.generate(request)
        assert alone.token_ids == answer.token_ids


async def check_tokens_come_as_often_as_they_should(subject: Subject) -> None:
    """Pearson's chi-square over pairs of tokens that follow each other; 4 sigma."""
    many = [SamplingParameters(100, seed=1000 + n) for n in range(60)]
    answers = await asyncio.gather(*[subject.answer(sampling) for sampling in many])
    pairs = Counter()
    for answer in answers:
        tokens = (PROMPT[-1], *answer.token_ids)
        pairs.update(itertools.pairwise(tokens))
    chi_square = 0.0
    for first in range(VOCABULARY_SIZE):
        total = sum(pairs[first, second] for second in range(VOCABULARY_SIZE))
        for second, logprob in enumerate(log_softmax(subject.table[first])):
            expected = total * math.exp(logprob)
            chi_square += (pairs[first, second] - expected) ** 2 / max(expected, 1e-9)
    freedom = VOCABULARY_SIZE * (VOCABULARY_SIZE - 1)
    assert abs(chi_square - freedom) < 4 * math.sqrt(2 * freedom)


async def check_a_stop_token_ends_the_answer_and_belongs_to_it(subject: Subject) -> None:
    whole = await subject.answer(SamplingParameters(40, seed=3))
    assert whole.finish_reason == "length"
    stop = whole.token_ids[5]
    at = whole.token_ids.index(stop)
    sampling = SamplingParameters(40, seed=3, stop_token_ids=frozenset({stop, VOCABULARY_SIZE - 1}))
    ended = await subject.answer(sampling)
    at = next(i for i, token in enumerate(whole.token_ids) if token in sampling.stop_token_ids)
    assert ended.finish_reason == "stop"
    assert ended.token_ids == whole.token_ids[: at + 1]
    assert len(ended.logprobs) == at + 1


async def check_only_the_stop_tokens_of_a_request_end_it(subject: Subject) -> None:
    """Token 0 is the model's own end token, which this request does not name."""
    answer = await subject.answer(SamplingParameters(200, seed=4))
    assert 0 in answer.token_ids
    assert len(answer.token_ids) == 200


async def check_tokens_are_told_as_they_come(subject: Subject) -> None:
    told: list[int] = []
    whole = await subject.answer(
        SamplingParameters(20, seed=6), on_token=lambda token: told.append(token) is None
    )
    assert tuple(told) == whole.token_ids
    told.clear()
    cut = await subject.answer(
        SamplingParameters(20, seed=6, num_top_logprobs=2),
        on_token=lambda token: told.append(token) is None and len(told) < 7,
    )
    assert cut.token_ids == tuple(told) == whole.token_ids[:7]
    assert len(cut.logprobs) == len(cut.top_logprobs) == 7
    assert cut.finish_reason == "stop"


async def check_top_logprobs_are_the_most_probable(subject: Subject) -> None:
    sampling = SamplingParameters(6, seed=7, temperature=0.8, num_top_logprobs=3)
    answer = await subject.answer(sampling)
    last = PROMPT[-1]
    for token, top in zip(answer.token_ids, answer.top_logprobs, strict=True):
        logprobs = log_softmax(subject.table[last], temperature=0.8)
        ranked = sorted(range(VOCABULARY_SIZE), key=lambda i: -logprobs[i])[:3]
        assert [pair[0] for pair in top] == ranked
        assert [pair[1] for pair in top] == pytest.approx([logprobs[i] for i in ranked], abs=CLOSE)
        last = token


async def check_scores_are_exact(subject: Subject) -> None:
    longest = [(7 * n) % VOCABULARY_SIZE for n in range(CONTEXT_LENGTH)]
    for tokens, temperature in ((longest, 1.0), (longest[:40], 0.6), ([2, 9], 1.0), ([2], 1.0)):
        expected = [
            log_softmax(subject.table[last], temperature=temperature)[token]
            for last, token in itertools.pairwise(tokens)
        ]
        scores = await subject.engine.score(tokens, temperature=temperature)
        assert scores == pytest.approx(expected, abs=CLOSE)


async def check_new_weights_answer(subject: Subject) -> None:
    before = subject.table
    await subject.engine.score(PROMPT * 10)  # prefixes that must be forgotten
    await subject.change_to(random_table(99))
    sampling = SamplingParameters(16, seed=8)
    answer = await subject.answer(sampling)
    expected = expected_logprobs(answer, table=subject.table, sampling=sampling)
    assert answer.logprobs == pytest.approx(expected, abs=CLOSE)
    assert answer.policy_version == subject.engine.policy_version == subject.version
    await check_scores_are_exact(subject)
    await subject.change_to(before)
    await check_scores_are_exact(subject)


async def check_an_answer_has_one_policy(subject: Subject) -> None:
    """Requests under way are finished before the weights change, later ones have the new ones."""
    before, old_version = subject.table, subject.version
    sampling = SamplingParameters(150, seed=9)
    under_way = asyncio.create_task(subject.answer(sampling))
    await asyncio.sleep(0.02)
    await subject.change_to(random_table(98))
    answer = await under_way
    assert answer.policy_version in (old_version, subject.version)
    table = before if answer.policy_version == old_version else subject.table
    expected = expected_logprobs(answer, table=table, sampling=sampling)
    assert answer.logprobs == pytest.approx(expected, abs=CLOSE)
    await subject.change_to(before)


async def check_cancelled_answers_hinder_nobody(subject: Subject) -> None:
    many = [SamplingParameters(250, seed=n) for n in range(40)]
    tasks = [asyncio.create_task(subject.answer(sampling)) for sampling in many]
    await asyncio.sleep(0.02)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert any(task.cancelled() for task in tasks)
    await subject.change_to(subject.table)  # nothing of them holds it up
    answer = await subject.answer(SamplingParameters(4, seed=10))
    assert len(answer.token_ids) == 4


async def check_sleep_and_wake_can_be_repeated(subject: Subject) -> None:
    await subject.engine.sleep()
    await subject.engine.sleep()
    with pytest.raises(PolicyEngineError):
        await subject.engine.score(PROMPT)
    await subject.engine.wake()
    await subject.engine.wake()
    await check_scores_are_exact(subject)


async def check_the_end_of_the_context_ends_an_answer(subject: Subject) -> None:
    assert subject.engine.capabilities.max_context_tokens == CONTEXT_LENGTH
    answer = await subject.answer(SamplingParameters(10 * CONTEXT_LENGTH, seed=1))
    assert len(answer.token_ids) == CONTEXT_LENGTH - len(PROMPT)
    assert answer.finish_reason == "length"


async def check_a_prompt_that_leaves_no_room_is_refused(subject: Subject) -> None:
    whole = GenerationRequest(tuple([1] * CONTEXT_LENGTH), SamplingParameters(1))
    with pytest.raises(ConfigurationError, match=str(CONTEXT_LENGTH)):
        await subject.engine.generate(whole)
    with pytest.raises(ConfigurationError, match=str(CONTEXT_LENGTH)):
        await subject.engine.score([1] * (CONTEXT_LENGTH + 1))


async def check_ids_that_are_none_and_empty_prompts_are_refused(subject: Subject) -> None:
    for prompt in ((), (1, VOCABULARY_SIZE)):
        with pytest.raises(ConfigurationError):
            await subject.engine.generate(GenerationRequest(prompt, SamplingParameters(1)))


async def check_any_thread_and_loop_may_ask(subject: Subject) -> None:
    answers: list[Generation] = []

    def ask(seed: int) -> None:
        answers.append(asyncio.run(subject.answer(SamplingParameters(10, seed=seed))))

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    await subject.answer(SamplingParameters(10, seed=5))
    await asyncio.to_thread(lambda: [thread.join(60) for thread in threads])
    assert len(answers) == 4


Check = Callable[[Subject], Coroutine[Any, Any, None]]
CHECKS: dict[str, Check] = {
    name.removeprefix("check_"): check
    for name, check in list(globals().items())
    if name.startswith("check_")
}
