"""Read what the scripted model may see of a request: messages and tool results (decision 11)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ToolResult:
    """One tool message since the last user message, with the arguments of its call if known."""

    text: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Conversation:
    """`turn` counts assistant messages; `earlier` is what the user said before `question`."""

    question: str
    earlier: str
    system: str
    results: tuple[ToolResult, ...]
    turn: int

    @property
    def is_chinese(self) -> bool:
        """Whether the user writes Chinese."""
        text = self.question
        return not text.isascii() and any("\u3400" <= c <= "\u9fff" for c in text)


def text_of(content: object) -> str:
    """Return the text of a message's content: a string, a part, a list of parts or null."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        return text_of(content.get("text"))
    if isinstance(content, list):
        return "\n".join(text for part in content if (text := text_of(part)))
    return ""


def read_conversation(messages: list[dict[str, Any]]) -> Conversation:
    """Read `messages`; without any user message, the last message is the question."""
    last_user = _last_user(messages)
    said = [text_of(m.get("content")) for m in messages[:last_user] if m["role"] == "user"]
    system = [text_of(m.get("content")) for m in messages if m["role"] in ("system", "developer")]
    return Conversation(
        question=text_of(messages[last_user].get("content")),
        earlier="\n".join(said),
        system="\n".join(system),
        results=_results(messages[last_user + 1 :]),
        turn=sum(m["role"] == "assistant" for m in messages),
    )


def _last_user(messages: list[dict[str, Any]]) -> int:
    for index in range(len(messages) - 1, -1, -1):
        if messages[index]["role"] == "user":
            return index
    return len(messages) - 1


def _results(messages: list[dict[str, Any]]) -> tuple[ToolResult, ...]:
    calls: dict[object, str] = {}
    results = []
    for message in messages:
        for call in message.get("tool_calls") or []:
            calls[call.get("id")] = (call.get("function") or {}).get("arguments") or ""
        if message["role"] == "tool":
            arguments = calls.get(message.get("tool_call_id"), "")
            results.append(ToolResult(text_of(message.get("content")), _decode(arguments)))
    return tuple(results)


def _decode(arguments: object) -> dict[str, Any]:
    """Arguments that are not a JSON object tell nothing about the result."""
    if isinstance(arguments, dict):
        return arguments
    try:
        decoded = json.loads(arguments) if isinstance(arguments, str) else None
    except ValueError:
        return {}
    return decoded if isinstance(decoded, dict) else {}
