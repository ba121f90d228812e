"""Whole answers: a Chat Completions answer as a Response, and the other way."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from arkdev.errors import TranslationError
from arkdev.plugin.responses.content import add_reasoning, reasoning_text, text_of
from arkdev.plugin.responses.requests import LOGPROBS

_ECHOED = (
    "instructions",
    "max_output_tokens",
    "temperature",
    "top_p",
    "reasoning",
    "user",
    "store",
    "thinking",
)
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
_FINISH = {reason: finish for finish, reason in _INCOMPLETE.items()}
_ANSWER_FIELDS = ("id", "object", "created", "model", "choices", "usage")
_CHOICE_FIELDS = ("index", "message", "finish_reason")
_CHOICE_EVIDENCE = ("token_ids", "logprobs", "stop_reason")
_ANSWER_EVIDENCE = ("prompt_token_ids", "prompt_logprobs")


def response_of_answer(
    answer: Mapping[str, Any],
    *,
    response_id: str,
    previous_response_id: str | None,
    request: Mapping[str, Any],
) -> dict[str, Any]:
    """Return a Chat Completions answer as the Response object that `request` asked for.

    `request` has the arguments of ``responses.create``; what a Response repeats of them is
    repeated. The first choice counts. Fields that the Chat answer has beyond the standard ones
    (``prompt_token_ids``, ``token_ids``, ``logprobs``) are kept at the top of the Response. Usage
    that is unknown stays null.
    """
    choice = answer["choices"][0]
    reason = _INCOMPLETE.get(choice.get("finish_reason") or "")
    status = "incomplete" if reason else "completed"
    has_logprobs = LOGPROBS in (request.get("include") or ())
    return {
        **_extras(answer, _ANSWER_FIELDS),
        **_extras(choice, _CHOICE_FIELDS),
        "id": response_id,
        "object": "response",
        "created_at": int(answer.get("created") or time.time()),
        "status": status,
        "error": None,
        "incomplete_details": {"reason": reason} if reason else None,
        "model": answer.get("model") or request.get("model") or "",
        "output": list(
            _output(choice, response_id=response_id, status=status, has_logprobs=has_logprobs)
        ),
        "parallel_tool_calls": request.get("parallel_tool_calls") is not False,
        "previous_response_id": previous_response_id,
        "text": request.get("text") or {"format": {"type": "text"}},
        "tool_choice": request.get("tool_choice") or "auto",
        "tools": request.get("tools") or [],
        "metadata": request.get("metadata") or {},
        "usage": _responses_usage(answer.get("usage")),
        **{name: request[name] for name in _ECHOED if request.get(name) is not None},
    }


def _extras(fields: Mapping[str, Any], known: tuple[str, ...]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key not in known and value is not None}


def _output(
    choice: Mapping[str, Any], *, response_id: str, status: str, has_logprobs: bool
) -> Iterator[dict[str, Any]]:
    message = choice["message"]
    suffix = response_id.removeprefix("resp_")
    calls = message.get("tool_calls") or []
    reasoning, refusal = message.get("reasoning_content"), message.get("refusal")
    text = text_of(message.get("content"))
    if reasoning:
        yield {
            "id": f"rs_{suffix}",
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": reasoning}],
            "status": "completed",
        }
    if text or not (calls or refusal):
        logprobs = (choice.get("logprobs") or {}).get("content") or [] if has_logprobs else []
        part = {"type": "output_text", "text": text, "annotations": []}
        yield _output_message(
            {**part, "logprobs": [_token_logprob(token) for token in logprobs]},
            item_id=f"msg_{suffix}",
            status=status,
        )
    if refusal:
        part = {"type": "refusal", "refusal": refusal}
        yield _output_message(part, item_id=f"msg_{suffix}r", status=status)
    for index, call in enumerate(calls):
        function = call.get("function") or {}
        yield {
            "id": f"fc_{suffix}{index}",
            "type": "function_call",
            "call_id": call.get("id") or f"call_{suffix}{index}",
            "name": function.get("name") or "",
            "arguments": function.get("arguments") or "",
            "status": status,
        }


def _output_message(part: dict[str, Any], *, item_id: str, status: str) -> dict[str, Any]:
    return {
        "id": item_id,
        "type": "message",
        "role": "assistant",
        "content": [part],
        "status": status,
    }


def _token_logprob(token: Mapping[str, Any]) -> dict[str, Any]:
    """A token of Chat's logprobs; the Responses API allows no nulls in it."""
    top = [
        {**entry, "bytes": entry.get("bytes") or []} for entry in token.get("top_logprobs") or ()
    ]
    return {**token, "bytes": token.get("bytes") or [], "top_logprobs": top}


def _responses_usage(usage: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Usage as Responses counts it; a detail that was not reported is 0, as the types demand."""
    if not usage or usage.get("prompt_tokens") is None or usage.get("completion_tokens") is None:
        return None
    prompt, completion = usage["prompt_tokens"], usage["completion_tokens"]
    of_input = usage.get("prompt_tokens_details") or {}
    of_output = usage.get("completion_tokens_details") or {}
    return {
        "input_tokens": prompt,
        "input_tokens_details": {
            "cached_tokens": of_input.get("cached_tokens") or 0,
            "cache_write_tokens": 0,
        },
        "output_tokens": completion,
        "output_tokens_details": {"reasoning_tokens": of_output.get("reasoning_tokens") or 0},
        "total_tokens": usage.get("total_tokens") or prompt + completion,
        # of Ark: how often its built-in tools ran
        "tool_usage": None,
        "tool_usage_details": None,
    }


def answer_of_response(response: Mapping[str, Any]) -> dict[str, Any]:
    """Return a finished Response as a Chat Completions answer with one choice.

    Raises `TranslationError` for output that Chat Completions cannot hold, such as calls of tools
    that are built into the server.
    """
    message: dict[str, Any] = {"role": "assistant", "content": None}
    logprobs: list[Any] = []
    for index, item in enumerate(response["output"]):
        kind = item.get("type")
        if kind == "reasoning":
            add_reasoning(message, reasoning_text(item))
        elif kind == "message":
            logprobs += _add_text(message, item)
        elif kind == "function_call":
            message.setdefault("tool_calls", []).append(_chat_call(item))
        else:
            raise TranslationError(
                f"output[{index}] is an item of type {kind!r}, which Chat Completions does not "
                "have",
                param=f"output[{index}]",
            )
    choice: dict[str, Any] = {
        "index": 0,
        "message": message,
        "finish_reason": _finish_reason(response, message),
    }
    if logprobs:
        choice["logprobs"] = {"content": logprobs}
    choice.update({key: response[key] for key in _CHOICE_EVIDENCE if response.get(key) is not None})
    return {
        **{key: response[key] for key in _ANSWER_EVIDENCE if response.get(key) is not None},
        "id": response.get("id"),
        "object": "chat.completion",
        "created": int(response.get("created_at") or time.time()),
        "model": response.get("model"),
        "choices": [choice],
        "usage": _chat_usage(response.get("usage")),
    }


def _finish_reason(response: Mapping[str, Any], message: Mapping[str, Any]) -> str:
    if response.get("status") == "incomplete":
        reason = (response.get("incomplete_details") or {}).get("reason")
        return _FINISH.get(reason or "", "length")
    return "tool_calls" if message.get("tool_calls") else "stop"


def _add_text(message: dict[str, Any], item: Mapping[str, Any]) -> list[Any]:
    logprobs: list[Any] = []
    for part in item.get("content") or ():
        key = "refusal" if part.get("type") == "refusal" else "content"
        text = part.get("refusal" if key == "refusal" else "text") or ""
        message[key] = (message.get(key) or "") + text
        logprobs += part.get("logprobs") or ()
    return logprobs


def _chat_call(item: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": item.get("call_id") or item.get("id"),
        "type": "function",
        "function": {"name": item.get("name"), "arguments": item.get("arguments") or ""},
    }


def _chat_usage(usage: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if not usage:
        return None
    chat = {
        "prompt_tokens": usage.get("input_tokens"),
        "completion_tokens": usage.get("output_tokens"),
        "total_tokens": usage.get("total_tokens"),
    }
    for side, name in (("input", "prompt"), ("output", "completion")):
        if usage.get(f"{side}_tokens_details"):
            chat[f"{name}_tokens_details"] = usage[f"{side}_tokens_details"]
    return chat
