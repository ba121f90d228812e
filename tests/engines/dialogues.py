"""What a model that can do everything would answer to the check.

The tiny model learns these by heart, so that a server's tool parser, schema and store have
something to work on. Plays the server's part in each check to learn what it asks.
"""

from __future__ import annotations

import json
from typing import Any

from arkdev.endpoints.capability_check.checks import CHECKS
from arkdev.endpoints.capability_check.records import Exchange, Request

ANSWERS = (
    ("one word: hello", "Hello"),
    ("capital of France", '{"city": "Paris", "is_capital": true}'),
    ("one word: ok", "Ok"),
    ("What is the code word?", "Plum"),
    ("Count from one", "One, two, three, four, five"),
)
"""(part of the question, the answer in words)."""

WEATHER_ANSWER = "It is 31 degrees"


def dialogues_of_check() -> list[dict[str, Any]]:
    """Every dialogue of the check: ``messages``, ``tools`` and the ``answer``, a message."""
    dialogues = []
    for _, make_check in CHECKS:
        check = make_check("tiny")
        heard: list[dict[str, Any]] = []
        try:
            request = next(check)
            while True:
                messages, tools = _messages(request, heard), request.body.get("tools")
                answer = _answer(messages)
                dialogues.append({"messages": messages, "tools": tools, "answer": answer})
                heard = [*messages, answer]
                request = check.send(exchange_with(answer))
        except StopIteration:
            pass
    return dialogues


def exchange_with(answer: dict[str, Any]) -> Exchange:
    """Bring `answer` in a body that is a chat and a Responses answer at once."""
    choice = {"index": 0, "message": answer, "finish_reason": "stop"}
    return Exchange(200, {"id": "r1", "choices": [choice], "output": []})


def _messages(request: Request, heard: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if "messages" in request.body:
        messages: list[dict[str, Any]] = request.body["messages"]
        return messages
    history = heard if "previous_response_id" in request.body else []
    return [*history, {"role": "user", "content": request.body["input"]}]


def _answer(messages: list[dict[str, Any]]) -> dict[str, Any]:
    last = messages[-1]
    if last["role"] == "tool":
        return {"role": "assistant", "content": WEATHER_ANSWER}
    words = [answer for part, answer in ANSWERS if part in last["content"]]
    if words:
        return {"role": "assistant", "content": words[0]}
    cities = [city for city in ("Paris", "London") if city in last["content"]]
    calls = [
        {
            "id": f"call_{city}",
            "type": "function",
            "function": {"name": "get_weather", "arguments": json.dumps({"location": city})},
        }
        for city in cities
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}
