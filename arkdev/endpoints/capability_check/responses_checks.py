"""The Responses API, and a second call that goes on from the first by its id."""

from __future__ import annotations

from typing import Any

from arkdev.endpoints.capability_check.records import (
    Check,
    Exchange,
    Finding,
    Request,
    Support,
    found,
    not_asked,
    refused,
)

RESPONSES_PATH = "responses"
_CODE_WORD = "plum"
_MAX_TOKENS = 64


def check_responses(model: str) -> Check:
    """Tell a code word and ask for it again; `responses` and `responses_follow_up`."""
    first = yield _request(model, f"The code word is {_CODE_WORD}. Reply with one word: ok.")
    response = _response(first)
    if response is None:
        finding = _no_response("responses", first)
        why = "there is no Responses API" if finding.support is Support.NO else "it failed"
        return [finding, not_asked("responses_follow_up", why, support=finding.support)]
    kinds = ", ".join(str(item.get("type")) for item in response["output"])
    finding = found("responses", Support.YES, f"output: {kinds}", exchange=first)
    response_id = response.get("id")
    if not response_id:
        return [finding, not_asked("responses_follow_up", "the response has no id")]
    second = yield _request(
        model, "What is the code word? Reply with one word.", previous_response_id=response_id
    )
    return [finding, _follow_up(second, before=response)]


def _request(model: str, text: str, **fields: Any) -> Request:
    body = {"model": model, "input": text, "max_output_tokens": _MAX_TOKENS, **fields}
    return Request(RESPONSES_PATH, body)


def _response(exchange: Exchange) -> dict[str, Any] | None:
    """The answer as a Responses object with output; None when it is none."""
    body = exchange.body
    if not exchange.is_success or not isinstance(body, dict) or body.get("error"):
        return None
    output = body.get("output")
    is_list = isinstance(output, list) and all(isinstance(item, dict) for item in output)
    return body if is_list else None


def _no_response(name: str, exchange: Exchange) -> Finding:
    if exchange.is_success and isinstance(exchange.body, dict) and not exchange.body.get("error"):
        evidence = "accepted, but the answer has no output"
        return found(name, Support.NO, evidence, exchange=exchange, kind="other_answer")
    return refused(name, exchange)


def _follow_up(exchange: Exchange, *, before: dict[str, Any]) -> Finding:
    """Accepted is not enough: the answer or its input tokens must show the first call."""
    name = "responses_follow_up"
    response = _response(exchange)
    if response is None:
        return _no_response(name, exchange)
    first, second = _input_tokens(before), _input_tokens(response)
    if _CODE_WORD in str(response["output"]).lower():
        return found(name, Support.YES, "it remembers the first call", exchange=exchange)
    if first is None or second is None:
        evidence = "accepted, but nothing shows that it remembers the first call"
        return found(name, Support.PARTLY, evidence, exchange=exchange, kind="unproven")
    counts = f"input tokens {first}, then {second}"
    if second > first:  # the second question alone is shorter than the first
        evidence = f"the first call is in its prompt: {counts}"
        return found(name, Support.YES, evidence, exchange=exchange)
    evidence = f"accepted, but the first call is not in its prompt: {counts}"
    return found(name, Support.NO, evidence, exchange=exchange, kind="forgets")


def _input_tokens(response: dict[str, Any]) -> int | None:
    usage = response.get("usage")
    count = usage.get("input_tokens") if isinstance(usage, dict) else None
    return count if isinstance(count, int) else None
