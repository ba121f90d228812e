"""Bring a server's answer into the form of Chat Completions, so that all else need not ask.

Servers that call themselves OpenAI-compatible leave fields out or write them in their own way. What
is mended here says the same in the standard form; nothing is made up: an absent ``finish_reason``
stays unknown (null), absent usage stays absent, argument texts that are not JSON stay as they are.
"""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4


def normalize_completion(completion: dict[str, Any], *, model: str) -> list[str]:
    """Mend `completion` in place and return what was mended, one phrase for each habit.

    `completion` has passed `answers.check_answer`; `model` is the name of a model that the answer
    does not name.
    """
    mended: list[str] = []
    if not completion.get("id"):
        completion["id"] = f"chatcmpl-{uuid4().hex}"
        mended.append("no id")
    if not completion.get("model"):
        completion["model"] = model
    completion.setdefault("object", "chat.completion")
    if isinstance(completion.get("created"), float):
        completion["created"] = int(completion["created"])
        mended.append("created is not a whole number")
    for position, choice in enumerate(completion["choices"]):
        if choice.get("index") is None:
            choice["index"] = position
        if "finish_reason" not in choice:
            choice["finish_reason"] = None
            mended.append("no finish_reason")
        _normalize_message(choice["message"], mended)
    return mended


def _normalize_message(message: dict[str, Any], mended: list[str]) -> None:
    if not message.get("role"):
        message["role"] = "assistant"
        mended.append("no role")
    if isinstance(message.get("content"), list):
        _join_parts(message, mended)
    message.setdefault("content", None)
    reasoning = message.get("reasoning")  # as vLLM and OpenRouter call it
    if isinstance(reasoning, str) and reasoning and not message.get("reasoning_content"):
        message["reasoning_content"] = reasoning
        mended.append("reasoning_content is called reasoning")
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        _normalize_calls([call for call in calls if isinstance(call, dict)], mended)


def _join_parts(message: dict[str, Any], mended: list[str]) -> None:
    """Make one text of text parts; thinking parts are the reasoning; others stay as they are."""
    parts = message["content"]
    texts, thoughts = [], []
    for part in parts:
        kind = part.get("type") if isinstance(part, dict) else None
        if isinstance(part, str):
            texts.append(part)
        elif kind == "thinking":
            thoughts.append(_text_of(part.get("thinking")))
        elif kind in ("text", "output_text", None) and isinstance(_get(part, "text"), str):
            texts.append(part["text"])
        else:
            return
    message["content"] = "".join(texts) if texts else None
    if thoughts and not message.get("reasoning_content"):
        message["reasoning_content"] = "".join(thoughts)
    mended.append("content is a list of parts")


def _text_of(value: Any) -> str:
    """The text of a thinking part: a string, or text parts again."""
    if isinstance(value, list):
        return "".join(_text_of(_get(part, "text")) for part in value)
    return value if isinstance(value, str) else ""


def _get(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, dict) else None


def _normalize_calls(calls: list[dict[str, Any]], mended: list[str]) -> None:
    seen: set[str] = set()
    for call in calls:
        call_id = call.get("id")
        if not call_id or call_id in seen:
            mended.append("tool calls share an id" if call_id else "tool calls without an id")
            call["id"] = call_id = f"call_{uuid4().hex}"
        seen.add(call_id)
        call["type"] = call.get("type") or "function"
        function = call.get("function")
        if not isinstance(function, dict):
            continue
        arguments = function.get("arguments")
        if arguments is None:
            function["arguments"] = "{}"
            mended.append("tool calls without arguments")
        elif not isinstance(arguments, str):
            function["arguments"] = json.dumps(arguments, ensure_ascii=False)
            mended.append("arguments are an object and not a text")
