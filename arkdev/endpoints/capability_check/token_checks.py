"""Logprobs and token ids: whether an answer says which tokens were sampled (decision 8)."""

from __future__ import annotations

from typing import Any

from arkdev.endpoints.capability_check.chat_checks import chat_request
from arkdev.endpoints.capability_check.records import (
    Check,
    Exchange,
    Finding,
    Support,
    found,
    refused,
)
from arkdev.endpoints.parameters import TOKEN_EVIDENCE_FIELDS

_MAX_TOKENS = 16
_QUESTION = "Count from one to five."


def check_tokens(model: str) -> Check:
    """Ask for logprobs as OpenAI has them, then for token ids as vLLM has them."""
    exchange = yield chat_request(model, _QUESTION, max_tokens=_MAX_TOKENS, logprobs=True)
    logprobs = _read_logprobs(exchange)
    fields = dict(TOKEN_EVIDENCE_FIELDS["generic"])
    exchange = yield chat_request(model, _QUESTION, max_tokens=_MAX_TOKENS, **fields)
    return [logprobs, _read_token_ids(exchange)]


def _read_logprobs(exchange: Exchange) -> Finding:
    completion = exchange.completion()
    if completion is None:
        return refused("logprobs", exchange)
    entries = _logprob_entries(completion)
    if not entries:
        return found("logprobs", Support.NO, "accepted, but none came", exchange=exchange)
    reported = _count(completion, "completion_tokens")
    return found(
        "logprobs",
        Support.YES if reported == len(entries) else Support.PARTLY,
        f"{len(entries)} logprobs, {_reported('completion_tokens', reported)}",
        exchange=exchange,
    )


def _read_token_ids(exchange: Exchange) -> Finding:
    completion = exchange.completion()
    if completion is None:
        return refused("token_ids", exchange)
    prompt = completion.get("prompt_token_ids")
    sampled = completion["choices"][0].get("token_ids")
    entries = _logprob_entries(completion)
    if not prompt and not sampled:
        return _without_ids(entries, exchange)
    sizes = [len(ids) if isinstance(ids, list) else 0 for ids in (prompt, sampled, entries)]
    wanted = [_count(completion, name) for name in ("prompt_tokens", "completion_tokens")]
    evidence = (
        f"{sizes[0]} prompt ids ({_reported('prompt_tokens', wanted[0])}), "
        f"{sizes[1]} sampled ids ({_reported('completion_tokens', wanted[1])}), "
        f"{sizes[2]} logprobs"
    )
    is_whole = sizes == [*wanted, wanted[1]]
    return found(
        "token_ids",
        Support.YES if is_whole else Support.PARTLY,
        evidence,
        exchange=exchange,
        kind="" if is_whole else "incomplete",
    )


def _without_ids(entries: list[dict[str, Any]], exchange: Exchange) -> Finding:
    """llama.cpp has the sampled ids in its logprobs, but none of the prompt."""
    if entries and all(isinstance(entry.get("id"), int) for entry in entries):
        evidence = f"{len(entries)} sampled ids inside logprobs, none of the prompt"
        return found(
            "token_ids", Support.PARTLY, evidence, exchange=exchange, kind="only_in_logprobs"
        )
    return found("token_ids", Support.NO, "accepted, but none came", exchange=exchange)


def _logprob_entries(completion: dict[str, Any]) -> list[dict[str, Any]]:
    logprobs = completion["choices"][0].get("logprobs")
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    return [entry for entry in content or [] if isinstance(entry, dict)]


def _count(completion: dict[str, Any], name: str) -> int | None:
    usage = completion.get("usage")
    count = usage.get(name) if isinstance(usage, dict) else None
    return count if isinstance(count, int) else None


def _reported(name: str, count: int | None) -> str:
    return f"{name} unknown" if count is None else f"{name} {count}"
