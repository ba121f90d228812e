"""Bring a server's answer into the form of Chat Completions, so that all else need not ask.

Servers that call themselves OpenAI-compatible leave fields out or write them in their own way. What
is mended here says the same in the standard form; nothing is made up: an absent ``finish_reason``
stays unknown (null), absent usage stays absent, argument texts that are not JSON stay as they are.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any
from uuid import uuid4

_COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens")
_MAX_COUNT = 2**53
"""Larger numbers are no counts of tokens."""


def normalize_completion(completion: dict[str, Any], *, model: str) -> list[str]:
    """Mend `completion` in place and return what was mended, one phrase for each habit.

    `completion` has passed `answers.check_answer`; `model` is the name of a model that the answer
    does not name.
    """
    mended: list[str] = []
    if not completion.get("id"):
        completion["id"] = f"chatcmpl-{uuid4().hex}"
        mended.append("no id")
    elif not isinstance(completion["id"], str):
        completion["id"] = str(completion["id"])
        mended.append("id is not a text")
    if not isinstance(completion.get("model"), str) or not completion["model"]:
        completion["model"] = model
    completion.setdefault("object", "chat.completion")
    _normalize_created(completion, mended)
    _normalize_usage(completion, mended)
    _drop_unless(_are_ids, completion, "prompt_token_ids", mended)
    for position, choice in enumerate(completion["choices"]):
        if not isinstance(choice.get("index"), int):
            choice["index"] = position
        if "finish_reason" not in choice:
            choice["finish_reason"] = None
            mended.append("no finish_reason")
        _drop_unless(_is_text, choice, "finish_reason", mended)
        _drop_unless(_are_ids, choice, "token_ids", mended)
        _drop_unless(_are_logprobs, choice, "logprobs", mended)
        _normalize_message(choice["message"], mended)
    return mended


def _normalize_created(completion: dict[str, Any], mended: list[str]) -> None:
    created = completion.get("created")
    if isinstance(created, float) and math.isfinite(created):
        completion["created"] = int(created)
        mended.append("created is not a whole number")
    elif created is not None and not isinstance(created, int):
        del completion["created"]
        mended.append("created is not a whole number")


def _normalize_usage(completion: dict[str, Any], mended: list[str]) -> None:
    """Counts that are no counts are unknown (null), as is a usage that is no object."""
    usage = completion.get("usage")
    if usage is None:
        return
    if not isinstance(usage, dict):
        completion["usage"] = None
        mended.append("usage is not an object")
        return
    for name in _COUNTS:
        count = usage.get(name)
        if isinstance(count, float) and count.is_integer():
            usage[name] = count = int(count)
        if count is not None and (type(count) is not int or not 0 <= count < _MAX_COUNT):
            usage[name] = None
            mended.append(f"{name} is not a count")
    for name in ("prompt_tokens_details", "completion_tokens_details"):
        _drop_unless(lambda value: isinstance(value, dict), usage, name, mended)


def _drop_unless(
    is_right: Callable[[Any], bool], fields: dict[str, Any], key: str, mended: list[str]
) -> None:
    """Make unknown (null) what is of the wrong kind."""
    if fields.get(key) is not None and not is_right(fields[key]):
        fields[key] = None
        mended.append(f"{key} cannot be read")


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_ids(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int for item in value)


def _are_logprobs(value: Any) -> bool:
    """Whether the object's list of tokens, where there is one, holds finite numbers."""
    if not isinstance(value, dict):
        return False
    content = value.get("content")
    return content is None or (
        isinstance(content, list)
        and all(
            isinstance(token, dict)
            and type(token.get("logprob")) in (int, float)
            and math.isfinite(token["logprob"])
            for token in content
        )
    )


def _normalize_message(message: dict[str, Any], mended: list[str]) -> None:
    if not message.get("role"):
        message["role"] = "assistant"
        mended.append("no role")
    elif message["role"] != "assistant":
        mended.append(f"role {message['role']!r} is not assistant")
        message["role"] = "assistant"
    for key in ("reasoning_content", "refusal"):
        if message.get(key) is not None and not isinstance(message[key], str):
            message[key] = json.dumps(message[key], ensure_ascii=False)
            mended.append(f"{key} is not a text")
    if isinstance(message.get("content"), list):
        _join_parts(message, mended)
    message.setdefault("content", None)
    reasoning = message.get("reasoning")  # as vLLM and OpenRouter call it
    if isinstance(reasoning, str) and reasoning and not message.get("reasoning_content"):
        message["reasoning_content"] = reasoning
        mended.append("reasoning_content is called reasoning")
    _drop_unless(lambda value: isinstance(value, list), message, "tool_calls", mended)
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
        if call_id and not isinstance(call_id, str):
            call["id"] = call_id = str(call_id)
            mended.append("the id of a tool call is not a text")
        if not call_id or call_id in seen:
            mended.append("tool calls share an id" if call_id else "tool calls without an id")
            call["id"] = call_id = f"call_{uuid4().hex}"
        seen.add(call_id)
        if not isinstance(call.get("type"), str) or not call["type"]:
            call["type"] = "function"
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
