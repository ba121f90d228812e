"""Attributes of model calls, by the names of OpenTelemetry's conventions for generative AI.

A call's input is what is new since the model's last answer: a trace of long conversations would
otherwise hold each message once for every call after it. `arkdev.num_messages` says how many were
sent in all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from arkdev.observe.values import cut, plain

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


def request_attributes(
    body: Mapping[str, Any], *, sampling: Mapping[str, Any], model: str, provider: str
) -> dict[str, Any]:
    """Return the attributes of a Chat Completions request."""
    messages = body.get("messages") or ()
    attributes: dict[str, Any] = {
        OPERATION: CHAT,
        "gen_ai.provider.name": provider,
        "gen_ai.request.model": model,
        INPUT_MESSAGES: [_message(message) for message in new_messages(messages)],
        "arkdev.num_messages": len(messages),
    }
    for name, attribute in _SAMPLING.items():
        if sampling.get(name) is not None:
            attributes[attribute] = plain(sampling[name])
    stop = sampling.get("stop")
    if stop:
        attributes["gen_ai.request.stop_sequences"] = (
            [stop] if isinstance(stop, str) else list(stop)
        )
    return attributes


def answer_attributes(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of a Chat Completions answer."""
    choice = (answer.get("choices") or [{}])[0]
    usage = answer.get("usage") or {}
    reason = choice.get("finish_reason")
    attributes = {
        "gen_ai.response.id": answer.get("id"),
        "gen_ai.response.model": answer.get("model"),
        INPUT_TOKENS: usage.get("prompt_tokens"),
        OUTPUT_TOKENS: usage.get("completion_tokens"),
        "gen_ai.usage.cache_read.input_tokens": _detail(usage, "prompt", "cached_tokens"),
        "gen_ai.usage.reasoning.output_tokens": _detail(usage, "completion", "reasoning_tokens"),
        OUTPUT_MESSAGES: [{**_message(choice.get("message") or {}), "finish_reason": reason}],
        "gen_ai.response.finish_reasons": [reason] if reason else None,
    }
    return {name: value for name, value in attributes.items() if value is not None}


def new_messages(messages: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return the messages after the last answer."""
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].get("role") == "assistant":
            return messages[index + 1 :]
    return messages


def _detail(usage: Mapping[str, Any], side: str, name: str) -> Any:
    return (usage.get(f"{side}_tokens_details") or {}).get(name)


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message in parts, as the conventions have it."""
    role, content = str(message.get("role") or "assistant"), message.get("content")
    parts: list[dict[str, Any]] = []
    if role == "tool":
        call_id, response = message.get("tool_call_id"), plain(content)
        return {
            "role": role,
            "parts": [{"type": "tool_call_response", "id": call_id, "response": response}],
        }
    if message.get("reasoning_content"):
        parts.append({"type": "reasoning", "content": plain(message["reasoning_content"])})
    if isinstance(content, str):
        if content:
            parts.append({"type": "text", "content": cut(content)})
    elif content:
        parts += [_content_part(part) for part in plain(content)]
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        arguments = plain(function.get("arguments"))
        parts.append(
            {
                "type": "tool_call",
                "id": call.get("id"),
                "name": function.get("name"),
                "arguments": arguments,
            }
        )
    return {"role": role, "parts": parts}


def _content_part(part: Any) -> dict[str, Any]:
    if isinstance(part, dict) and part.get("type") == "text":
        return {"type": "text", "content": part.get("text")}
    return part if isinstance(part, dict) else {"type": "text", "content": part}


def as_text(value: Any) -> str:
    """Return an attribute's value as text: JSON, but for text itself."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
