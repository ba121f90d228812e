"""Whole requests: a Responses request as a Chat request, and the other way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from arkdev.errors import TranslationError
from arkdev.plugin.responses.items import items_of_messages, messages_of_input
from arkdev.plugin.responses.tools import (
    chat_tool_choice,
    chat_tools,
    response_format_of_text,
    responses_tool_choice,
    responses_tools,
    text_format_of_response,
)

LOGPROBS = "message.output_text.logprobs"
"""The entry of ``include`` that asks for logprobs."""

# about storage, billing and delivery: nothing that the model sees or that its answer shows
_LEFT_OUT = (
    "store",
    "metadata",
    "user",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "service_tier",
    "stream",
    "stream_options",
    "caching",
    "expire_at",
    "max_tool_calls",
)
_REFUSED = {
    "conversation": "conversations live on a server",
    "session": "sessions live on a server",
    "prompt": "prompt templates live on a server",
    "previous_response_id": "it names a response that the endpoint does not keep",
    "context_management": "it is done by a server",
}
_OFF = {"background": False, "truncation": "disabled"}


def chat_body_of_responses(
    kwargs: Mapping[str, Any], *, history: Sequence[dict[str, Any]] | None = None
) -> dict[str, Any]:
    """Return the arguments of ``responses.create`` as a Chat Completions body.

    `history` holds the messages up to and including the answer that ``previous_response_id`` names,
    without instructions: those of earlier requests do not count. The caller has looked it up; a
    ``previous_response_id`` without a `history` is refused. Parameters that neither API documents
    pass as they are. Raises `TranslationError` for what Chat Completions cannot express.
    """
    given = {key: value for key, value in kwargs.items() if value is not None}
    if history is not None:
        given.pop("previous_response_id", None)
    if "input" not in given:
        raise TranslationError("input is missing", param="input")
    new = messages_of_input(given["input"], instructions=given.get("instructions"))
    num_instructions = 1 if given.get("instructions") else 0
    body: dict[str, Any] = {
        "messages": [*new[:num_instructions], *(history or ()), *new[num_instructions:]]
    }
    for name, value in given.items():
        if name in _LEFT_OUT or name in ("input", "instructions"):
            continue
        _refuse(name, value)
        translate = _TO_CHAT.get(name)
        body.update(translate(value) if translate else {name: value})
    return body


def _refuse(name: str, value: Any) -> None:
    if name in _REFUSED:
        raise TranslationError(
            f"{name} cannot be translated to Chat Completions: {_REFUSED[name]}", param=name
        )
    if name in _OFF and value != _OFF[name]:
        raise TranslationError(
            f"{name} = {value!r} cannot be translated to Chat Completions", param=name
        )


def _chat_text(text: Any) -> dict[str, Any]:
    if not isinstance(text, dict):
        raise TranslationError("text is not an object", param="text")
    body: dict[str, Any] = {}
    if text.get("format") is not None:
        body["response_format"] = response_format_of_text(text["format"])
    if text.get("verbosity") is not None:
        body["verbosity"] = text["verbosity"]
    return body


def _chat_reasoning(reasoning: Any) -> dict[str, Any]:
    effort = reasoning.get("effort") if isinstance(reasoning, dict) else None
    return {} if effort is None else {"reasoning_effort": effort}


def _nothing(value: Any) -> dict[str, Any]:
    return {}


_TO_CHAT: dict[str, Callable[[Any], dict[str, Any]]] = {
    "tools": lambda tools: {"tools": chat_tools(tools)} if tools else {},
    "tool_choice": lambda choice: {"tool_choice": chat_tool_choice(choice)},
    "text": _chat_text,
    "reasoning": _chat_reasoning,
    "max_output_tokens": lambda limit: {"max_tokens": limit},
    "include": lambda names: {"logprobs": True} if LOGPROBS in names else {},
    "top_logprobs": lambda count: {"logprobs": True, "top_logprobs": count},
    "background": _nothing,
    "truncation": _nothing,
}


def responses_body_of_chat(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a Chat Completions body as a Responses body for a server without a store.

    The input is the whole history, each time (field case 2.7). Nulls are left out; parameters that
    are called the same in both, or that neither API documents, pass as they are. Raises
    `TranslationError` for what the Responses API cannot express.
    """
    given = {key: value for key, value in body.items() if value is not None}
    request: dict[str, Any] = {"input": items_of_messages(given.pop("messages")), "store": False}
    if given.get("logprobs") or given.get("top_logprobs"):
        request["include"] = [LOGPROBS]
    for name, value in given.items():
        translate = _TO_RESPONSES.get(name)
        for key, translated in (translate(value) if translate else {name: value}).items():
            if isinstance(translated, dict) and isinstance(request.get(key), dict):
                translated = {**request[key], **translated}
            request[key] = translated
    return request


def _one_choice(count: Any) -> dict[str, Any]:
    if count == 1:
        return {}
    raise TranslationError(f"n = {count!r} cannot be sent to a Responses endpoint", param="n")


_TO_RESPONSES: dict[str, Callable[[Any], dict[str, Any]]] = {
    "tools": lambda tools: {"tools": responses_tools(tools)} if tools else {},
    "tool_choice": lambda choice: {"tool_choice": responses_tool_choice(choice)},
    "response_format": lambda value: {"text": {"format": text_format_of_response(value)}},
    "verbosity": lambda value: {"text": {"verbosity": value}},
    "reasoning_effort": lambda effort: {"reasoning": {"effort": effort}},
    "max_tokens": lambda limit: {"max_output_tokens": limit},
    "max_completion_tokens": lambda limit: {"max_output_tokens": limit},
    "n": _one_choice,
    "logprobs": _nothing,
    "stream": _nothing,
    "stream_options": _nothing,
}
