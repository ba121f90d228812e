import asyncio
import random
import threading

import pytest
import torch

from arkdev.backends.local.engine import GenerationRequest, SamplingParameters
from arkdev.backends.local.sampler.engine import TorchEngine
from arkdev.errors import ConfigurationError, PolicyEngineError
from tests.local.sampler import models

CONTEXT = 256


@pytest.fixture
async def engine_of():
    """Makes engines and closes them."""
    engines = []

    def make(model, **settings):
        engines.append(TorchEngine(model, max_context_tokens=CONTEXT, **settings))
        return engines[-1]

    yield make
    for engine in engines:
        await engine.close()


def prompt(length, seed=0):
    source = random.Random(seed)
    return tuple(source.randrange(models.VOCABULARY) for _ in range(length))


def request(prompt_ids, *, seed=1, new=12, **settings):
    return GenerationRequest(
        tuple(prompt_ids), SamplingParameters(max_new_tokens=new, seed=seed, **settings)
    )


def logprobs_by_model(model, prompt_ids, generation, **settings):
    whole = [*prompt_ids, *generation.token_ids]
    return models.model_logprobs(model, whole, **settings)[len(prompt_ids) - 1 :]


@pytest.mark.parametrize("make", [models.qwen3, models.gpt_neox])
async def test_an_answer_has_the_logprobs_that_the_model_gives_it(engine_of, make):
    model = make()
    engine = engine_of(model)
    ids = prompt(40)
    answers = await asyncio.gather(
        *(engine.generate(request(ids, seed=seed, temperature=0.7)) for seed in range(5))
    )
    for answer in answers:
        assert len(answer.token_ids) == 12
        assert answer.finish_reason == "length"
        expected = logprobs_by_model(model, ids, answer, temperature=0.7)
        assert answer.logprobs == pytest.approx(expected, abs=1e-5)
    assert len({answer.token_ids for answer in answers}) > 1


async def test_a_prompt_is_computed_once_for_its_group_and_its_next_turn(engine_of):
    model = models.qwen3()
    engine = engine_of(model)
    ids = prompt(100)
    group = await asyncio.gather(*(engine.generate(request(ids, seed=seed)) for seed in range(8)))
    assert engine.progress.num_prefilled_tokens == 100
    assert engine.progress.num_reused_tokens == 7 * 100
    turn = [*ids, *group[3].token_ids, *prompt(10, seed=9)]
    answer = await engine.generate(request(turn))
    # the last token of an answer was sampled, but nothing came after it
    assert engine.progress.num_prefilled_tokens == 100 + 11
    expected = logprobs_by_model(model, turn, answer)
    assert answer.logprobs == pytest.approx(expected, abs=1e-5)


async def test_prefixes_are_found_while_slots_last_and_the_oldest_goes_first(engine_of):
    model = models.qwen3()
    engine = engine_of(model, max_running=2)
    starts = [prompt(64, seed=seed) for seed in range(4)]
    for ids in starts:
        await engine.generate(request(ids, new=2))
    await engine.generate(request([*starts[0], 1], new=2))
    assert engine.progress.num_reused_tokens == 64
    await engine.generate(request(prompt(64, seed=50), new=2))  # takes the place of 1
    await engine.generate(request([*starts[1], 1], new=2))
    assert engine.progress.num_reused_tokens == 64
    answer = await engine.generate(request([*starts[3], 5]))
    assert engine.progress.num_reused_tokens == 128
    expected = logprobs_by_model(model, [*starts[3], 5], answer)
    assert answer.logprobs == pytest.approx(expected, abs=1e-5)


async def test_requests_beyond_the_slots_wait_and_all_are_answered(engine_of):
    model = models.qwen3()
    engine = engine_of(model, max_running=3)
    prompts = [prompt(5 + 3 * index, seed=index % 4) for index in range(20)]
    answers = await asyncio.gather(
        *(engine.generate(request(ids, new=1 + index % 7)) for index, ids in enumerate(prompts))
    )
    for index, (ids, answer) in enumerate(zip(prompts, answers, strict=True)):
        assert len(answer.token_ids) == 1 + index % 7
        expected = logprobs_by_model(model, ids, answer)
        assert answer.logprobs == pytest.approx(expected, abs=1e-5)


def turns(seed):
    """A conversation's requests, the second of which extends the first's answer."""
    settings = {"temperature": 0.9} | ({"top_p": 0.9} if seed % 3 == 0 else {})
    return request(prompt(30 + seed % 5 * 37, seed=seed // 2), seed=seed, new=20, **settings)


def said(answer):
    """All of an answer but what it cost."""
    return answer.token_ids, answer.logprobs, answer.finish_reason


async def converse(engine, seed):
    first = turns(seed)
    answer = await engine.generate(first)
    following = [*first.prompt_token_ids, *answer.token_ids, *prompt(7, seed=seed)]
    second = await engine.generate(request(following, seed=seed + 1000, new=10))
    return said(answer), said(second)


@pytest.mark.parametrize("make", [models.qwen3, models.llama, models.gpt_neox])
async def test_in_deterministic_mode_company_order_and_cached_prefixes_change_no_bit(
    engine_of, make
):
    model = make()
    seeds = list(range(16))
    alone = {}
    for seed in seeds:
        alone[seed] = await converse(engine_of(model, deterministic=True, max_running=16), seed)
    engine = engine_of(model, deterministic=True, max_running=16)
    assert engine.capabilities.is_deterministic
    for order in (1, 2):  # the second time all prefixes are known
        shuffled = random.Random(order).sample(seeds, len(seeds))
        together = await asyncio.gather(*(converse(engine, seed) for seed in shuffled))
        assert dict(zip(shuffled, together, strict=True)) == alone
    assert engine.progress.num_reused_tokens > 0


async def test_stop_tokens_and_a_caller_that_has_enough_end_an_answer(engine_of):
    engine = engine_of(models.qwen3())
    ids = prompt(10)
    whole = await engine.generate(request(ids))
    stop = whole.token_ids[4]
    first = whole.token_ids.index(stop)
    stopped = await engine.generate(request(ids, stop_token_ids=frozenset({stop})))
    assert stopped.token_ids == whole.token_ids[: first + 1]
    assert stopped.finish_reason == "stop"
    told = []

    def enough(token_id):
        told.append(token_id)
        return len(told) < 3

    cut = await engine.generate(request(ids), on_token=enough)
    assert tuple(told) == cut.token_ids == whole.token_ids[:3]
    assert cut.finish_reason == "stop"


async def test_an_error_of_the_caller_is_its_own(engine_of):
    engine = engine_of(models.qwen3())

    def broken(token_id):
        raise LookupError("mine")

    good, bad = await asyncio.gather(
        engine.generate(request(prompt(10))),
        engine.generate(request(prompt(10)), on_token=broken),
        return_exceptions=True,
    )
    assert isinstance(bad, LookupError)
    assert len(good.token_ids) == 12


async def test_a_cancelled_request_leaves_its_row(engine_of):
    engine = engine_of(models.qwen3(), max_running=1)
    has_begun = threading.Event()

    def begun(token_id):
        has_begun.set()
        return True

    task = asyncio.create_task(engine.generate(request(prompt(8), new=240), on_token=begun))
    await asyncio.to_thread(has_begun.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await engine.generate(request(prompt(8)))
    assert engine.progress.num_sampled_tokens < 240


async def test_an_answer_ends_where_the_context_does_and_a_longer_prompt_is_refused(engine_of):
    engine = engine_of(models.qwen3())
    answer = await engine.generate(request(prompt(CONTEXT - 4), new=50))
    assert len(answer.token_ids) == 4
    assert answer.finish_reason == "length"
    with pytest.raises(ConfigurationError, match=r"256 tokens do not fit.*255"):
        await engine.generate(request(prompt(CONTEXT)))


async def test_a_context_of_a_few_tokens_is_one():
    engine = TorchEngine(models.qwen3(max_position_embeddings=8), max_context_tokens=8)
    try:
        assert len((await engine.generate(request(prompt(3), new=50))).token_ids) == 5
    finally:
        await engine.close()


@pytest.mark.parametrize(
    ("token_ids", "settings"),
    [
        ([], {}),
        ([models.VOCABULARY], {}),
        ([-1], {}),
        ([1], {"new": 0}),
        ([1], {"temperature": -1.0}),
        ([1], {"temperature": float("nan")}),
        ([1], {"top_p": 0.0}),
        ([1], {"top_k": -1}),
        ([1], {"repetition_penalty": 0.0}),
    ],
)
async def test_what_cannot_be_sampled_is_refused_and_the_engine_goes_on(
    engine_of, token_ids, settings
):
    engine = engine_of(models.qwen3())
    with pytest.raises(ConfigurationError):
        await engine.generate(request(token_ids, **settings))
    assert len((await engine.generate(request([1]))).token_ids) == 12


async def test_scores_are_the_models_logprobs(engine_of):
    model = models.qwen3()
    engine = engine_of(model)
    ids = prompt(CONTEXT)
    found = await engine.score(ids, temperature=0.6)
    expected = models.model_logprobs(model, list(ids), temperature=0.6)
    assert found == pytest.approx(expected, abs=1e-5)


async def test_new_weights_wait_for_requests_under_way_and_forget_old_prefixes(engine_of):
    old, new = models.qwen3(seed=0), models.qwen3(seed=1)
    engine = engine_of(old)
    ids = prompt(50)
    before, _, after = await asyncio.gather(
        engine.generate(request(ids, new=60)),
        engine.update_weights(new, version=3),
        engine.generate(request(ids, new=20)),
    )
    assert (before.policy_version, after.policy_version, engine.policy_version) == (0, 3, 3)
    assert before.logprobs == pytest.approx(logprobs_by_model(old, ids, before), abs=1e-5)
    assert after.logprobs == pytest.approx(logprobs_by_model(new, ids, after), abs=1e-5)
    assert engine.progress.num_reused_tokens == 0


async def test_another_model_is_refused_and_the_old_weights_stay(engine_of):
    engine = engine_of(models.qwen3())
    before = await engine.generate(request(prompt(9)))
    with pytest.raises(ConfigurationError, match="another model"):
        await engine.update_weights(models.qwen3(intermediate_size=64), version=1)
    assert said(await engine.generate(request(prompt(9)))) == said(before)


async def test_weights_that_are_no_numbers_fail_the_answer_and_say_so(engine_of):
    engine = engine_of(models.qwen3())
    broken = models.qwen3()
    with torch.no_grad():
        broken.model.norm.weight.fill_(float("nan"))
    await engine.update_weights(broken, version=1)
    with pytest.raises(PolicyEngineError, match=r"not numbers.*policy version 1"):
        await engine.generate(request(prompt(9)))
    await engine.update_weights(models.qwen3(), version=2)
    assert len((await engine.generate(request(prompt(9)))).token_ids) == 12


async def test_it_sleeps_and_wakes(engine_of):
    engine = engine_of(models.qwen3())
    before = await engine.generate(request(prompt(9)))
    await engine.sleep()
    await engine.sleep()
    with pytest.raises(PolicyEngineError, match="sleeps"):
        await engine.generate(request(prompt(9)))
    await engine.wake()
    assert said(await engine.generate(request(prompt(9)))) == said(before)


async def test_a_closed_engine_fails_what_it_is_asked_and_what_it_was_doing(engine_of):
    engine = engine_of(models.qwen3(), max_running=1)
    waiting = [asyncio.create_task(engine.generate(request(prompt(8), new=240))) for _ in range(3)]
    await asyncio.sleep(0)
    await engine.close()
    await engine.close()
    for outcome in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(outcome, PolicyEngineError)
    with pytest.raises(PolicyEngineError, match="closed"):
        await engine.generate(request(prompt(8)))


async def test_a_crash_fails_every_call_with_what_happened(engine_of):
    model = models.gpt_neox()
    is_broken = threading.Event()

    def hook(module, arguments):
        if is_broken.is_set():
            raise RuntimeError("out of everything")

    model.gpt_neox.layers[1].register_forward_pre_hook(hook)
    engine = engine_of(model, max_running=2)
    is_broken.set()
    calls = [asyncio.create_task(engine.generate(request(prompt(8)))) for _ in range(5)]
    for outcome in await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 60):
        assert isinstance(outcome, PolicyEngineError)
        assert "RuntimeError: out of everything" in str(outcome)
    with pytest.raises(PolicyEngineError, match="out of everything"):
        await engine.score(prompt(8))
    with pytest.raises(PolicyEngineError, match="out of everything"):
        await engine.update_weights(model, version=1)


def test_several_event_loops_ask_at_once():
    engine = TorchEngine(models.qwen3(), max_context_tokens=CONTEXT)
    found = {}

    def ask(seed):
        found[seed] = asyncio.run(engine.generate(request(prompt(20), seed=seed)))

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = {
        seed: asyncio.run(engine.generate(request(prompt(20), seed=seed))) for seed in found
    }
    asyncio.run(engine.close())
    assert {seed: one.token_ids for seed, one in found.items()} == {
        seed: one.token_ids for seed, one in expected.items()
    }


def test_what_the_engine_cannot_do_is_said_at_the_start():
    with pytest.raises(ConfigurationError, match=r"1,024 positions.*2,000"):
        TorchEngine(models.qwen3(), max_context_tokens=2000)
    with pytest.raises(ConfigurationError, match="MiB"):
        TorchEngine(models.qwen3(), max_context_tokens=1000, cache_bytes=1000)
    mixing = models.qwen3()
    # a layer that looks at the token before, beside attention
    mixing.model.layers[0].mlp.register_forward_hook(lambda module, given, out: out.roll(1, dims=1))
    with pytest.raises(ConfigurationError, match="logprobs differ"):
        TorchEngine(mixing, max_context_tokens=CONTEXT)
