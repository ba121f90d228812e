"""Script files: what they program, and what is said about a wrong one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from arkdev.endpoints.scripted.model import Reply, ScriptedModel
from arkdev.endpoints.scripted.script import Script, load_script
from arkdev.errors import ConfigurationError


def script_of(tmp_path: Path, text: str, *, name: str = "script.yaml") -> Script:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return load_script(path)


def ask(model: ScriptedModel, text: str = "hello", *, turn: int = 0) -> Reply:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "before"}]
    messages += [{"role": "assistant", "content": "ok"}] * turn
    return model.reply({"messages": [*messages, {"role": "user", "content": text}]}, seed=1)


def choice_of(reply: Reply) -> dict[str, Any]:
    choice: dict[str, Any] = reply.body["choices"][0]
    return choice


def test_answers_go_by_turn_match_and_regex_and_the_rest_to_the_policy(tmp_path: Path) -> None:
    script = script_of(
        tmp_path,
        """
answers:
  - {turn: 1, content: second}
  - {match: 北京, content: place}
  - {match: {regex: '^[0-9]+$'}, content: number}
""",
    )
    model = ScriptedModel(script=script, skill=1.0)
    said = [choice_of(ask(model, text))["message"]["content"] for text in ("去北京", "42", "1 + 1")]
    assert said == ["place", "number", "The answer is 2."]
    assert choice_of(ask(model, "去北京", turn=1))["message"]["content"] == "second"


def test_an_entry_with_times_is_used_that_often_then_the_next(tmp_path: Path) -> None:
    model = ScriptedModel(
        script=script_of(tmp_path, "answers: [{times: 2, content: a}, {content: b}]")
    )
    assert [choice_of(ask(model))["message"]["content"] for _ in range(4)] == ["a", "a", "b", "b"]


def test_broken_and_double_encoded_arguments_can_be_made(tmp_path: Path) -> None:
    script = script_of(
        tmp_path,
        r"""
answers:
  - tool_calls:
      - {name: f, arguments: '{"Query": "a'}
      - {name: f, arguments: '"{\"location\": \"北京\"}"', id: mine}
      - {name: f, arguments: {location: 北京}}
    finish_reason: stop
  - {finish_reason: tool_calls}
""",
    )
    choice = choice_of(ask(ScriptedModel(script=script)))
    broken, double, plain = choice["message"]["tool_calls"]
    assert broken["function"]["arguments"] == '{"Query": "a'
    assert json.loads(json.loads(double["function"]["arguments"])) == {"location": "北京"}
    assert double["id"] == "mine" and broken["id"] != plain["id"]
    assert plain["function"]["arguments"] == '{"location": "北京"}'
    assert choice["finish_reason"] == "stop" and choice["message"]["content"] is None


def test_a_finish_reason_may_contradict_the_message(tmp_path: Path) -> None:
    script = script_of(tmp_path, "answers: [{finish_reason: tool_calls}]")
    choice = choice_of(ask(ScriptedModel(script=script)))
    assert choice["finish_reason"] == "tool_calls" and "tool_calls" not in choice["message"]


def test_usage_may_be_given_or_null_and_is_estimated_otherwise(tmp_path: Path) -> None:
    script = script_of(
        tmp_path,
        "answers: [{content: a, usage: null, times: 1}, {content: a, usage: {x: 1}, times: 1},"
        " {content: abcdefgh}]",
    )
    model = ScriptedModel(script=script)
    usages = [ask(model).body["usage"] for _ in range(3)]
    assert usages[:2] == [None, {"x": 1}]
    assert usages[2]["completion_tokens"] == 2


def test_token_evidence_comes_back_as_vllm_returns_it(tmp_path: Path) -> None:
    script = script_of(
        tmp_path,
        "answers: [{content: a, prompt_token_ids: [1, 2], token_ids: [3, 4, 5],"
        " logprobs: [-0.5, -1, 0]}]",
    )
    body = ask(ScriptedModel(script=script)).body
    choice = body["choices"][0]
    assert body["prompt_token_ids"] == [1, 2] and choice["token_ids"] == [3, 4, 5]
    assert [item["logprob"] for item in choice["logprobs"]["content"]] == [-0.5, -1, 0]
    assert body["usage"] == {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5}


def test_errors_come_in_the_ark_envelope_with_a_request_id(tmp_path: Path) -> None:
    script = script_of(
        tmp_path,
        "answers: [{error: {status: 429, code: ServerOverloaded, message: busy.,"
        " headers: {retry-after: '1'}}, latency_s: 0.5}]",
    )
    reply = ask(ScriptedModel(script=script))
    error = reply.body["error"]
    assert (reply.status, reply.headers, reply.latency_s) == (429, {"retry-after": "1"}, 0.5)
    assert error["message"].startswith("busy. Request id: ") and error["param"] == ""
    assert (error["code"], error["type"]) == ("ServerOverloaded", "TooManyRequests")


def test_any_body_can_be_sent(tmp_path: Path) -> None:
    script = script_of(
        tmp_path,
        '{"answers": [{"raw_body": {"choices": null}, "times": 1},'
        '\t{"raw_body": "<html>", "status": 502}]}',
        name="script.json",
    )
    model = ScriptedModel(script=script)
    replies = [ask(model), ask(model)]
    assert [(r.status, r.body) for r in replies] == [(200, {"choices": None}), (502, "<html>")]


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("answers:\n  - content: a\n  - {turn: 0}\n", 3, "answers[1]: says nothing"),
        ("answers:\n  - content: a\n    contnt: b\n", 3, "answers[0].contnt"),
        ("answers:\n  - turn: first\n    content: a\n", 2, "answers[0].turn"),
        ("answers:\n  - match:\n      regex: '('\n    content: a\n", 3, "not a regular expression"),
        ("answers:\n  - content: a\n    error: {code: x}\n", 3, "answers[0].error"),
        ("answers:\n  - content: a\n    raw_body: {}\n", 2, "raw_body does not go with content"),
        ("answers:\n  - {content: a, token_ids: [1], logprobs: []}\n", 2, "one number for each"),
        ("answers:\n  - content: [\n", 3, "not YAML"),
        ("answers: []\nanswers: []\n", 2, "not YAML"),
        (
            "answers:\n  - tool_calls:\n    - name: f\n      arguments: 3\n",
            4,
            "answers[0].tool_calls[0].arguments: give an object",
        ),
        ("- a\n", 1, "valid dictionary"),
    ],
)
def test_a_wrong_file_is_reported_with_file_and_line(
    tmp_path: Path, text: str, line: int, said: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        script_of(tmp_path, text)
    assert caught.value.where == f"{tmp_path / 'script.yaml'}:{line}"
    assert said in str(caught.value) and caught.value.hint


def test_files_that_cannot_be_read_are_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot read"):
        load_script(tmp_path / "missing.yaml")
    with pytest.raises(ConfigurationError, match=r"script\.json:1: not JSON"):
        script_of(tmp_path, "{", name="script.json")
    with pytest.raises(ConfigurationError, match="a value is not JSON"):
        script_of(tmp_path, "answers: [{raw_body: 2025-01-01}]")
    (tmp_path / "latin.yaml").write_bytes(b"answers: \xff")
    with pytest.raises(ConfigurationError, match="not UTF-8"):
        load_script(tmp_path / "latin.yaml")


def test_the_example_of_the_documentation_is_a_valid_script(tmp_path: Path) -> None:
    page = Path(__file__).parents[4] / "docs" / "scripted-model.md"
    example = page.read_text(encoding="utf-8").split("```yaml\n")[1].split("```")[0]
    model = ScriptedModel(script=script_of(tmp_path, example))
    replies = [ask(model, "北京 now", turn=0) for _ in range(3)]
    assert [reply.status for reply in replies] == [429, 429, 200]
    assert choice_of(replies[2])["message"]["tool_calls"]
    assert ask(model, "ping").body["choices"] is None
