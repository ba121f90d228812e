"""The scripted model's decisions."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import pytest

from arkdev.endpoints.scripted.completion import estimate_tokens
from arkdev.endpoints.scripted.policy import answer, seed_of_request


def tool(name: str, description: str, properties: dict[str, Any], *required: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


WEATHER = tool(
    "get_current_weather",
    "获取指定地点的天气信息",
    {
        "location": {"type": "string", "description": "地点"},
        "unit": {"type": "string", "enum": ["摄氏度", "华氏度"]},
    },
    "location",
)
SEARCH = tool("web_search", "Search the web", {"Query": {"type": "string"}}, "Query")
CALCULATOR = tool(
    "calculator",
    "Do arithmetic",
    {"a": {"type": "number"}, "b": {"type": "number"}, "operation": {"enum": ["add", "multiply"]}},
    *("a", "b", "operation"),
)
QUESTION = {"role": "user", "content": "北京今天多少摄氏度？"}


def after_tool(result: str, arguments: str = '{"location": "北京"}') -> list[dict[str, Any]]:
    call = {"id": "c1", "function": {"name": "get_current_weather", "arguments": arguments}}
    return [
        QUESTION,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": result},
    ]


def ask(
    body: dict[str, Any] | str, *tools: dict[str, Any], skill: float = 1.0, seed: int = 1
) -> Any:
    if isinstance(body, str):
        body = {"messages": [{"role": "user", "content": body}], "tools": list(tools)}
    return answer(body, seed=seed, skill=skill)["choices"][0]


def calls_of(choice: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    calls = choice["message"].get("tool_calls", [])
    return [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in calls]


def test_the_documented_question_calls_the_weather_tool_with_place_and_unit() -> None:
    choice = ask("北京今天多少摄氏度？", WEATHER)
    assert calls_of(choice) == [("get_current_weather", {"location": "北京", "unit": "摄氏度"})]
    assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] is None


def test_content_in_parts_is_read() -> None:
    parts = [{"type": "text", "text": "上海的天气"}, {"type": "image_url", "image_url": {}}]
    body = {"messages": [{"role": "user", "content": parts}], "tools": [WEATHER]}
    assert calls_of(ask(body))[0][1]["location"] == "上海"


@pytest.mark.parametrize(
    ("question", "name"),
    [
        ("巴黎现在多少度", "get_current_weather"),
        ("Will it rain in Oslo?", "get_current_weather"),
        ("Search for the latest news on chips", "web_search"),
        ("12 乘以 7 是多少", "calculator"),
    ],
)
def test_the_tool_that_fits_is_chosen(question: str, name: str) -> None:
    assert [n for n, _ in calls_of(ask(question, SEARCH, CALCULATOR, WEATHER))] == [name]


def test_a_question_about_two_places_gives_two_calls_unless_switched_off() -> None:
    assert [a["location"] for _, a in calls_of(ask("上海和广州的天气", WEATHER))] == [
        "上海",
        "广州",
    ]
    body = {
        "messages": [{"role": "user", "content": "上海和广州的天气"}],
        "tools": [WEATHER],
        "parallel_tool_calls": False,
    }
    assert len(calls_of(ask(body))) == 1


def test_a_follow_up_question_takes_the_place_from_before() -> None:
    messages = [*after_tool("22"), {"role": "assistant", "content": "22"}]
    messages.append({"role": "user", "content": "那么用华氏度呢？"})
    arguments = calls_of(ask({"messages": messages, "tools": [WEATHER]}))[0][1]
    assert arguments == {"location": "北京", "unit": "华氏度"}


@pytest.mark.parametrize(
    ("result", "needles"),
    [
        ("北京：晴，22摄氏度", ["22", "北京"]),
        ("22", ["22", "北京"]),
        ('{"temperature": 22.50, "sky": {"cover": "晴"}}', ["22.50", "晴"]),
        ("[1, 2]", ["1", "2"]),
    ],
)
def test_the_answer_contains_what_the_tool_returned(result: str, needles: list[str]) -> None:
    choice = ask({"messages": after_tool(result), "tools": [WEATHER]})
    assert all(needle in choice["message"]["content"] for needle in needles)
    assert choice["finish_reason"] == "stop" and "tool_calls" not in choice["message"]


def test_every_result_is_restated_and_broken_arguments_in_history_are_tolerated() -> None:
    messages = [*after_tool("22", arguments='{"location": "a'), {"role": "tool", "content": "31"}]
    content = ask({"messages": messages, "tools": [WEATHER]})["message"]["content"]
    assert "22" in content and "31" in content


def test_skill_0_never_gives_the_number_of_the_tool_result() -> None:
    body = {"messages": after_tool("北京：晴，22摄氏度"), "tools": [WEATHER]}
    answers = {ask(body, skill=0.0, seed=seed)["message"]["content"] for seed in range(60)}
    assert not any("22" in text for text in answers)
    assert len(answers) > 3


def test_skill_0_never_makes_the_right_call_and_fails_in_several_valid_ways() -> None:
    right = [("get_current_weather", {"location": "北京", "unit": "摄氏度"})]
    made = [calls_of(ask("北京今天多少摄氏度？", WEATHER, skill=0.0, seed=s)) for s in range(60)]
    assert right not in made
    assert [] in made
    assert {tuple(a["location"] == "北京" for _, a in m) for m in made if m} == {(True,), (False,)}


def test_skill_0_is_wrong_by_some_in_arithmetic() -> None:
    texts = [ask("12 + 7", skill=0.0, seed=s)["message"]["content"] for s in range(60)]
    assert not any("19" in text for text in texts) and len(set(texts)) > 5


def test_skill_is_the_share_of_right_decisions() -> None:
    texts = [ask("12 + 7", skill=0.7, seed=s)["message"]["content"] for s in range(1000)]
    assert 640 < sum("19" in text for text in texts) < 760


def test_decisions_of_one_seed_are_independent_from_turn_to_turn() -> None:
    both = 0
    for seed in range(400):
        call = calls_of(ask("北京今天多少摄氏度？", WEATHER, skill=0.5, seed=seed))
        final = ask({"messages": after_tool("22"), "tools": [WEATHER]}, skill=0.5, seed=seed)
        is_call_right = call == [("get_current_weather", {"location": "北京", "unit": "摄氏度"})]
        both += is_call_right and "22" in final["message"]["content"]
    assert 60 < both < 140  # a quarter of 400, not a half


def test_arithmetic_is_answered_by_its_result_alone() -> None:
    assert ask("What is 17 plus 5?")["message"]["content"] == "The answer is 22."
    assert ask("3 乘以 4")["message"]["content"] == "答案是 12。"
    assert ask("3 乘以 4，只输出数字")["message"]["content"] == "12"


@pytest.mark.parametrize("choice", ["none", "required", "named"])
def test_tool_choice_is_honoured(choice: str) -> None:
    named = {"type": "function", "function": {"name": "web_search"}}
    body = {
        "messages": after_tool("22") if choice == "required" else [QUESTION],
        "tools": [WEATHER, SEARCH],
        "tool_choice": named if choice == "named" else choice,
    }
    for skill in (1.0, 0.0):
        names = [name for name, _ in calls_of(ask(body, skill=skill))]
        expected = {"none": [], "required": ["get_current_weather"], "named": ["web_search"]}
        assert names == expected[choice]


def test_response_formats_give_json() -> None:
    schema = {
        "type": "object",
        "properties": {"rationale": {"type": "string"}, "judgement": {"enum": ["正确", "错误"]}},
        "required": ["rationale", "judgement"],
    }
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": "这个回答错误吗？"}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
    }
    assert json.loads(ask(body)["message"]["content"])["judgement"] == "错误"
    body = {
        "messages": [{"role": "user", "content": "12 + 7"}],
        "response_format": {"type": "json_object"},
    }
    assert json.loads(ask(body)["message"]["content"]) == {"answer": 19}


def test_thinking_enabled_gives_reasoning_content() -> None:
    body = {"messages": [QUESTION], "tools": [WEATHER], "thinking": {"type": "enabled"}}
    assert "get_current_weather" in ask(body)["message"]["reasoning_content"]
    body["thinking"] = {"type": "disabled"}
    assert "reasoning_content" not in ask(body)["message"]


@pytest.mark.parametrize("name", ["max_new_tokens", "max_tokens", "max_completion_tokens"])
def test_a_token_limit_cuts_the_answer(name: str) -> None:
    body = {"messages": after_tool("北京：晴，22摄氏度"), "tools": [WEATHER], name: 5}
    whole = answer(body, seed=1, skill=1.0)
    content = whole["choices"][0]["message"]["content"]
    assert whole["choices"][0]["finish_reason"] == "length" and estimate_tokens(content) == 5
    assert whole["usage"]["completion_tokens"] == 5


def test_a_tool_call_that_does_not_fit_is_left_out_as_a_whole() -> None:
    choice = ask({"messages": [QUESTION], "tools": [WEATHER], "max_tokens": 3})
    assert choice["finish_reason"] == "length" and calls_of(choice) == []


def test_a_stop_word_ends_the_answer() -> None:
    choice = ask({"messages": [{"role": "user", "content": "What is 1 plus 1?"}], "stop": [" is"]})
    assert choice["message"]["content"] == "The answer" and choice["finish_reason"] == "stop"


def test_usage_adds_up() -> None:
    usage = answer({"messages": [QUESTION]}, seed=1, skill=1.0)["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["prompt_tokens"] > 10 and usage["completion_tokens"] > 5


def test_the_same_request_and_seed_give_the_same_bytes_in_any_process() -> None:
    body = {"messages": [QUESTION], "tools": [WEATHER, SEARCH]}
    program = (
        "import json, sys\n"
        "from arkdev.endpoints.scripted.policy import answer, seed_of_request\n"
        "body = json.load(sys.stdin)\n"
        "made = [answer(body, seed=s, skill=0.5) for s in range(20)]\n"
        "print(json.dumps([made, seed_of_request(body)]))"
    )
    made = [answer(body, seed=s, skill=0.5) for s in range(20)]
    for hash_seed in ("1", "2"):
        ran = subprocess.run(
            [sys.executable, "-c", program],
            input=json.dumps(body),
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(p for p in sys.path if p)},
            timeout=300,
        )
        assert ran.stdout.strip() == json.dumps([made, seed_of_request(body)])


def test_missing_null_and_empty_fields_of_a_message_are_the_same() -> None:
    bare = {"messages": [{"role": "user", "content": "12 + 7"}]}
    padded = {"messages": [{**bare["messages"][0], "tool_calls": None, "reasoning_content": ""}]}
    assert answer(bare, seed=3, skill=0.5) == answer(padded, seed=3, skill=0.5)


def test_answers_of_one_conversation_have_different_ids() -> None:
    first = answer({"messages": [QUESTION], "tools": [WEATHER]}, seed=1, skill=1.0)
    second = answer({"messages": after_tool("22"), "tools": [WEATHER]}, seed=1, skill=1.0)
    other = answer({"messages": [QUESTION], "tools": [WEATHER]}, seed=2, skill=1.0)
    assert len({first["id"], second["id"], other["id"]}) == 3


@pytest.mark.parametrize(
    "text", ["1" * 20_000, "(" * 20_000 + "1", "1" + "-" * 20_000, "1+" * 9_000 + "1", "a\ud800"]
)
def test_odd_and_long_texts_are_answered_in_time(text: str) -> None:
    started = time.process_time()
    assert ask(text)["message"]["content"]
    assert calls_of(ask(text, WEATHER))
    assert time.process_time() - started < 1
