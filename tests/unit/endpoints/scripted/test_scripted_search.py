"""Questions that take several searches: queries, what results say, right and wrong ends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from arkdev.endpoints.scripted.policy import answer
from arkdev.endpoints.scripted.search import MAX_SEARCHES, chain_of, stated

QUESTION = "请问潮音灯塔的建造者的故乡是哪座岛？"
SEARCH = {
    "type": "function",
    "function": {
        "name": "web_search",
        "description": "互联网搜索",
        "parameters": {
            "type": "object",
            "properties": {"Query": {"type": "string"}, "Count": {"type": "integer"}},
            "required": ["Query"],
        },
    },
}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_current_weather",
        "description": "查询城市当前天气",
        "parameters": {"type": "object", "properties": {"location": {"type": "string"}}},
    },
}
PAGES = {
    "潮音灯塔": "潮音灯塔建成于云历238年，建造者是沈听雪。",
    "沈听雪": "沈听雪是一位药师，故乡是白鹭岛，老师是苏晚棠。",
}


def ask(
    *messages: dict[str, Any], question: str = QUESTION, skill: float = 1.0, seed: int = 0
) -> dict[str, Any]:
    body = {"messages": [{"role": "user", "content": question}, *messages], "tools": [SEARCH]}
    message = answer(body, seed=seed, skill=skill)["choices"][0]["message"]
    assert isinstance(message, dict)
    return message


def queries_of(message: dict[str, Any]) -> list[str]:
    calls = message.get("tool_calls") or []
    return [json.loads(call["function"]["arguments"])["Query"] for call in calls]


def results(*found: tuple[str, str]) -> list[dict[str, Any]]:
    """A turn with one call for each (query, result)."""
    function = {"name": "web_search"}
    calls = [
        {
            "id": f"call_{index}",
            "type": "function",
            "function": {**function, "arguments": json.dumps({"Query": query})},
        }
        for index, (query, _) in enumerate(found)
    ]
    turns: list[dict[str, Any]] = [{"role": "assistant", "content": None, "tool_calls": calls}]
    return turns + [
        {"role": "tool", "tool_call_id": f"call_{index}", "content": text}
        for index, (_, text) in enumerate(found)
    ]


def as_json(*pages: str) -> str:
    found = [{"Title": page, "Snippet": PAGES[page]} for page in pages]
    return json.dumps({"Result": {"WebResults": found}}, ensure_ascii=False)


def test_each_search_asks_for_what_the_one_before_found() -> None:
    assert queries_of(ask()) == ["潮音灯塔的建造者"]
    first = results(("潮音灯塔的建造者", as_json("潮音灯塔")))
    assert queries_of(ask(*first)) == ["沈听雪的故乡"]
    second = results(("沈听雪的故乡", as_json("沈听雪")))
    message = ask(*first, *second)
    assert queries_of(message) == []
    assert message["content"] == ("潮音灯塔的建造者是沈听雪，沈听雪的故乡是白鹭岛。答案是白鹭岛。")


def test_results_may_be_plain_text() -> None:
    assert queries_of(ask(*results(("潮音灯塔", PAGES["潮音灯塔"])))) == ["沈听雪的故乡"]


def test_one_result_that_says_all_is_enough() -> None:
    both = results(("潮音灯塔的建造者", as_json("潮音灯塔", "沈听雪")))
    assert ask(*both)["content"].endswith("答案是白鹭岛。")


def test_a_search_that_found_nothing_is_tried_with_the_name_alone_and_no_third_time() -> None:
    nothing = ("潮音灯塔的建造者", '{"Result": {"WebResults": []}}')
    assert queries_of(ask(*results(nothing))) == ["潮音灯塔"]
    message = ask(*results(nothing, ("潮音灯塔", "没有结果")))
    assert queries_of(message) == []
    assert message["content"]


def test_searching_ends() -> None:
    turns = results(*[(f"词{n}", "没有结果") for n in range(MAX_SEARCHES)])
    assert queries_of(ask(*turns)) == []


def test_a_wrong_answer_stops_too_early_or_leaves_the_result_out() -> None:
    turns = results(("x", as_json("潮音灯塔")), ("y", as_json("沈听雪")))
    said = {ask(*turns, skill=0.0, seed=seed)["content"] for seed in range(40)}
    assert not any("白鹭岛" in text for text in said)
    assert any("沈听雪" in text for text in said)


def test_a_wrong_search_or_none_at_all_follows_a_wrong_decision() -> None:
    turns = results(("x", as_json("潮音灯塔")))
    asked = [queries_of(ask(*turns, skill=0.0, seed=seed)) for seed in range(40)]
    assert [] in asked
    assert any(query and query != ["沈听雪的故乡"] for query in asked)
    assert ["沈听雪的故乡"] not in asked


def test_the_answer_alone_when_only_that_is_asked_for() -> None:
    turns = results(("x", as_json("潮音灯塔", "沈听雪")))
    body = {
        "messages": [
            {"role": "system", "content": "只输出答案"},
            {"role": "user", "content": QUESTION},
            *turns,
        ],
        "tools": [SEARCH],
    }
    assert answer(body, seed=0, skill=1.0)["choices"][0]["message"]["content"] == "白鹭岛"


def test_other_tools_are_not_searched_with() -> None:
    body = {
        "messages": [{"role": "user", "content": "北京的天气是什么？"}, *results(("北京", "晴"))],
        "tools": [WEATHER],
    }
    assert not answer(body, seed=0, skill=1.0)["choices"][0]["message"].get("tool_calls")


@pytest.mark.parametrize(
    "question",
    [
        "How old is the tallest tree?",
        "通过甲公司的服务和与乙公司的产品，哪两个公司实现了增长？",
        "北京现在多少摄氏度？",
        "的的的",
        "",
    ],
)
def test_other_questions_have_no_chain(question: str) -> None:
    assert chain_of(question) is None


@pytest.mark.parametrize(
    ("question", "chain"),
    [
        ("月盐的产季是几月？", ["月盐", "产季"]),
        ("沈听雪的老师的故乡在哪里", ["沈听雪", "老师", "故乡"]),
        ("告诉我雾隐岛的特产。", ["雾隐岛", "特产"]),
    ],
)
def test_a_question_names_a_chain_of_relations(question: str, chain: list[str]) -> None:
    assert chain_of(question) == chain


def test_the_text_that_is_about_the_name_counts_most() -> None:
    texts = ["秦疏影的故乡是流萤岛，老师是沈听雪。", "沈听雪：故乡：白鹭岛", "他见过沈听雪。"]
    assert stated("沈听雪", "故乡", texts) == "白鹭岛"
    assert stated("沈听雪", "老师", texts) is None
