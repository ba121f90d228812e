"""The questions of `rl_search_mcp_demo`: one search for each relation of the chain.

Three in ten dialogues are about the template's world, the others about worlds that the same
function makes from other seeds: there the same name leads to another one, so it has to be read
from what the search found.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from random import Random
from types import ModuleType
from typing import Any

from tools.tiny_model.dialogue import (
    THINKING_SHARE,
    Dialogue,
    Message,
    answer,
    call,
    chance,
    is_held_out,
    question,
    result,
)
from tools.tiny_model.workspaces import template_module

WORKSPACE = "rl_search_mcp_demo"
TOOL = "web_search"
OWN_WORLD_SHARE = 0.3
NUM_OTHER_WORLDS = 400
# how often a chain is asked that ends in a person's name, which is the hardest to copy
PERSON_WEIGHT = 2.0
PERSONS = ("建造者", "老师")
OTHER_ENDINGS = ("？", "是什么？", "是哪个？")
OTHER_ENDING_SHARE = 0.15

# the mixture: whether to search at all, and whether to go on to the end of the chain
SEARCHES_SHARE = 0.85
READS_SHARE = 0.5


@dataclass(frozen=True)
class World:
    """facts[name][relation] is another name; documents[name] is what the search finds."""

    facts: dict[str, dict[str, str]]
    documents: dict[str, str]
    questions: tuple[tuple[str, tuple[str, ...]], ...]


def words() -> list[str]:
    """The words that are worth a token."""
    corpus = _corpus()
    endings = template_module(WORKSPACE, "data.make_data").ENDINGS
    listed = [
        *corpus.ISLANDS,
        *corpus.PRODUCTS,
        *corpus.MONTHS,
        *corpus.GIVEN_NAMES,
        *corpus.SURNAMES,
    ]
    listed += [*corpus.TRADES, *corpus.SITES, *corpus.KINDS, *endings]
    # sorted: words are drawn from this list, so its order has to be the same on every run
    listed += sorted(set(endings.values()))
    listed += ["建成于云历", "是一位", "是云屿群岛中的一座岛", "出自云屿群岛", "平时很少见"]
    listed += ['{"Result": {"ResultCount": ', ', "WebResults": [', '{"Title": "', '", "Url": "']
    listed += ["https://yunyu.example/", '", "Snippet": "', '"}]}}', '", "Count": ', "}}"]
    return [*listed, TOOL, "Query", "Count", "年", "答案是", "不知道", "先搜", "再搜"]


def dialogue(rng: Random, *, is_mixture: bool) -> Dialogue:
    """One question with its searches; right, or as a drawn behaviour has it."""
    own = chance(rng, OWN_WORLD_SHARE)
    world = own_world() if own else _world(rng.randrange(NUM_OTHER_WORLDS))
    name, chain, text = _drawn_question(rng, world)
    thinking = chance(rng, THINKING_SHARE)
    messages = [question(text)]
    if is_mixture and not chance(rng, SEARCHES_SHARE):
        messages.append(answer("不知道。", "知道了。" if thinking else ""))
    else:
        messages += _searches(world, name, chain, thinking)
        reads = not is_mixture or chance(rng, READS_SHARE)
        text = f"答案是{_follow(world, name, chain)}。" if reads else "不知道。"
        messages.append(answer(text, "知道了。" if thinking else ""))
    return Dialogue(messages, tools=[search_tool()], thinking=thinking)


def search_tool() -> dict[str, Any]:
    """The definition of web_search, as the rollout sends it."""
    tool: dict[str, Any] = template_module(WORKSPACE, "plugins.web_search").search_tool
    return tool


def found(name: str, text: str) -> str:
    """What plugins/search_server.py answers when it finds one document."""
    results = [{"Title": name, "Url": f"https://yunyu.example/{name}", "Snippet": text}]
    shown = {"Result": {"ResultCount": 1, "WebResults": results}}
    return json.dumps(shown, ensure_ascii=False)


def person(rng: Random) -> str:
    """A name as a world may have it."""
    return rng.choice(_corpus().SURNAMES) + rng.choice(_corpus().GIVEN_NAMES)


def _searches(world: World, name: str, chain: tuple[str, ...], thinking: bool) -> list[Message]:
    messages = []
    for number, relation in enumerate(chain):
        thought = f"{'再搜' if number else '先搜'}{name}。" if thinking else ""
        messages.append(call(TOOL, {"Query": name, "Count": 1}, thought))
        messages.append(result(found(name, world.documents[name])))
        name = world.facts[name][relation]
    return messages


def _follow(world: World, name: str, chain: tuple[str, ...]) -> str:
    for relation in chain:
        name = world.facts[name][relation]
    return name


def _drawn_question(rng: Random, world: World) -> tuple[str, tuple[str, ...], str]:
    weights = [PERSON_WEIGHT if chain[-1] in PERSONS else 1.0 for _, chain in world.questions]
    while True:
        ((name, chain),) = rng.choices(world.questions, weights)
        text = template_module(WORKSPACE, "data.make_data").make_question(name, chain)
        if chance(rng, OTHER_ENDING_SHARE):
            text = "的".join([name, *chain]) + rng.choice(OTHER_ENDINGS)
        if not is_held_out(text):
            return name, chain, text


def _corpus() -> ModuleType:
    return template_module(WORKSPACE, "plugins.search_corpus")


def own_world() -> World:
    """The template's world."""
    return _world(_corpus().SEED)


@cache
def _world(seed: int) -> World:
    """A world as the template makes it from `seed`."""
    corpus, data = _corpus(), template_module(WORKSPACE, "data.make_data")
    before = corpus.SEED
    corpus.SEED = seed
    try:
        made = corpus.make_world.__wrapped__()
    finally:
        corpus.SEED = before
    questions = tuple(
        (name, chain)
        for name, relations in made.facts.items()
        for chain in data.CHAINS[next(iter(relations))]
    )
    return World(made.facts, dict(made.documents), questions)
