"""The scripted model's policy: a pure function from a request to an answer.

It calls the tool that fits the question, with arguments taken from the conversation, and answers
from the tool results; without tools it can do sums. `skill` is the probability that a decision
(a call, an answer) is right. It sees messages, tools and tool results only (decision 11).
"""

from __future__ import annotations

import json
from hashlib import blake2b
from random import Random
from typing import Any

from arkdev.endpoints.scripted import phrasing
from arkdev.endpoints.scripted.arithmetic import as_text, evaluate
from arkdev.endpoints.scripted.completion import (
    Turn,
    arguments_json,
    complete,
    estimate_prompt_tokens,
)
from arkdev.endpoints.scripted.conversation import Conversation, read_conversation
from arkdev.endpoints.scripted.evidence import Evidence
from arkdev.endpoints.scripted.generation import value_for
from arkdev.endpoints.scripted.judge import rationale, read_comparison, verdict_members
from arkdev.endpoints.scripted.mistakes import (
    altered,
    with_wrong_argument,
    with_wrong_numbers,
    wrong_result,
)
from arkdev.endpoints.scripted.schema import Schema, checked, resolve
from arkdev.endpoints.scripted.search import Search, search_state
from arkdev.endpoints.scripted.tools import Call, Tool, ToolSet, read_tools

DEFAULT_SKILL = 0.7

_MADE_UP_SHARE = 0.4
"""How many of the wrong calls are no call at all."""

_SEED_KEYS = ("messages", "tools", "tool_choice", "response_format")


def answer(body: dict[str, Any], *, seed: int, skill: float) -> dict[str, Any]:
    """Return a Chat Completions answer to `body`, the same for the same body, seed and skill.

    `body` has passed `requests.check_request`; sampling parameters in it may have the contract's
    or the wire's names. `skill` is in 0..1.
    """
    messages = body["messages"]
    conversation = read_conversation(messages)
    toolset = read_tools(body["tools"]) if body.get("tools") else None
    messages_json = canonical_messages(messages)
    digest = digest_of(messages_json, seed)
    random = Random(int(digest, 16))
    is_right = random.random() < skill

    search = search_state(conversation, toolset)
    is_due = _is_call_due(body, conversation, toolset, search)
    calls = []
    if toolset is not None and is_due:
        calls = _calls(body, conversation, toolset, search, random=random, is_right=is_right)
    names = [call.name for call in calls]
    content = None
    if not calls:
        is_right = is_right and not is_due
        content = _content(body, conversation, search, random=random, is_right=is_right)
    thinking = body.get("thinking") or {}
    turn = Turn(
        content,
        tuple((call.name, arguments_json(call.arguments)) for call in calls),
        phrasing.reasoning(conversation, names) if thinking.get("type") == "enabled" else None,
    )
    prompt_tokens = estimate_prompt_tokens(
        messages_json, len(messages), toolset.text if toolset else ""
    )
    return complete(turn, body, digest=digest, prompt_tokens=prompt_tokens)


def seed_of_request(body: dict[str, Any]) -> int:
    """Return a seed for a request that has none: a hash of what the model sees of it."""
    seen = {key: body[key] for key in _SEED_KEYS if body.get(key) is not None}
    text = json.dumps(seen, ensure_ascii=False, sort_keys=True)
    return int.from_bytes(
        blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big"
    )


def canonical_messages(messages: list[dict[str, Any]]) -> str:
    """Return the messages as JSON in which missing, null and empty are the same."""
    seen = [{key: value for key, value in message.items() if value} for message in messages]
    return json.dumps(seen, ensure_ascii=False, sort_keys=True)


def digest_of(messages_json: str, seed: int) -> str:
    """Return 16 hexadecimal digits that identify a conversation under a seed."""
    text = f"{seed}\n{messages_json}".encode("utf-8", "surrogatepass")
    return blake2b(text, digest_size=8).hexdigest()


def _is_call_due(
    body: dict[str, Any],
    conversation: Conversation,
    toolset: ToolSet | None,
    search: Search | None,
) -> bool:
    choice = body.get("tool_choice") or "auto"
    if toolset is None or choice == "none":
        return False
    is_more_to_find = search is not None and search.query is not None
    return choice != "auto" or not conversation.results or is_more_to_find


def _calls(
    body: dict[str, Any],
    conversation: Conversation,
    toolset: ToolSet,
    search: Search | None,
    *,
    random: Random,
    is_right: bool,
) -> list[Call]:
    choice = body.get("tool_choice") or "auto"
    evidence = Evidence(conversation.question, earlier=conversation.earlier)
    tool = _chosen(toolset, choice, evidence)
    if search is not None and search.query is not None and tool is search.tool:
        evidence = Evidence(search.query)
    calls = tool.calls(evidence)
    if body.get("parallel_tool_calls") is False:
        calls = calls[:1]
    if is_right:
        return calls
    if choice == "auto" and random.random() < _MADE_UP_SHARE:
        return []
    at = random.randrange(len(calls))
    wrong = with_wrong_argument(calls[at], random)
    if wrong is None:
        # nothing to get wrong in the arguments; a forced call stays as it is
        return calls if choice != "auto" else []
    return [*calls[:at], wrong, *calls[at + 1 :]]


def _chosen(toolset: ToolSet, choice: object, evidence: Evidence) -> Tool:
    if isinstance(choice, dict):
        name = (choice.get("function") or choice).get("name", "")
        return toolset.named(name) or toolset.best(evidence)
    return toolset.best(evidence)


def _content(
    body: dict[str, Any],
    conversation: Conversation,
    search: Search | None,
    *,
    random: Random,
    is_right: bool,
) -> str:
    response_format = body.get("response_format") or {}
    if response_format.get("type") == "json_schema":
        return _json_by_schema(
            response_format["json_schema"], conversation, random=random, is_right=is_right
        )
    sentence, number = _sentence(conversation, search, random=random, is_right=is_right)
    if response_format.get("type") == "json_object":
        value = json.loads(number) if number else sentence
        return json.dumps({"answer": value}, ensure_ascii=False)
    return sentence


def _sentence(
    conversation: Conversation, search: Search | None, *, random: Random, is_right: bool
) -> tuple[str, str | None]:
    """The answer as a sentence and, for a sum, as a number."""
    if search is not None and search.found:
        return _searched(conversation, search, random=random, is_right=is_right), None
    if conversation.results:
        right = phrasing.restated(conversation)
        if is_right:
            return right, None
        wrong = with_wrong_numbers(right, random) if random.random() < 0.5 else None
        return wrong or phrasing.left_out(conversation, random), None
    number = sum_in(conversation.question)
    if number is not None:
        said = number if is_right else wrong_result(number, random)
        return phrasing.result_sentence(conversation, said), said
    if is_right:
        return phrasing.echoed(conversation), None
    return phrasing.made_up(conversation, random), None


def _searched(conversation: Conversation, search: Search, *, random: Random, is_right: bool) -> str:
    """What the searches found; a wrong answer stops one fact too early, or leaves all out."""
    if is_right and not search.is_complete:
        return phrasing.restated(conversation)
    known = search.found if is_right or not search.is_complete else search.found[:-1]
    if not known or (not is_right and random.random() < 0.5):
        return phrasing.left_out(conversation, random)
    return phrasing.searched(conversation, known)


def sum_in(text: str) -> str | None:
    """Return the result of the sum that `text` asks for, None when it asks for none."""
    expression = Evidence(text).expression
    value = evaluate(expression) if expression else None
    return None if value is None else as_text(value)


def _json_by_schema(
    json_schema: dict[str, Any], conversation: Conversation, *, random: Random, is_right: bool
) -> str:
    root = checked(json_schema["schema"], where="response_format.json_schema.schema")
    judgement = _judgement(root, conversation, is_right=is_right)
    if judgement is not None:
        return json.dumps(value_for(root, Evidence(judgement), root=root), ensure_ascii=False)
    number = None if conversation.results else sum_in(conversation.question)
    known = " ".join(result.text for result in conversation.results) or number
    text = f"{known} {conversation.question}" if known else conversation.question
    value = value_for(root, Evidence(text, earlier=conversation.earlier), root=root)
    if not is_right:
        other = altered(value, resolve(root, root), root, random)
        value = value if other is None else other
    return json.dumps(value, ensure_ascii=False)


def _judgement(root: Schema, conversation: Conversation, *, is_right: bool) -> str | None:
    """A judge's verdict with its reason; None when the request is not a judge's."""
    members = verdict_members(resolve(root, root), root)
    comparison = read_comparison(conversation.question) if members else None
    if members is None or comparison is None:
        return None
    matched = comparison.matched()
    verdict = members[0] if (matched is not None) == is_right else members[1]
    return rationale(verdict, matched, is_chinese=conversation.is_chinese)
