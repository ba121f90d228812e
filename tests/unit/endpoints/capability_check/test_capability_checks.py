"""Each check: which answers make it say yes, partly, no or unknown."""

from __future__ import annotations

from typing import Any

import pytest

from arkdev.endpoints.capability_check.chat_checks import (
    check_chat,
    check_streaming,
    check_structured_output,
)
from arkdev.endpoints.capability_check.records import Exchange
from arkdev.endpoints.capability_check.responses_checks import check_responses
from arkdev.endpoints.capability_check.token_checks import check_tokens
from arkdev.endpoints.capability_check.tool_checks import check_tool_calls, check_tool_results
from arkdev.errors import EndpointUnreachableError
from tests.unit.endpoints.capability_check.played import calling, error, play, said

PARIS = '{"location": "Paris"}'
NO_ANSWER = Exchange(None, error=EndpointUnreachableError("no answer within 60 s"))


def test_a_plain_answer_with_usage_is_yes_twice() -> None:
    findings, (request,) = play(check_chat("m1"), said("hello"))
    assert findings["chat"].support == "yes" and "5 characters" in findings["chat"].evidence
    assert findings["usage"].evidence == "prompt_tokens 5, completion_tokens 3"
    assert request.body["stream"] is False and request.body["model"] == "m1"


@pytest.mark.parametrize(
    ("usage", "support"),
    [(None, "no"), ({}, "no"), ({"prompt_tokens": 5}, "partly"), ([], "no")],
)
def test_usage_needs_both_counts(usage: Any, support: str) -> None:
    findings, _ = play(check_chat("m1"), said("hello", usage=usage))
    assert findings["usage"].support == support and findings["chat"].support == "yes"


def test_a_stream_that_nobody_asked_for_is_partly() -> None:
    body = said("hello").body
    findings, _ = play(check_chat("m1"), Exchange(200, body, "text/event-stream", 4))
    assert findings["chat"].support == "partly" and findings["chat"].kind == "streamed"
    assert "4 events although stream was false" in findings["chat"].evidence


def test_what_arkdev_mends_is_named() -> None:
    bare = Exchange(200, {"choices": [{"message": {"content": [{"text": "hello"}]}}]})
    finding = play(check_chat("m1"), bare)[0]["chat"]
    assert finding.support == "yes"
    for habit in ("no id", "no finish_reason", "no role", "content is a list of parts"):
        assert habit in finding.evidence


def test_an_empty_answer_is_partly_and_reasoning_alone_is_yes() -> None:
    assert play(check_chat("m1"), said(""))[0]["chat"].support == "partly"
    thought = said({"role": "assistant", "content": None, "reasoning": "hm"}, finish="length")
    finding = play(check_chat("m1"), thought)[0]["chat"]
    assert finding.support == "yes" and "reasoning" in finding.evidence


def test_a_refusal_is_no_with_status_and_the_server_s_sentence_cut_at_200() -> None:
    finding = play(check_chat("m1"), error(400, "too hot " * 100))[0]["chat"]
    assert (finding.support, finding.status) == ("no", 400)
    assert finding.evidence.startswith("400: Refused: too hot")
    assert len(finding.server_said) == 200


@pytest.mark.parametrize(
    "answer", [NO_ANSWER, error(429), error(503), Exchange(200, {"error": {"message": "busy"}})]
)
def test_a_busy_or_silent_server_shows_nothing(answer: Exchange) -> None:
    findings, _ = play(check_chat("m1"), answer)
    assert {finding.support for finding in findings.values()} == {"unknown"}


def test_a_tool_call_is_yes_and_two_are_parallel() -> None:
    findings, requests = play(check_tool_calls("m1"), calling(PARIS), calling(PARIS, PARIS))
    assert findings["tool_calls"].evidence == f"get_weather({PARIS})"
    assert findings["tool_calls"].support == findings["parallel_tool_calls"].support == "yes"
    assert [request.body["tool_choice"] for request in requests] == ["auto", "auto"]


def test_one_call_where_two_were_asked_for_is_not_parallel() -> None:
    findings, _ = play(check_tool_calls("m1"), calling(PARIS), calling(PARIS))
    assert findings["parallel_tool_calls"].support == "no"
    assert "one call" in findings["parallel_tool_calls"].evidence


def test_where_auto_is_refused_required_is_tried() -> None:
    findings, requests = play(
        check_tool_calls("m1"), error(400, "no auto"), calling(PARIS), calling(PARIS, PARIS)
    )
    assert [request.body["tool_choice"] for request in requests] == ["auto", *["required"] * 2]
    finding = findings["tool_calls"]
    assert (finding.support, finding.kind) == ("partly", "refused_unless_required")
    assert (finding.status, finding.server_said) == (400, "Refused: no auto")
    assert findings["parallel_tool_calls"].support == "yes"


def test_a_call_that_comes_as_text_is_no_and_is_shown() -> None:
    text = said('<tool_call>{"name": "get_weather", "arguments": {}}</tool_call>')
    findings, _ = play(check_tool_calls("m1"), text, text)
    assert (findings["tool_calls"].support, findings["tool_calls"].kind) == ("no", "as_text")
    assert "get_weather" in findings["tool_calls"].evidence
    assert findings["parallel_tool_calls"].evidence.startswith("not asked")


def test_words_in_place_of_a_call_are_no_call() -> None:
    words = said("It is sunny. get_weather says so.")
    finding = play(check_tool_calls("m1"), words, words)[0]["tool_calls"]
    assert (finding.support, finding.kind) == ("no", "no_call")


def test_an_answer_cut_at_its_limit_says_so() -> None:
    cut = said('get_weather {"loc', finish="length")
    finding = play(check_tool_calls("m1"), cut, cut)[0]["tool_calls"]
    assert finding.kind == "no_call" and "512 tokens" in finding.evidence


@pytest.mark.parametrize("arguments", ['{"location": "Par', '["Paris"]'])
def test_arguments_that_are_no_object_are_partly(arguments: str) -> None:
    findings, _ = play(check_tool_calls("m1"), calling(arguments), calling(PARIS))
    assert findings["tool_calls"].support == "partly"


def test_shared_ids_and_object_arguments_are_named_as_habits() -> None:
    shared = calling({"location": "Paris"}, PARIS, ids=("c", "c"))
    findings, _ = play(check_tool_calls("m1"), calling(PARIS), shared)
    evidence = findings["parallel_tool_calls"].evidence
    assert "share an id" in evidence and "arguments are an object" in evidence


def test_a_busy_server_is_not_asked_for_required() -> None:
    findings, requests = play(check_tool_calls("m1"), error(429))
    assert len(requests) == 1
    assert {finding.support for finding in findings.values()} == {"unknown"}


def test_a_tool_s_result_goes_back_with_null_content_and_reasoning() -> None:
    findings, (request,) = play(check_tool_results("m1"), said("It is 31 degrees."))
    turn = request.body["messages"][1]
    assert turn["content"] is None and turn["reasoning_content"] and turn["tool_calls"]
    assert findings["tool_results"].support == "yes"
    assert "repeats the tool's number" in findings["tool_results"].evidence


def test_a_server_that_refuses_reasoning_is_partly() -> None:
    findings, requests = play(check_tool_results("m1"), error(400, "extra field"), said("31"))
    assert "reasoning_content" not in requests[1].body["messages"][1]
    assert findings["tool_results"].kind == "without_reasoning"
    assert "400: Refused: extra field" in findings["tool_results"].evidence


def test_a_server_that_refuses_results_is_no_with_its_first_sentence() -> None:
    findings, _ = play(check_tool_results("m1"), error(400, "first"), error(400, "second"))
    assert findings["tool_results"].support == "no"
    assert findings["tool_results"].server_said == "Refused: first"


def response(text: str = "ok", **fields: Any) -> Exchange:
    item = {"type": "message", "content": [{"type": "output_text", "text": text}]}
    return Exchange(200, {"id": "resp_1", "output": [item], **fields})


def test_a_follow_up_that_knows_the_code_word_is_yes() -> None:
    findings, requests = play(check_responses("m1"), response(), response("Plum."))
    assert requests[1].body["previous_response_id"] == "resp_1"
    assert [finding.support for finding in findings.values()] == ["yes", "yes"]


@pytest.mark.parametrize(
    ("counts", "support"), [((20, 35), "yes"), ((20, 15), "no"), ((None, None), "partly")]
)
def test_a_follow_up_is_believed_by_its_prompt(
    counts: tuple[int | None, int | None], support: str
) -> None:
    answers = [response("hm", usage={"input_tokens": count}) for count in counts]
    findings, _ = play(check_responses("m1"), *answers)
    assert findings["responses_follow_up"].support == support


def test_a_refused_follow_up_is_no_and_the_first_call_stays_yes() -> None:
    findings, _ = play(check_responses("m1"), response(), error(404, "no such response"))
    assert findings["responses"].support == "yes"
    assert findings["responses_follow_up"].server_said == "Refused: no such response"


@pytest.mark.parametrize(
    "answer", [error(404), Exchange(200, {"id": "x"}), said("a chat answer"), Exchange(200, "ok")]
)
def test_without_responses_there_is_no_follow_up(answer: Exchange) -> None:
    findings, requests = play(check_responses("m1"), answer)
    assert len(requests) == 1
    assert [finding.support for finding in findings.values()] == ["no", "no"]


def test_streaming_counts_events_and_sees_usage() -> None:
    streamed = Exchange(200, said("hello").body, "text/event-stream", 7)
    finding = play(check_streaming("m1"), streamed)[0]["streaming"]
    assert finding.support == "yes" and finding.evidence == "7 events, usage at the end"
    assert play(check_streaming("m1"), said("hello"))[0]["streaming"].support == "no"


def test_a_broken_stream_is_no_and_says_why() -> None:
    broken = Exchange(200, "", "text/event-stream", 2, "the event stream holds no choices")
    finding = play(check_streaming("m1"), broken)[0]["streaming"]
    assert finding.support == "no" and "holds no choices" in finding.evidence


@pytest.mark.parametrize(
    ("text", "support"),
    [
        ('{"city": "Paris", "is_capital": true}', "yes"),
        ('```json\n{"city": "Paris", "is_capital": true}\n```', "partly"),
        ('{"city": "Rome", "is_capital": true}', "partly"),
        ('{"city": "Paris"}', "partly"),
        ("Paris", "partly"),
        (None, "partly"),
    ],
)
def test_structured_output_is_yes_only_when_the_schema_was_kept(text: Any, support: str) -> None:
    answer = said({"role": "assistant", "content": text})
    finding = play(check_structured_output("m1"), answer)[0]["structured_output"]
    assert finding.support == support


def entries(count: int, **fields: Any) -> dict[str, Any]:
    return {"content": [{"logprob": -1.0, **fields} for _ in range(count)]}


def test_whole_token_evidence_has_as_many_ids_as_usage_counts() -> None:
    whole = said(
        "abc",
        prompt_token_ids=[1, 2, 3, 4, 5],
        choice_token_ids=[6, 7, 8],
        choice_logprobs=entries(3),
    )
    findings, requests = play(check_tokens("m1"), said("abc", choice_logprobs=entries(3)), whole)
    assert findings["logprobs"].support == findings["token_ids"].support == "yes"
    assert requests[1].body["return_token_ids"] is True and requests[1].body["logprobs"] is True
    assert "3 sampled ids (completion_tokens 3)" in findings["token_ids"].evidence


@pytest.mark.parametrize(
    "fields",
    [
        {"choice_token_ids": [6, 7], "choice_logprobs": entries(2)},
        {"choice_token_ids": [6, 7, 8]},
        {"choice_token_ids": [6, 7, 8], "choice_logprobs": entries(3), "prompt_token_ids": None},
        {"choice_token_ids": [6, 7, 8], "choice_logprobs": entries(3), "usage": None},
    ],
)
def test_token_ids_that_do_not_cover_the_answer_are_partly(fields: dict[str, Any]) -> None:
    answer = said("abc", **{"prompt_token_ids": [1, 2, 3, 4, 5], **fields})
    findings, _ = play(check_tokens("m1"), error(400), answer)
    assert findings["token_ids"].kind == "incomplete" and findings["logprobs"].support == "no"


def test_ids_inside_logprobs_are_partly_and_token_texts_are_not_ids() -> None:
    with_ids = said("abc", choice_logprobs=entries(3, id=9, token="x"))
    with_texts = said("abc", choice_logprobs=entries(3, token="\ufffd"))
    findings, _ = play(check_tokens("m1"), with_texts, with_ids)
    assert findings["token_ids"].kind == "only_in_logprobs"
    findings, _ = play(check_tokens("m1"), with_texts, with_texts)
    assert findings["token_ids"].support == "no"
