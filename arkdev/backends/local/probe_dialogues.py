"""Dialogues that templates are tried with: each shows one thing that templates do differently."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_TOOLS = (
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather in a city.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
            },
        },
    },
)


@dataclass(frozen=True)
class Dialogue:
    """A conversation whose answers are those of a model.

    Several with one `group` have their beginning in common: branches of one tree.
    """

    name: str
    messages: tuple[dict[str, Any], ...]
    tools: tuple[dict[str, Any], ...] | None = None
    thinking: bool | None = None
    group: str = ""
    num_given: int = 1
    """Messages at the beginning that no model was asked for."""
    sampled: tuple[tuple[int, ...], ...] | None = None
    """The ids of the answers as they were sampled; None: not known."""

    @property
    def answers(self) -> list[int]:
        """Where the model's answers stand."""
        return [
            index
            for index, message in enumerate(self.messages)
            if index >= self.num_given and message["role"] == "assistant"
        ]


def _says(role: str, content: str, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def _calls(*cities: str, content: str | None = None, **more: Any) -> dict[str, Any]:
    calls = [
        {
            "id": f"call_{city.lower()}",
            "type": "function",
            "function": {"name": "get_weather", "arguments": f'{{"city": "{city}"}}'},
        }
        for city in cities
    ]
    return {"role": "assistant", "content": content, "tool_calls": calls, **more}


def _result(city: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"call_{city.lower()}", "content": content}


_SYSTEM = _says("system", "You are a helpful assistant.")
_QUESTION = _says("user", "How is the weather in Oslo?")
_THANKS = _says("user", "Thanks. And tomorrow?")
_ANSWER = _says("assistant", "It is 7 degrees and rainy in Oslo.")
_LATER = _says("assistant", "I only know about today.")


def _group(name: str, *branches: Sequence[dict[str, Any]]) -> tuple[Dialogue, ...]:
    start = (_SYSTEM, _QUESTION, _calls("Oslo"), _result("Oslo", '{"celsius": 7}'))
    return tuple(
        Dialogue(f"{name} {number}", (*start, *branch), tools=_TOOLS, group=name)
        for number, branch in enumerate(branches, 1)
    )


PROBES = (
    Dialogue("turns", (_SYSTEM, _QUESTION, _ANSWER, _THANKS, _LATER)),
    Dialogue("no system message", (_QUESTION, _ANSWER, _THANKS, _LATER)),
    Dialogue(
        "tool calls",
        (
            *(_SYSTEM, _QUESTION, _calls("Oslo"), _result("Oslo", '{"celsius": 7}')),
            *(_calls("Bergen"), _result("Bergen", '{"celsius": 5}'), _ANSWER),
        ),
        tools=_TOOLS,
    ),
    Dialogue(
        "text beside a tool call",
        (_QUESTION, _calls("Oslo", content="Let me look."), _result("Oslo", "rain"), _ANSWER),
        tools=_TOOLS,
    ),
    Dialogue(
        "parallel tool results",
        (
            *(_SYSTEM, _QUESTION, _calls("Oslo", "Bergen")),
            *(_result("Oslo", '{"celsius": 7}'), _result("Bergen", '{"celsius": 5}')),
            *(_ANSWER, _THANKS, _LATER),
        ),
        tools=_TOOLS,
    ),
    Dialogue(
        "reasoning in a tool round",
        (
            *(_QUESTION, _calls("Oslo", reasoning_content="I have to look that up.")),
            *(_result("Oslo", "rain"), {**_ANSWER, "reasoning_content": "It rains."}),
        ),
        tools=_TOOLS,
    ),
    Dialogue(
        "reasoning before a new question",
        (
            *(_SYSTEM, _QUESTION, {**_ANSWER, "reasoning_content": "It rains there."}),
            *(_THANKS, {**_LATER, "reasoning_content": "I have no forecast."}),
        ),
    ),
    *_group(
        "branches",
        (_ANSWER, _THANKS, _LATER),
        (_calls("Bergen"), _result("Bergen", '{"celsius": 5}'), _ANSWER),
    ),
)
"""Some templates refuse some of them: Llama 3's takes one tool call at a time."""
