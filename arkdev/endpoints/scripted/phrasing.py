"""The sentences of the scripted model, in the language of the question."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from arkdev.endpoints.scripted.conversation import Conversation, ToolResult

MAX_QUESTION_CHARS = 40
MAX_SUBJECT_CHARS = 40

_MADE_UP = {
    True: ("今天天气不错，适合出门。", "应该和昨天差不多。", "这个我知道，一切正常。"),
    False: (
        "It should be about the same as yesterday.",
        "Everything looks normal there.",
        "It is pleasant today, nothing special.",
    ),
}
_LEFT_OUT = {
    True: ("我查到了，不过结果不太清楚。", "已经查询完毕。", "查询没有得到有用的结果。"),
    False: (
        "I looked it up, but the result is not clear.",
        "The lookup is done.",
        "The tool did not give anything useful.",
    ),
}
_UNKNOWN = {True: "我不知道。", False: "I don't know."}


def restated(conversation: Conversation) -> str:
    """Say all that the tools returned."""
    is_chinese = conversation.is_chinese
    facts = [_fact(result, is_chinese=is_chinese) for result in conversation.results]
    if is_chinese:
        return f"根据查询结果，{'；'.join(facts)}。".replace("。。", "。")
    return f"According to the tool, {'; '.join(facts)}.".replace("..", ".")


def _fact(result: ToolResult, *, is_chinese: bool) -> str:
    text = _plain(result.text, is_chinese=is_chinese)
    subject = next((v for v in result.arguments.values() if isinstance(v, str)), "")
    if not subject or len(subject) > MAX_SUBJECT_CHARS or subject in text:
        return text
    return f"{subject}：{text}" if is_chinese else f"{subject}: {text}"


def _plain(text: str, *, is_chinese: bool) -> str:
    """A JSON result as words, its numbers as they are written; any other result as it is."""
    try:
        value = json.loads(text, parse_int=str, parse_float=str)
    except ValueError:
        return " ".join(text.split())
    return _spoken(value, is_chinese=is_chinese)


def _spoken(value: Any, *, is_chinese: bool) -> str:
    comma, colon = ("，", "：") if is_chinese else (", ", ": ")
    if isinstance(value, dict):
        return comma.join(
            f"{k}{colon}{_spoken(v, is_chinese=is_chinese)}" for k, v in value.items()
        )
    if isinstance(value, list):
        return comma.join(_spoken(item, is_chinese=is_chinese) for item in value)
    if isinstance(value, str):
        return " ".join(value.split())
    return json.dumps(value)


def result_sentence(conversation: Conversation, number: str) -> str:
    """Give the result of a sum, and no other number."""
    if asks_for_bare_answer(conversation):
        return number
    return f"答案是 {number}。" if conversation.is_chinese else f"The answer is {number}."


def searched(conversation: Conversation, found: tuple[tuple[str, str, str], ...]) -> str:
    """Give the last of the facts that searches found, and how they lead there."""
    answer = found[-1][2]
    if asks_for_bare_answer(conversation):
        return answer
    facts = "，".join(f"{name}的{relation}是{value}" for name, relation, value in found)
    return f"{facts}。答案是{answer}。"


def asks_for_bare_answer(conversation: Conversation) -> bool:
    """Whether the user or the system message wants the answer and no sentence."""
    asked = f"{conversation.system}\n{conversation.question}".lower()
    return any(
        phrase in asked
        for phrase in (
            "only",
            "just the number",
            "just the answer",
            "只回答",
            "只输出",
            "只给出",
            "仅输出",
        )
    )


def echoed(conversation: Conversation) -> str:
    """Answer anything else."""
    question = " ".join(conversation.question.split())
    if len(question) > MAX_QUESTION_CHARS:
        question = question[:MAX_QUESTION_CHARS] + "…"
    if conversation.is_chinese:
        return f"您问的是“{question}”。我是脚本模型，只会计算和调用工具。"
    return f'You asked "{question}". I am a scripted model: I can only calculate and call tools.'


def made_up(conversation: Conversation, random: Random) -> str:
    """Answer without having called a tool; no number, so that it cannot be right by chance."""
    return random.choice(_MADE_UP[conversation.is_chinese])


def left_out(conversation: Conversation, random: Random) -> str:
    """Answer without what the tools returned."""
    return random.choice(_LEFT_OUT[conversation.is_chinese])


def unknown(conversation: Conversation) -> str:
    """Give no answer."""
    return _UNKNOWN[conversation.is_chinese]


def reasoning(conversation: Conversation, tool_names: list[str]) -> str:
    """A short thought before a call or an answer."""
    names = ", ".join(dict.fromkeys(tool_names))
    if conversation.is_chinese:
        return f"用户的问题需要调用 {names}。" if names else "信息已经足够，可以直接回答。"
    return f"The question needs {names}." if names else "I have what I need to answer."
