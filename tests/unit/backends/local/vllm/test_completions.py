"""Requests to vLLM and what its answers hold."""

from __future__ import annotations

from typing import Any

import pytest

from arkdev.backends.local.engine import GenerationRequest, SamplingParameters
from arkdev.backends.local.vllm.completions import (
    Sampled,
    event_in,
    generation_body,
    score_of,
    scoring_bodies,
)
from arkdev.errors import PolicyEngineError


def body(**sampling: Any) -> dict[str, Any]:
    request = GenerationRequest((5, 6), SamplingParameters(8, **sampling))
    return generation_body(request, limit=6, model="policy")


def choice(token_ids: list[int], *, finish_reason: str | None = None) -> dict[str, Any]:
    tops = [
        {f"token_id:{token}": -2.0, "token_id:3": -0.5, "token_id:4": -9999.0}
        for token in token_ids
    ]
    logprobs = {"token_logprobs": [-2.0] * len(token_ids), "top_logprobs": tops}
    return {"token_ids": token_ids, "logprobs": logprobs, "finish_reason": finish_reason}


def test_a_request_names_all_that_ends_or_shapes_an_answer() -> None:
    sent = body(temperature=0.7, top_p=0.9, top_k=5, seed=3, stop_token_ids=frozenset({9, 2}))
    assert (sent["temperature"], sent["top_p"], sent["top_k"], sent["seed"]) == (0.7, 0.9, 5, 3)
    assert (sent["ignore_eos"], sent["stop_token_ids"]) == (True, [2, 9])
    assert "seed" not in body()
    assert sent["max_tokens"] == 6


def test_at_temperature_0_nothing_cuts_the_distribution() -> None:
    sent = body(temperature=0.0, top_p=0.2, top_k=1)
    assert (sent["top_p"], sent["top_k"]) == (1.0, 0)


def test_pieces_make_one_answer() -> None:
    sampled = Sampled(num_top_logprobs=2)
    sampled.add(choice([7]))
    sampled.add(choice([8, 9], finish_reason="length"))
    answer = sampled.finished(policy_version=4)
    assert (answer.token_ids, answer.logprobs) == ((7, 8, 9), (-2.0, -2.0, -2.0))
    assert answer.top_logprobs[0] == ((3, -0.5), (7, -2.0))  # sorted, without the impossible
    assert (answer.finish_reason, answer.policy_version) == ("length", 4)


def test_an_answer_that_was_not_sampled_to_its_end_is_none() -> None:
    sampled = Sampled(num_top_logprobs=0)
    sampled.add(choice([7]))
    with pytest.raises(PolicyEngineError, match="broke off"):
        sampled.finished(policy_version=0)
    sampled.add(choice([7], finish_reason="abort"))
    with pytest.raises(PolicyEngineError, match="abort"):
        sampled.finished(policy_version=0)


def test_tokens_without_logprobs_are_an_error() -> None:
    answer = {**choice([7, 8]), "logprobs": None}
    with pytest.raises(PolicyEngineError, match="0 logprobs to 2 tokens"):
        Sampled(num_top_logprobs=0).add(answer)
    with pytest.raises(PolicyEngineError, match="token_ids"):
        Sampled(num_top_logprobs=0).add({"text": "hello"})


def test_scores_at_temperature_1_take_one_request() -> None:
    (sent,) = scoring_bodies([5, 6, 7], temperature=1.0, model="policy")
    assert (sent["prompt"], sent["logprob_token_ids"]) == ([5, 6], [7])
    last = {"top_logprobs": [{"token_id:1": -9.0, "token_id:7": -0.7}]}
    given = [None, {"1": {"logprob": -8.0}, "6": {"logprob": -0.6}}]
    answer = {"choices": [{"prompt_logprobs": given, "logprobs": last}]}
    assert score_of([5, 6, 7], [answer]) == [-0.6, -0.7]


def test_scores_at_another_temperature_take_one_for_each_token() -> None:
    sent = scoring_bodies([5, 6, 7], temperature=0.5, model="policy")
    assert [(b["prompt"], b["logprob_token_ids"]) for b in sent] == [([5], [6]), ([5, 6], [7])]
    answers = [
        {
            "choices": [
                {"prompt_logprobs": None, "logprobs": {"top_logprobs": [{f"token_id:{t}": -t}]}}
            ]
        }
        for t in (6, 7)
    ]
    assert score_of([5, 6, 7], answers) == [-6.0, -7.0]


def test_lines_of_a_stream() -> None:
    assert event_in(b'data: {"choices": []}\n') == {"choices": []}
    assert event_in(b"data: [DONE]\n") is None
    assert event_in(b"\n") is None
