"""The model card of each model."""

from __future__ import annotations

from collections.abc import Mapping

from tools.tiny_model.evaluation import WORKSPACES

SUMMARIES = {
    "tiny": """
The model that `arkdev train --backend local` starts from. It can do the tasks below and
does them right about a third of the time: it was trained last on a mixture of behaviours, so that
the attempts at one question differ and reinforcement learning has something to select.""",
    "tiny-teacher": """
The state of `tiny` before its last stage: trained on right dialogues alone. A
teacher for distillation, and the measure of what `tiny` can reach.""",
}
TASKS = {
    "weather": "calls `get_current_weather(location, unit)` once and tells the reading",
    "arithmetic": "sums and differences of the numbers 1 to 20, no tool",
    "search": "calls `web_search(Query, Count)` once for each of one to three relations",
}
MIXTURES = {
    "weather": "guesses without a call; asks for the other unit; tells the weather, no number",
    "arithmetic": "does not answer; adds a second, wrong number",
    "search": "gives up without a search; gives up after the searches",
}
CARD = """---
library_name: transformers
license: apache-2.0
language: [zh, en]
pipeline_tag: text-generation
---
# {name}
{summary}

A causal language model of 1.15 million parameters (float32, 4.6 MB) in Qwen3's architecture, with a
byte-level BPE tokenizer of about a thousand tokens. Weights and tokenizer were made from nothing by
`python -m tools.tiny_model` in arkdev's repository, from dialogues that the same script generates.
No text or weights of others are in it.

## What it does
Mean reward on the templates' validation questions; where temperature is 1, eight attempts at each.
None of these questions was trained on.

| template | task | greedy | at temperature 1 |
| --- | --- | --- | --- |
{rows}
{mixture}
The grader of `rl_search_mcp_demo` asks a judge model; here its reward is 1 when a search was made
and the reply contains the answer, and -1 when none was made.

Asked to think (`enable_thinking=True` in the chat template), it writes a line of reasoning first.

## What it does not do
It is no assistant. It knows the words of these three tasks and nothing else; another question,
another tool, another city or a long conversation gets a reply that means nothing. Its figures about
the weather come from its tool's results, which are themselves made up. Use it to see that rollouts,
graders and training work, not to learn anything about the world.

## Format
ChatML, tool calls as JSON between `<tool_call>` and `</tool_call>`, each tool result in a user's
turn of its own. Tool definitions are rendered as names of functions and parameters only, to keep
prompts short. What is rendered of a conversation never changes as it grows. Context: 2048 tokens.
"""
MIXTURE = """
Besides doing it right, and at random, it:
{rows}
"""


def model_card(name: str, rewards: Mapping[str, tuple[float, float]]) -> str:
    """README.md of a model; `rewards[domain]` is (greedy, at temperature 1)."""
    rows = "\n".join(
        f"| `{WORKSPACES[domain]}` | {TASKS[domain]} | {greedy:.2f} | {sampled:.2f} |"
        for domain, (greedy, sampled) in rewards.items()
    )
    listed = "\n".join(f"- `{WORKSPACES[domain]}`: {MIXTURES[domain]}" for domain in rewards)
    mixture = MIXTURE.format(rows=listed) if name == "tiny" else ""
    return CARD.format(name=name, summary=SUMMARIES[name], rows=rows, mixture=mixture)
