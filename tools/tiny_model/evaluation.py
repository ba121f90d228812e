"""Rewards on the validation questions: the templates' tools and graders, without their rollouts.

One difference: the grader of `rl_search_mcp_demo` asks a judge model, which is not there while
the model is made; here a reply is right when it contains the answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from tools.tiny_model import arithmetic, search, weather
from tools.tiny_model.dialogue import Message, answer, result
from tools.tiny_model.tokenizer import END_OF_TURN
from tools.tiny_model.workspaces import template_module, validation_samples

MAX_STEPS = 6  # requests per conversation, as in the templates' rollouts
MAX_NEW_TOKENS = 64
RIGHT, WRONG, PENALTY = 1.0, 0.0, -1.0
THOUGHT = re.compile(r"<think>\n(.*?)\n</think>\n\n", re.DOTALL)
TOOL_CALL = re.compile(
    r'<tool_call>\n\{"name": "(.*?)", "arguments": (.*)\}\n</tool_call>', re.DOTALL
)
WORKSPACES: Mapping[str, str] = {
    "weather": weather.WORKSPACE,
    "arithmetic": arithmetic.WORKSPACE,
    "search": search.WORKSPACE,
}


@dataclass
class Conversation:
    """One attempt at one validation sample."""

    sample: dict[str, Any]
    messages: list[Message]
    reward: float | None = None
    searched: bool = field(default=False)


def mean_reward(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    domain: str,
    *,
    limit: int | None = None,
    repeats: int = 1,
    temperature: float = 1.0,
) -> float:
    """Mean reward on the first `limit` validation samples; temperature 0 is greedy.

    Draws from torch's global generator.
    """
    rewards = [
        c.reward
        for c in conversations(
            model, tokenizer, domain, limit=limit, repeats=repeats, temperature=temperature
        )
    ]
    return sum(reward or 0.0 for reward in rewards) / len(rewards)


def conversations(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    domain: str,
    *,
    limit: int | None = None,
    repeats: int = 1,
    temperature: float = 1.0,
) -> list[Conversation]:
    """`repeats` graded attempts at each of the first `limit` validation samples."""
    samples = validation_samples(WORKSPACES[domain])[:limit]
    held = [Conversation(s, list(s["messages"])) for s in samples for _ in range(repeats)]
    for _ in range(MAX_STEPS):
        open_ones = [conversation for conversation in held if conversation.reward is None]
        if not open_ones:
            break
        replies = _replies(model, tokenizer, domain, open_ones, temperature)
        for conversation, text in zip(open_ones, replies, strict=True):
            _take_turn(domain, conversation, text)
    for conversation in held:
        if conversation.reward is None:
            conversation.reward = WRONG
    return held


def parsed(text: str) -> Message:
    """The message that the model's text stands for."""
    thought = THOUGHT.match(text)
    text = THOUGHT.sub("", text, count=1)
    called = TOOL_CALL.search(text)
    message = answer(text[: called.start()] if called else text, thought[1] if thought else "")
    if called:
        function = {"name": called[1], "arguments": called[2]}
        message["tool_calls"] = [{"id": "call_0", "type": "function", "function": function}]
    return message


def _replies(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    domain: str,
    held: list[Conversation],
    temperature: float,
) -> list[str]:
    prompts = [
        tokenizer.apply_chat_template(
            conversation.messages,
            tools=_tools(domain),
            add_generation_prompt=True,
            tokenize=False,
        )
        for conversation in held
    ]
    inputs = tokenizer(prompts, return_tensors="pt", padding=True, padding_side="left")
    sampling = {"do_sample": True, "temperature": temperature} if temperature else {}
    with torch.inference_mode():
        ids = model.generate(
            input_ids=inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            max_new_tokens=MAX_NEW_TOKENS,
            top_k=0 if temperature else None,
            **{"do_sample": False, **sampling},
        )
    texts = tokenizer.batch_decode(ids[:, inputs["input_ids"].shape[1] :])
    return [text.split(END_OF_TURN)[0] for text in texts]


def _tools(domain: str) -> list[dict[str, Any]] | None:
    if domain == "weather":
        tools: list[dict[str, Any]] = _weather_tool().rollout_tools
        return tools
    return [search.search_tool()] if domain == "search" else None


def _weather_tool() -> Any:
    return template_module(weather.WORKSPACE, "plugins.weather_tool")


def _take_turn(domain: str, conversation: Conversation, text: str) -> None:
    """Append the reply and, when it calls a tool, the result; else grade it."""
    message = parsed(text)
    conversation.messages.append(message)
    if not message.get("tool_calls"):
        conversation.reward = _graded(domain, conversation)
        return
    try:
        observed = _run_tool(domain, SimpleNamespace(**message["tool_calls"][0]["function"]))
    except ValueError:
        conversation.reward = PENALTY
        return
    conversation.searched = True
    conversation.messages.append(result(observed))


def _run_tool(domain: str, function: Any) -> str:
    """What the tool answers; a call that cannot be run is a ValueError."""
    try:
        if domain == "weather":
            tool = _weather_tool()
            return str(tool.run_tool_call("call_0", function.name, function.arguments))
        if domain == "search":
            web_search = template_module(search.WORKSPACE, "plugins.web_search")
            arguments = web_search.read_arguments(function)
            server = template_module(search.WORKSPACE, "plugins.search_server")
            return str(server.web_search(**arguments))
    except Exception as error:
        if type(error).__name__ != "ToolCallError":
            raise
        raise ValueError(str(error)) from error
    raise ValueError(f"{domain} has no tool")


def _graded(domain: str, conversation: Conversation) -> float:
    expected = str(conversation.sample["extra"]["answer"])
    text = conversation.messages[-1]["content"]
    if domain == "weather":
        grader = template_module(weather.WORKSPACE, "plugins.random_reward")
        is_right = grader.contains_answer(text, expected)
    elif domain == "arithmetic":
        grader = template_module(arithmetic.WORKSPACE, "plugins.exact_answer")
        is_right = grader.last_number(text) == int(expected)
    elif not conversation.searched:
        return PENALTY
    else:
        is_right = expected in text
    return RIGHT if is_right else WRONG
