import io

import pytest
from rich.console import Console

from arkdev.cli.conversation import pretty_arguments, render_turns
from arkdev.runs.records import GraderRecord, TurnRecord, Verdict


def shown(*, width: int = 80, **options: object) -> str:
    file = io.StringIO()
    render_turns(Console(file=file, width=width, color_system=None), **options)
    return file.getvalue()


def call(name: str, arguments: str) -> dict:
    return {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}


MESSAGES = (
    {"role": "user", "content": "example?"},
    {"role": "assistant", "content": "an earlier answer"},
    {"role": "user", "content": [{"type": "text", "text": "天气 in Paris?"}]},
    {
        "role": "assistant",
        "content": None,
        "reasoning_content": "I must look it up.",
        "tool_calls": [call("get_weather", '{"city": "Paris"}')],
    },
    {"role": "tool", "tool_call_id": "c1", "content": '{"t": 21}'},
    {"role": "assistant", "content": "21 degrees"},
)
TURNS = (
    TurnRecord(0.0, 0.31, "tool_calls", 212, 34, ("get_weather",), 0.02),
    TurnRecord(0.4, 1.5, "stop", 260, None, num_retries=2),
)


def test_each_turn_shows_its_time_tokens_and_finish_reason():
    lines = shown(messages=MESSAGES, turns=TURNS).splitlines()
    headers = [line for line in lines if line and not line.startswith(" ")]
    assert headers == [
        "user",
        "assistant",
        "user",
        "assistant  ·  turn 1  ·  310 ms  ·  212 → 34 tokens  ·  tool_calls",
        "tool  ·  get_weather  ·  20 ms",
        "assistant  ·  turn 2  ·  1.50 s  ·  260 → ? tokens  ·  stop  ·  sent again 2 ×",
    ]


def test_a_time_that_several_tools_share_is_shown_once_as_theirs():
    second = {"role": "tool", "tool_call_id": "c2", "content": "13"}
    turns = (TurnRecord(0.0, 0.31, "tool_calls", 212, 34, ("get_weather", "add"), 0.053), TURNS[1])
    text = shown(messages=(*MESSAGES[:5], second, MESSAGES[5]), turns=turns)
    tools = [line for line in text.splitlines() if line.startswith("tool")]
    assert tools == ["tool  ·  get_weather  ·  53 ms for 2 calls", "tool"]


def test_arguments_nested_beyond_all_bounds_are_shown():
    deep = "[" * 100_000
    assert pretty_arguments(deep, width=80) == (deep, "the arguments are not JSON")


def test_content_reasoning_and_calls_are_shown_in_order():
    text = shown(messages=MESSAGES, turns=TURNS)
    parts = ["天气 in Paris?", "I must look it up.", '→ get_weather (city="Paris")', '{"t": 21}']
    places = [text.index(part) for part in parts]
    assert places == sorted(places)


def test_grades_show_each_reward_of_this_member_and_the_weighted_one():
    graders = (
        GraderRecord("answer", 1.0, Verdict.SUCCESS, (0.0, 1.0), {"length": 12.0}),
        GraderRecord(
            "judge",
            0.5,
            Verdict.FAILURE,
            (),
            attempts=4,
            error="503",
            where="g.py:9",
            traceback="Traceback of the judge",
        ),
    )
    text = shown(messages=MESSAGES, graders=graders, index=1, reward=None)
    rows = [line.split() for line in text.splitlines()]
    assert ["answer", "×1", "1.000"] in [row[:3] for row in rows]
    assert ["judge", "×0.5", "ungraded"] in [row[:3] for row in rows]
    assert ["weighted", "ungraded"] in [row[:2] for row in rows]
    assert "judge: failure in 4 attempts: 503" in text
    assert "g.py:9" in text and "Traceback of the judge" in text


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("{bad", "the arguments are not JSON"),
        ("[1]", "the arguments are not a JSON object"),
        (r'"{\"city\": 1}"', "the arguments are JSON inside a JSON string"),
        (None, "the arguments are not a string"),
    ],
)
def test_arguments_that_are_no_object_are_shown_as_they_are(arguments, problem):
    assert pretty_arguments(arguments, width=80) == (str(arguments), problem)
    message = {"role": "assistant", "tool_calls": [call("f", arguments)]}
    assert problem in shown(messages=(message,))


def test_long_arguments_are_spread_over_lines():
    text, _ = pretty_arguments('{"a": {"b": [1, 2]}, "城市": "北京"}', width=10)
    assert text.count("\n") > 3
    assert '"城市": "北京"' in text


def test_image_parts_are_named_not_dumped():
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 5000}}
    text = shown(messages=({"role": "user", "content": [part]},))
    assert "[image_url:" in text
    assert len(text) < 400


def test_model_text_cannot_steer_the_terminal_or_the_markup():
    text = shown(messages=({"role": "user", "content": "\x1b[2J [red]x[/red]"},))
    assert "\x1b" not in text
    assert "[red]x[/red]" in text
