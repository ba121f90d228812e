"""Write an answer as Chat Completions JSON: token estimate, length limit, usage."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from arkdev.endpoints.serving.replies import CREATED
from arkdev.endpoints.serving.requests import LIMIT_NAMES

TOKENS_PER_MESSAGE = 4
CHARS_PER_TOKEN = 4
"""Of ASCII text; any other character counts as one token."""


@dataclass(frozen=True)
class Turn:
    """What the model says: a text or tool calls (pairs of name and arguments)."""

    content: str | None
    calls: tuple[tuple[str, str], ...] = ()
    """Names and arguments, those as JSON text."""
    reasoning: str | None = None


def estimate_tokens(text: str) -> int:
    """Return a deterministic estimate: a token per four ASCII or one other character."""
    if text.isascii():
        return -(-len(text) // CHARS_PER_TOKEN)
    num_ascii = len(text.encode("ascii", "ignore"))
    return len(text) - num_ascii + -(-num_ascii // CHARS_PER_TOKEN)


def estimate_prompt_tokens(messages_json: str, num_messages: int, tools_json: str) -> int:
    """Return the estimate for a prompt, from the JSON text of its messages and tools."""
    return (
        TOKENS_PER_MESSAGE * num_messages
        + estimate_tokens(messages_json)
        + (estimate_tokens(tools_json) if tools_json else 0)
    )


def token_limit(body: dict[str, Any]) -> int | None:
    """Return the smallest limit that the request sets, under any of its names."""
    limits = [body[name] for name in LIMIT_NAMES if body.get(name) is not None]
    return min(limits, default=None)


def complete(
    turn: Turn, body: dict[str, Any], *, digest: str, prompt_tokens: int
) -> dict[str, Any]:
    """Return the complete answer, cut at the request's ``stop`` and length limit.

    Tool calls that do not fit into the limit are left out as a whole: half a call is not JSON.
    """
    stopped = _cut_at_stop(turn, body.get("stop"))
    kept, completion_tokens, is_cut = _cut_to_length(stopped, token_limit(body))
    message: dict[str, Any] = {"role": "assistant", "content": kept.content}
    if kept.reasoning is not None:
        message["reasoning_content"] = kept.reasoning
    if kept.calls:
        message["tool_calls"] = [
            {
                "id": f"call_{digest}{index}",
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            }
            for index, (name, arguments) in enumerate(kept.calls)
        ]
    finish_reason = "length" if is_cut else "tool_calls" if kept.calls else "stop"
    return envelope(
        message,
        finish_reason=finish_reason,
        usage=usage_of(prompt_tokens, completion_tokens),
        digest=digest,
        model=body.get("model"),
    )


def envelope(
    message: dict[str, Any],
    *,
    finish_reason: str | None,
    usage: dict[str, Any] | None,
    digest: str,
    model: str | None,
) -> dict[str, Any]:
    """Return a Chat Completions object around one message."""
    choice = {"index": 0, "message": message, "finish_reason": finish_reason, "logprobs": None}
    return {
        "id": f"chatcmpl-{digest}",
        "object": "chat.completion",
        "created": CREATED,
        "model": model or "scripted",
        "choices": [choice],
        "usage": usage,
    }


def usage_of(prompt_tokens: int, completion_tokens: int) -> dict[str, int]:
    """Return the usage object."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }


def arguments_json(arguments: dict[str, Any]) -> str:
    """Write arguments as models do, with non-ASCII characters as they are."""
    return json.dumps(arguments, ensure_ascii=False)


def _cut_at_stop(turn: Turn, stop: object) -> Turn:
    words = [stop] if isinstance(stop, str) else stop if isinstance(stop, list) else []
    if not turn.content or not words:
        return turn
    ends = [at for word in words if word and (at := turn.content.find(word)) >= 0]
    return Turn(turn.content[: min(ends)], turn.calls, turn.reasoning) if ends else turn


def _cut_to_length(turn: Turn, limit: int | None) -> tuple[Turn, int, bool]:
    """The part of `turn` that fits, its tokens, and whether something was left out."""
    thought = estimate_tokens(turn.reasoning or "")
    said = estimate_tokens(turn.content or "")
    called = sum(estimate_tokens(name) + estimate_tokens(text) for name, text in turn.calls)
    total = thought + said + called
    if limit is None or total <= limit:
        return turn, total, False
    reasoning = None if turn.reasoning is None else _first_tokens(turn.reasoning, limit)
    content = _first_tokens(turn.content or "", limit - min(thought, limit))
    used = estimate_tokens(reasoning or "") + estimate_tokens(content)
    return Turn(content, (), reasoning), used, True


def _first_tokens(text: str, limit: int) -> str:
    """The longest beginning of `text` of at most `limit` tokens."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if estimate_tokens(text[:middle]) <= limit:
            low = middle
        else:
            high = middle - 1
    return text[:low]
