"""Attributes of model calls, by the names of OpenTelemetry's conventions for generative AI.

A call's input is what is new since the model's last answer: a trace of long conversations would
otherwise hold each message once for every call after it. `arkdev.num_messages` says how many were
sent in all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from arkdev.observe.values import MAX_CHARS, MAX_ITEMS, plain

OPERATION = "gen_ai.operation.name"
CHAT, EXECUTE_TOOL, INVOKE_AGENT = "chat", "execute_tool", "invoke_agent"
INPUT_MESSAGES, OUTPUT_MESSAGES = "gen_ai.input.messages", "gen_ai.output.messages"
TOOL_ARGUMENTS, TOOL_RESULT = "gen_ai.tool.call.arguments", "gen_ai.tool.call.result"
INPUT_TOKENS, OUTPUT_TOKENS = "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"

_SAMPLING = {
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "max_tokens": "gen_ai.request.max_tokens",
    "max_completion_tokens": "gen_ai.request.max_tokens",
    "max_new_tokens": "gen_ai.request.max_tokens",
    "seed": "gen_ai.request.seed",
}
_NUMBERS = frozenset((int, float))
_DETAILS = (
    ("prompt_tokens_details", "cached_tokens", "gen_ai.usage.cache_read.input_tokens"),
    ("completion_tokens_details", "reasoning_tokens", "gen_ai.usage.reasoning.output_tokens"),
)
_FEW_MESSAGES = 4
"""Whose texts are cut one by one."""
_NO_CHOICES: list[dict[str, Any]] = [{}]


def request_attributes(
    body: Mapping[str, Any], *, sampling: Mapping[str, Any], model: str, provider: str
) -> dict[str, Any]:
    """Return the attributes of a Chat Completions request."""
    messages = body.get("messages") or ()
    attributes: dict[str, Any] = {
        OPERATION: CHAT,
        "gen_ai.provider.name": provider,
        "gen_ai.request.model": model,
        INPUT_MESSAGES: _bounded(new_messages(messages)),
        "arkdev.num_messages": len(messages),
    }
    for name, value in sampling.items():
        attribute = _SAMPLING.get(name)
        if attribute is not None and type(value) in _NUMBERS:
            attributes[attribute] = value
    stop = sampling.get("stop")
    if stop:
        sequences = [stop] if isinstance(stop, str) else list(stop)
        attributes["gen_ai.request.stop_sequences"] = sequences
    return attributes


def answer_attributes(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of a Chat Completions answer."""
    choice = (answer.get("choices") or _NO_CHOICES)[0]
    usage = answer.get("usage") or {}
    reason = choice.get("finish_reason")
    message = _message(choice.get("message") or {})
    message["finish_reason"] = reason
    attributes = {
        "gen_ai.response.id": answer.get("id"),
        "gen_ai.response.model": answer.get("model"),
        INPUT_TOKENS: usage.get("prompt_tokens"),
        OUTPUT_TOKENS: usage.get("completion_tokens"),
        OUTPUT_MESSAGES: [message],
    }
    if reason:
        attributes["gen_ai.response.finish_reasons"] = [reason]
    for side, name, attribute in _DETAILS:
        if usage.get(side):
            attributes[attribute] = usage[side].get(name)
    return {name: value for name, value in attributes.items() if value is not None}


def new_messages(messages: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return the messages after the last answer."""
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].get("role") == "assistant":
            return messages[index + 1 :]
    return messages


def _bounded(messages: Sequence[Mapping[str, Any]]) -> Any:
    """Return messages in parts; many of them no longer than one value may be."""
    if len(messages) <= _FEW_MESSAGES:
        return [_message(message) for message in messages]
    shown: list[Any] = [_message(message) for message in messages[:MAX_ITEMS]]
    if len(messages) > MAX_ITEMS:
        shown.append(f"… ({len(messages) - MAX_ITEMS} more)")
    return plain(shown)


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message in parts, as the conventions have it."""
    role, content = message.get("role") or "assistant", message.get("content")
    if role == "tool":
        answer = {"type": "tool_call_response", "id": message.get("tool_call_id")}
        return {"role": role, "parts": [{**answer, "response": _kept(content)}]}
    parts: list[dict[str, Any]] = []
    if message.get("reasoning_content"):
        parts.append({"type": "reasoning", "content": _kept(message["reasoning_content"])})
    if isinstance(content, str):
        if content:
            parts.append({"type": "text", "content": _kept(content)})
    elif content:
        parts += [_content_part(part) for part in plain(content)]
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        part = {"type": "tool_call", "id": call.get("id"), "name": function.get("name")}
        parts.append({**part, "arguments": _kept(function.get("arguments"))})
    return {"role": role, "parts": parts}


def _kept(value: Any) -> Any:
    """Return a value as spans keep it; of a text of ordinary length, the text."""
    return value if type(value) is str and len(value) <= MAX_CHARS else plain(value)


def _content_part(part: Any) -> dict[str, Any]:
    if isinstance(part, dict) and part.get("type") == "text":
        return {"type": "text", "content": part.get("text")}
    return part if isinstance(part, dict) else {"type": "text", "content": part}


def as_text(value: Any) -> str:
    """Return an attribute's value as text: JSON, but for text itself."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
