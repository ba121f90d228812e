"""Read a request's tools once, choose those that fit the question, and fill in the arguments."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from arkdev.endpoints.scripted.evidence import Evidence
from arkdev.endpoints.scripted.generation import (
    arguments_for,
    mentioned_members,
    wanted_properties,
)
from arkdev.endpoints.scripted.schema import Schema, checked, fits, resolve, type_of
from arkdev.endpoints.scripted.vocabulary import CJK, ENGLISH_FILLER, synonyms, topics
from arkdev.endpoints.serving.requests import function_of

MAX_PARALLEL_CALLS = 8
MAX_CACHED_TOOL_SETS = 256

_NAME_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")
_CJK_RUN = re.compile(r"[\u3400-\u9fff]+")


@dataclass(frozen=True)
class Call:
    """One tool call: the name, the arguments and the schema that they are valid for."""

    name: str
    arguments: dict[str, Any]
    schema: Schema
    root: Schema


@dataclass(frozen=True)
class Tool:
    """A tool definition, with what `score` needs worked out beforehand."""

    name: str
    root: Schema
    schema: Schema
    words: frozenset[str]
    topics: frozenset[int]
    members: tuple[str, ...]
    """Enum members of its properties."""

    def score(self, evidence: Evidence) -> float:
        """How well the tool fits the text: topics, shared words, enum members, its own name."""
        text_words = words_of(evidence.lowered)
        named = 10.0 if evidence.mentions(self.name) else 0.0
        mentioned = sum(evidence.mentions(member) for member in self.members)
        shared_topics = len(self.topics & topics(evidence.text))
        return named + 3 * mentioned + 2 * shared_topics + len(self.words & text_words)

    def calls(self, evidence: Evidence) -> list[Call]:
        """Return the call for the text, or one for each of several things that it asks about."""
        varied = self._several(evidence)
        made = []
        for fixed in varied or [{}]:
            evidence.rewind()
            arguments = arguments_for(self.schema, evidence, root=self.root, fixed=fixed)
            made.append(Call(self.name, arguments, self.schema, self.root))
        return made

    def _several(self, evidence: Evidence) -> list[dict[str, Any]]:
        properties = self.schema.get("properties") or {}
        open_names = []
        for name in wanted_properties(self.schema):
            part = resolve(properties.get(name), self.root)
            if part.get("enum"):
                members = mentioned_members(part["enum"], evidence)
                # 摄氏度 and celsius are one thing
                distinct = list({synonyms(str(m)): m for m in members}.values())
                if len(distinct) > 1:
                    return [{name: member} for member in distinct[:MAX_PARALLEL_CALLS]]
            elif type_of(part) == "string" and not part.keys() & {"const", "format", "pattern"}:
                open_names.append(name)
        if len(open_names) != 1 or evidence.quoted or not evidence.names:
            return []
        together = evidence.names[0]
        if len(together) < 2 or not self._is_name(open_names[0], together[0], evidence):
            return []
        part = properties[open_names[0]]
        fitting = [value for value in together if fits(part, value, self.root)]
        return [{open_names[0]: value} for value in fitting[:MAX_PARALLEL_CALLS]]

    def _is_name(self, name: str, first: str, evidence: Evidence) -> bool:
        """Whether the property would get a name from the text, not the whole text."""
        evidence.rewind()
        return bool(arguments_for(self.schema, evidence, root=self.root).get(name) == first)


@dataclass(frozen=True)
class ToolSet:
    """The tools of a request, in its order, and their definitions as JSON text."""

    tools: tuple[Tool, ...]
    text: str

    def best(self, evidence: Evidence) -> Tool:
        """Return the tool that fits best; of equals the first."""
        if len(self.tools) == 1:
            return self.tools[0]
        return max(self.tools, key=lambda tool: tool.score(evidence))

    def named(self, name: str) -> Tool | None:
        """Return the tool of that name."""
        return next((tool for tool in self.tools if tool.name == name), None)


def read_tools(tools: list[dict[str, Any]]) -> ToolSet:
    """Read the request's tools; equal definitions are read once. Raises `SchemaError`."""
    return _read(json.dumps(tools, ensure_ascii=False))


@lru_cache(maxsize=MAX_CACHED_TOOL_SETS)
def _read(text: str) -> ToolSet:
    return ToolSet(tuple(_tool(definition) for definition in json.loads(text)), text)


def _tool(definition: dict[str, Any]) -> Tool:
    function = function_of(definition)
    name = str(function["name"])
    root = checked(function.get("parameters") or {}, where=f"The parameters of tool `{name}`")
    schema = resolve(root, root)
    parts = [resolve(part, root) for part in (schema.get("properties") or {}).values()]
    about = f"{' '.join(_NAME_PARTS.findall(name))} {function.get('description') or ''}"
    members = [m for part in parts for m in part.get("enum") or [] if isinstance(m, str)]
    return Tool(name, root, schema, words_of(about.lower()), topics(about), tuple(members))


@lru_cache(maxsize=1024)
def words_of(lowered: str) -> frozenset[str]:
    """Return English words without fillers, by their first five letters, and Chinese bigrams."""
    words = {w[:5] for w in re.findall(r"[a-z]{2,}", lowered) if w not in ENGLISH_FILLER}
    if CJK.search(lowered):
        for run in _CJK_RUN.findall(lowered):
            words |= {run[i : i + 2] for i in range(len(run) - 1)}
    return frozenset(words)
