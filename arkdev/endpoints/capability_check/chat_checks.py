"""Plain chat, usage, streaming, structured output."""

from __future__ import annotations

import copy
import json
from typing import Any

from arkdev.endpoints.capability_check.records import (
    Check,
    Exchange,
    Finding,
    Request,
    Support,
    found,
    refused,
)
from arkdev.endpoints.normal_form import normalize_completion

CHAT_PATH = "chat/completions"
_SHORT_ANSWER = 64
_LONG_ANSWER = 512
"""Tokens, enough for a model that thinks first."""

_CITY_SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "enum": ["Paris", "London"]},
        "is_capital": {"type": "boolean"},
    },
    "required": ["city", "is_capital"],
    "additionalProperties": False,
}


def chat_request(
    model: str,
    messages: str | list[dict[str, Any]],
    *,
    max_tokens: int = _SHORT_ANSWER,
    **fields: Any,
) -> Request:
    """Make a Chat Completions request that is not streamed; a str is the user's message."""
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    body = {"model": model, "messages": messages, "max_tokens": max_tokens, "temperature": 0}
    return Request(CHAT_PATH, {**body, "stream": False, **fields})


def mended_completion(exchange: Exchange, *, model: str) -> tuple[dict[str, Any] | None, list[str]]:
    """Return the completion in the standard form, and what had to be mended for that."""
    completion = copy.deepcopy(exchange.completion())
    if completion is None:
        return None, []
    mended = normalize_completion(completion, model=model)
    return completion, list(dict.fromkeys(mended))


def with_habits(evidence: str, mended: list[str]) -> str:
    """Add to `evidence` what arkdev mends in such an answer."""
    return f"{evidence}; arkdev mends: {', '.join(mended)}" if mended else evidence


def check_chat(model: str) -> Check:
    """Ask for one word; `chat` and `usage`."""
    exchange = yield chat_request(model, "Reply with one word: hello.")
    completion, mended = mended_completion(exchange, model=model)
    if completion is None:
        return [refused("chat", exchange), refused("usage", exchange)]
    message = completion["choices"][0]["message"]
    support, kind = Support.YES, ""
    if message["content"]:
        evidence = f"an answer of {len(message['content'])} characters"
    elif message.get("reasoning_content"):
        evidence = f"reasoning and no answer within {_SHORT_ANSWER} tokens"
    else:
        support, kind, evidence = Support.PARTLY, "empty", "an empty answer"
    if exchange.num_events is not None:
        support, kind = Support.PARTLY, "streamed"
        evidence = f"streamed in {exchange.num_events} events although stream was false"
    chat = found("chat", support, with_habits(evidence, mended), exchange=exchange, kind=kind)
    return [chat, _usage(completion, exchange)]


def _usage(completion: dict[str, Any], exchange: Exchange) -> Finding:
    usage = completion.get("usage")
    if not isinstance(usage, dict):
        how = "null" if "usage" in completion else "absent"
        return found("usage", Support.NO, f"usage is {how}", exchange=exchange)
    counts = {name: usage.get(name) for name in ("prompt_tokens", "completion_tokens")}
    known = [name for name, count in counts.items() if isinstance(count, int)]
    support = (Support.NO, Support.PARTLY, Support.YES)[len(known)]
    evidence = ", ".join(f"{name} {count}" for name, count in counts.items())
    return found("usage", support, evidence, exchange=exchange)


def check_streaming(model: str) -> Check:
    """Ask for a streamed answer with usage at its end."""
    exchange = yield chat_request(
        model, "Reply with one word: hello.", stream=True, stream_options={"include_usage": True}
    )
    completion = exchange.completion()
    if completion is None:
        return [refused("streaming", exchange)]
    if exchange.num_events is None:
        evidence = f"answered in one piece ({exchange.content_type})"
        return [found("streaming", Support.NO, evidence, exchange=exchange)]
    usage = "usage at the end" if completion.get("usage") else "no usage"
    evidence = f"{exchange.num_events} events, {usage}"
    return [found("streaming", Support.YES, evidence, exchange=exchange)]


def check_structured_output(model: str) -> Check:
    """Ask for an object of a small JSON Schema."""
    schema = {"name": "city", "strict": True, "schema": _CITY_SCHEMA}
    exchange = yield chat_request(
        model,
        'Which city is the capital of France? Reply as JSON with "city" and "is_capital".',
        max_tokens=_LONG_ANSWER,
        response_format={"type": "json_schema", "json_schema": schema},
    )
    completion, _ = mended_completion(exchange, model=model)
    if completion is None:
        return [refused("structured_output", exchange)]
    choice = completion["choices"][0]
    text = choice["message"]["content"]
    if _is_city(text):
        evidence = f"the schema was kept: {' '.join(text.split())}"
        return [found("structured_output", Support.YES, evidence, exchange=exchange)]
    if choice["finish_reason"] == "length":
        kind, evidence = "cut", f"accepted, but not done within {_LONG_ANSWER} tokens"
    else:
        kind = "ignored"
        evidence = f"accepted, but the answer is not of the schema: {clipped(text)}"
    return [found("structured_output", Support.PARTLY, evidence, exchange=exchange, kind=kind)]


def _is_city(text: object) -> bool:
    try:
        value = json.loads(text) if isinstance(text, str) else None
    except ValueError:
        return False
    return (
        isinstance(value, dict)
        and value.keys() == {"city", "is_capital"}
        and value["city"] in ("Paris", "London")
        and isinstance(value["is_capital"], bool)
    )


def clipped(text: object, *, limit: int = 80) -> str:
    """Return the beginning of `text` in one line."""
    line = " ".join(str(text).split())
    return repr(line if len(line) <= limit else line[: limit - 1] + "…")
