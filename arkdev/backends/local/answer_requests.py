"""What a Chat Completions request asks of the policy.

A parameter is honoured or refused by name: what the policy cannot do (a format that constrains
decoding, a call that is forced) is an error and never left out without a word.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from arkdev.endpoints.event_stream import wants_usage
from arkdev.endpoints.serving.requests import (
    LIMIT_NAMES,
    RequestError,
    check_request,
    function_of,
    invalid,
)

MAX_TOP_LOGPROBS = 20
"""As in OpenAI's API."""

MIN_TEMPERATURE = 1e-4
"""But for 0. What is colder takes the most probable token as 0 does."""


@dataclass(frozen=True)
class AnswerRequest:
    """A request that has been understood."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None
    thinking: bool | None
    """None leaves it to the model's template."""
    max_new_tokens: int | None
    """At most; None: as many as the model's context has room for."""
    temperature: float
    top_p: float
    top_k: int
    repetition_penalty: float
    seed: int | None
    stop: tuple[str, ...]
    stop_token_ids: frozenset[int]
    has_logprobs: bool
    num_top_logprobs: int
    has_token_ids: bool
    has_prompt_logprobs: bool
    """As vLLM gives them: of the prompt's own tokens, by the weights at temperature 1."""
    ends_with_answer: bool
    """The last message is read as an answer of the model's own, and goes on from there."""
    is_stream: bool
    has_usage: bool
    """Of a stream: whether it ends with the usage."""
    scope: str
    """What tells the conversations of different clients apart."""


def read_request(body: object, *, seed: int | None = None) -> AnswerRequest:
    """Read a request body; sampling parameters may have their names in the contract or the API's.

    `seed` wins over the body's. Raises `RequestError`, which names the parameter.
    """
    stated = check_request(body)
    for name, value in stated.items():
        _check(name, value)
    _check_characters(stated)
    limits = [stated[name] for name in LIMIT_NAMES if name in stated]
    stop = stated.get("stop", [])
    return AnswerRequest(
        messages=[_message(message) for message in stated["messages"]],
        tools=_tools(stated),
        thinking=_thinking(stated),
        max_new_tokens=min(limits, default=None),
        temperature=float(stated.get("temperature", 1.0)),
        top_p=float(stated.get("top_p", 1.0)),
        top_k=max(0, stated.get("top_k", 0)),  # vLLM's -1 is off too
        repetition_penalty=float(stated.get("repetition_penalty", 1.0)),
        seed=stated.get("seed") if seed is None else seed,
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
        stop_token_ids=frozenset(stated.get("stop_token_ids", ())),
        has_logprobs=bool(stated.get("logprobs")) or "top_logprobs" in stated,
        num_top_logprobs=stated.get("top_logprobs", 0),
        has_token_ids=bool(stated.get("return_token_ids")),
        has_prompt_logprobs="prompt_logprobs" in stated,
        ends_with_answer=_ends_with_answer(stated),
        is_stream=bool(stated.get("stream")),
        has_usage=wants_usage(stated),
        scope=str(stated.get("prompt_cache_key") or stated.get("user") or ""),
    )


def _message(message: dict[str, Any]) -> dict[str, Any]:
    """A developer's message is what templates call a system message."""
    return {**message, "role": "system"} if message["role"] == "developer" else message


def _tools(stated: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """The tools that the model is shown: none where it is not to call any."""
    if stated.get("tool_choice") == "none":
        return None
    tools = [
        {"type": "function", "function": function_of(tool)} for tool in stated.get("tools", ())
    ]
    return tools or None


def _ends_with_answer(stated: Mapping[str, Any]) -> bool:
    if stated.get("add_generation_prompt", True):
        return False
    if stated["messages"][-1]["role"] != "assistant":
        raise invalid("add_generation_prompt", "false needs an assistant's message at the end.")
    return True


_THINKING = {"enabled": True, "disabled": False, "auto": None}


def _thinking(stated: Mapping[str, Any]) -> bool | None:
    """The contract's name, or vLLM's way to say it."""
    if "thinking" in stated:
        kind = stated["thinking"].get("type")
        if not isinstance(kind, str) or kind not in _THINKING:
            raise invalid("thinking.type", f"{kind!r} is not one of {', '.join(_THINKING)}.")
        return _THINKING[kind]
    given = stated.get("chat_template_kwargs", {})
    if not isinstance(given, dict) or set(given) - {"enable_thinking"}:
        raise invalid("chat_template_kwargs", "only `enable_thinking` can be set.")
    switch = given.get("enable_thinking")
    if not isinstance(switch, (bool, type(None))):
        raise invalid("chat_template_kwargs.enable_thinking", "expected true or false.")
    return switch


def _check(name: str, value: Any) -> None:
    if name in _READ or name in _WITHOUT_EFFECT:
        rule = _RANGES.get(name)
        if rule is not None and not rule[0](value):
            raise invalid(name, f"expected {rule[1]}, got {value!r}.")
        return
    if name not in _ONLY:
        raise RequestError(
            f"The parameter `{name}` is not known here.", code="InvalidParameter", param=name
        )
    allowed, reason = _ONLY[name]
    if not allowed(value):
        raise RequestError(
            f"The parameter `{name}` is not supported: {reason}, got {reprlib.repr(value)}.",
            code="InvalidParameter",
            param=name,
        )


def _check_characters(stated: Mapping[str, Any]) -> None:
    """Halves of surrogate pairs, which JSON can carry, are no characters to a tokenizer."""
    for name in ("messages", "tools"):
        try:
            json.dumps(stated.get(name), ensure_ascii=False, default=str).encode()
        except UnicodeEncodeError as error:
            half = error.object[error.start : error.start + 1]
            raise invalid(name, f"{half!a} is half of a character.") from None


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _are_ids(value: Any) -> bool:
    return isinstance(value, list) and all(_is_whole(item) and item >= 0 for item in value)


def _are_words(value: Any) -> bool:
    words = [value] if isinstance(value, str) else value
    return all(isinstance(word, str) and word for word in words)


_READ = frozenset(
    {
        "messages",
        "tools",
        "thinking",
        "chat_template_kwargs",
        "temperature",
        "top_p",
        "top_k",
        "repetition_penalty",
        "seed",
        "n",
        "stop",
        "stop_token_ids",
        "logprobs",
        "top_logprobs",
        "return_token_ids",
        "prompt_logprobs",
        "add_generation_prompt",
        "stream",
        "stream_options",
        "prompt_cache_key",
        "user",
        *LIMIT_NAMES,
    }
)
_WITHOUT_EFFECT = frozenset(
    {"model", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_retention"}
)
"""They say nothing about the answer."""

_RANGES: dict[str, tuple[Callable[[Any], bool], str]] = {
    # what lies outside, float32 divides into infinities
    "temperature": (lambda v: v == 0 or v >= MIN_TEMPERATURE, f"0, or {MIN_TEMPERATURE} to 2"),
    "top_p": (lambda v: v > 0, "a number above 0"),
    "repetition_penalty": (
        lambda v: _is_number(v) and 0.01 <= v <= 100,
        "a number in 0.01..100, 1 for off",
    ),
    "top_k": (lambda v: _is_whole(v) and v >= -1, "a whole number, 0 for off"),
    "stop": (_are_words, "texts that are not empty"),
    "stop_token_ids": (_are_ids, "a list of token ids"),
    "logprobs": (lambda v: isinstance(v, bool), "true or false"),
    "top_logprobs": (
        lambda v: _is_whole(v) and 0 <= v <= MAX_TOP_LOGPROBS,
        f"a whole number in 0..{MAX_TOP_LOGPROBS}",
    ),
    "return_token_ids": (lambda v: isinstance(v, bool), "true or false"),
    "prompt_logprobs": (
        lambda v: _is_whole(v) and v == 0,
        "0, for those of the prompt's own tokens",
    ),
    "add_generation_prompt": (lambda v: isinstance(v, bool), "true or false"),
    "prompt_cache_key": (lambda v: isinstance(v, str), "a text"),
    "user": (lambda v: isinstance(v, str), "a text"),
}
"""Beyond what `check_request` has checked."""

_ONLY: dict[str, tuple[Callable[[Any], bool], str]] = {
    "tool_choice": (
        lambda v: v in ("auto", "none"),
        'no call can be forced; "auto" and "none" can be chosen',
    ),
    "response_format": (
        lambda v: v.get("type") == "text",
        "decoding is not constrained; the format can only be text",
    ),
    "parallel_tool_calls": (lambda v: v is True, "the number of calls cannot be limited"),
    "frequency_penalty": (lambda v: v == 0, "there is none but repetition_penalty"),
    "presence_penalty": (lambda v: v == 0, "there is none but repetition_penalty"),
    "min_p": (lambda v: v == 0, "there are top_p and top_k"),
    "logit_bias": (lambda v: not v, "there is none"),
    "modalities": (lambda v: v == ["text"], "the policy writes text"),
    "reasoning_effort": (
        lambda v: False,
        'there is thinking = {"type": "enabled"}, "disabled" or "auto"',
    ),
}
"""Parameters that can have certain values alone, and why."""
