"""Answer a question by several searches, each with a name that the one before found.

"潮音灯塔的建造者的故乡是哪座岛？" goes from a name (潮音灯塔) along relations (建造者, 故乡).
Results that say "建造者是沈听雪" lead to the next query, "沈听雪的故乡". They may be text or JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from arkdev.endpoints.scripted.conversation import Conversation
from arkdev.endpoints.scripted.evidence import Evidence
from arkdev.endpoints.scripted.tools import Tool, ToolSet
from arkdev.endpoints.scripted.vocabulary import topics

MAX_SEARCHES = 4
"""A model that has not found it by then answers with what it has."""

MAX_NAME_CHARS = 20
MAX_RELATION_CHARS = 8
MAX_RELATIONS = 4

_SEARCH_TOPICS = topics("search")
_ASKING = re.compile(r"^(?:请问|请|帮我|告诉我|搜索|搜一下|查一下|查询|我想知道)+[：:，,]?")
_ENDING = re.compile(r"(?:分别)?(?:是|在|有|叫|位于)?(?:谁|什么|哪|几|多少|何)[^的]*$|[？?。！!]+$")
_CLAUSE = re.compile(r"[，。；,;！!？?、\n]")


@dataclass(frozen=True)
class Search:
    """How far the tool results since the last user message lead."""

    query: str | None
    """What to search for next; None when everything is found or there is no point in going on."""
    found: tuple[tuple[str, str, str], ...]
    """(name, relation, value), from the question's name on."""
    is_complete: bool
    """Whether the last value answers the question."""
    tool: Tool
    """The tool that searches."""


def search_state(conversation: Conversation, toolset: ToolSet | None) -> Search | None:
    """Return the state of a question that takes searches, None for any other request."""
    chain = chain_of(conversation.question) if toolset is not None else None
    if toolset is None or chain is None:
        return None
    tool = toolset.best(Evidence(conversation.question))
    if not tool.topics & _SEARCH_TOPICS:
        return None
    name, *relations = chain
    texts = [text for result in conversation.results for text in _texts(result.text)]
    found: list[tuple[str, str, str]] = []
    for relation in relations:
        value = stated(name, relation, texts)
        if value is None:
            query = _next_query(name, relation, conversation)
            return Search(query, tuple(found), is_complete=False, tool=tool)
        found.append((name, relation, value))
        name = value
    return Search(None, tuple(found), is_complete=True, tool=tool)


def _next_query(name: str, relation: str, conversation: Conversation) -> str | None:
    """The relation of the name; the name alone when that has been tried."""
    if len(conversation.results) >= MAX_SEARCHES:
        return None
    tried = {str(v) for result in conversation.results for v in result.arguments.values()}
    return next((q for q in (f"{name}的{relation}", name) if q not in tried), None)


def chain_of(question: str) -> list[str] | None:
    """Return the name and the relations that a Chinese question asks for, None when it has none.

    >>> chain_of("请问潮音灯塔的建造者的故乡是哪座岛？")
    ['潮音灯塔', '建造者', '故乡']
    """
    text = _ENDING.sub("", _ASKING.sub("", "".join(question.split())))
    parts = text.split("的")
    if _CLAUSE.search(text) or not 2 <= len(parts) <= 1 + MAX_RELATIONS or not all(parts):
        return None
    if len(parts[0]) > MAX_NAME_CHARS or max(map(len, parts[1:])) > MAX_RELATION_CHARS:
        return None
    return parts


def stated(name: str, relation: str, texts: Sequence[str]) -> str | None:
    """Return what the texts say the relation of the name is; one that begins with it counts most.

    >>> stated("沈听雪", "故乡", ["潮音书院的建造者是沈听雪。", "沈听雪的故乡是白鹭岛，未婚。"])
    '白鹭岛'
    """
    value = re.compile(
        re.escape(relation)
        + r"\s*(?:是|为|叫|在|：|:)\s*([^\s，。；、,;:：！!？?\"“”（）()]{1,20})"
    )
    near = sorted((at, index) for index, text in enumerate(texts) if (at := text.find(name)) >= 0)
    for at, index in near:
        if match := value.search(texts[index], at):
            return match[1]
    return None


def _texts(result: str) -> Iterator[str]:
    """The strings of a JSON result, or the result as it is."""
    try:
        value = json.loads(result)
    except ValueError:
        value = result
    return _strings(value)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _strings(part)
