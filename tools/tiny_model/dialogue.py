"""One generated conversation, and the behaviours that a mixture draws from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tools.tiny_model.workspaces import held_out_prompts

Message = dict[str, Any]

THINKING_SHARE = 0.08  # dialogues with reasoning, so that it is there when it is asked for
RIGHT = "right"


@dataclass(frozen=True)
class Dialogue:
    """What the model is trained on: its own turns in `messages`; the rest is given."""

    messages: list[Message]
    tools: list[dict[str, Any]] = field(default_factory=list)
    thinking: bool = False


class HeldOutError(Exception):
    """A question of a validation file is among the generated ones."""


def is_held_out(text: str) -> bool:
    """Whether `text` is a question that the model is measured on."""
    return text in held_out_prompts()


def check_held_out(dialogue: Dialogue) -> None:
    """Raise HeldOutError if the dialogue asks a question of a validation file."""
    for message in dialogue.messages:
        if message["role"] == "user" and is_held_out(message["content"]):
            raise HeldOutError(f"held out, but generated: {message['content']!r}")


def question(text: str) -> Message:
    """A user's turn."""
    return {"role": "user", "content": text}


def answer(text: str, thought: str = "") -> Message:
    """The model's last turn."""
    return {"role": "assistant", "content": text, "reasoning_content": thought}


def call(name: str, arguments: Mapping[str, Any], thought: str = "") -> Message:
    """The model's turn that calls one tool."""
    function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
    tool_call = {"id": "call_0", "type": "function", "function": function}
    return {
        "role": "assistant",
        "content": None,
        "reasoning_content": thought,
        "tool_calls": [tool_call],
    }


def result(text: str) -> Message:
    """What the tool answered."""
    return {"role": "tool", "tool_call_id": "call_0", "content": text}


def chance(rng: Random, share: float) -> bool:
    """True in `share` of the cases."""
    return rng.random() < share
