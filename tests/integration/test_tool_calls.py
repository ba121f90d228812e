"""What models and servers do to tool calls, with the weather rollout of the template (2.1-2.5)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from arkdev.flows.init_workspace import create_workspace
from arkdev.runs.records import Verdict
from tests.integration.workspace import Command, Run, Workspace

QUESTION = {"messages": [{"role": "user", "content": "北京现在多少摄氏度？"}]}
ANSWER = {"extra": {"answer": "26摄氏度"}}
BROKEN = '{"Query": "a'
REPLAYS = '''
    import json
    from arkdev import rollout

    @rollout
    def answer(context, proxy, sample):
        """Sends whatever the model wrote back to it."""
        client = proxy.rollout_client()
        messages = sample.model_dump()["messages"]
        for _ in range(20):
            completion = client.chat.completions.create(model="m", messages=messages)
            message = completion.choices[0].message
            messages.append(message.model_dump())
            for call in message.tool_calls or []:
                messages.append({"role": "tool", "content": "?", "tool_call_id": call.id})
            if not message.tool_calls:
                return
'''
READS = '''
    from arkdev import single_grader

    @single_grader
    def one(context, sample, trajectory):
        """Gives the length of the arguments of the first call, as the model wrote them."""
        calls = [call for m in trajectory.messages for call in m.tool_calls or []]
        contents = [m.content for m in trajectory.messages if m.role == "assistant"]
        has_none = float(None in contents)
        return {"reward": float(len(calls[0].function.arguments)), "metrics": {"none": has_none}}
'''


@pytest.fixture
def weather(tmp_path: Path) -> Workspace:
    """The demo's own workspace with one sample."""
    root = tmp_path / "weather"
    create_workspace(root, template="rl_demo")
    workspace = Workspace.at(root)
    workspace.lines([{**QUESTION, **ANSWER}], name="one.jsonl")
    return workspace


def run_weather(workspace: Workspace, *answers: dict[str, Any]) -> Run:
    script = workspace.script(*answers)
    return workspace.run(script=script, data=(workspace.root / "one.jsonl",))


def call(arguments: object, **more: Any) -> dict[str, Any]:
    return {
        "turn": 0,
        "tool_calls": [{"id": "call_7", "name": "get_current_weather", "arguments": arguments}],
        **more,
    }


REFUSES_HISTORY = {
    "turn": 1,
    "error": {"status": 400, "code": "InvalidParameter", "message": "arguments are not JSON."},
}


def test_broken_arguments_are_not_sent_again_by_the_scaffolded_rollout(weather: Workspace) -> None:
    run = run_weather(weather, call(BROKEN), REFUSES_HISTORY)
    (trajectory,) = run.trajectories
    assert len(trajectory.turns) == 1
    assert (trajectory.verdict, trajectory.extra) == (Verdict.SUCCESS, {"reward": -1})
    assert run.rewards == [(-1.0,)]


def test_a_rollout_that_replays_broken_arguments_ends_with_the_servers_refusal(
    workspace: Workspace,
) -> None:
    workspace.write("plugins/rollout.py", REPLAYS)
    run = workspace.run(script=workspace.script(call(BROKEN), REFUSES_HISTORY))
    (trajectory,) = run.trajectories
    assert trajectory.verdict is Verdict.FAILURE
    # one request after the broken one, in each of the four attempts; a 400 is not sent again
    assert [attempt.num_turns for attempt in trajectory.attempts] == [1, 1, 1, 1]
    assert "arguments are not JSON" in (trajectory.attempts[-1].error or "")


def test_the_report_names_the_call_and_what_is_wrong_with_its_arguments(
    weather: Workspace, arkdev: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(weather.root)
    weather.script(call(BROKEN))
    told = arkdev("test", "plugin", "--data", "one.jsonl", "--script", "script.json")
    assert "call_7" in told.out
    assert "Unterminated string" in told.out


def test_a_grader_sees_the_arguments_as_the_model_wrote_them(workspace: Workspace) -> None:
    twice = json.dumps(json.dumps({"location": "北京"}, ensure_ascii=False), ensure_ascii=False)
    workspace.write("plugins/grader.py", READS)
    for arguments in (BROKEN, twice):
        run = workspace.run(script=workspace.script(call(arguments)))
        (trajectory,) = run.trajectories
        stored = trajectory.messages[1]["tool_calls"][0]["function"]["arguments"]
        assert stored == arguments
        assert run.rewards == [(float(len(arguments)),)]


def test_double_encoded_arguments_are_named_and_kept(weather: Workspace) -> None:
    arguments = json.dumps(json.dumps({"location": "北京"}))
    run = run_weather(weather, call(arguments))
    (trajectory,) = run.trajectories
    assert trajectory.verdict is Verdict.SUCCESS
    assert len(trajectory.attempts) == 1
    log = (run.outcome.folder / "logs/plugin.jsonl").read_text(encoding="utf-8")
    assert "double_encoded" in log and "TypeError" not in log
    assert any(warning.code == "double_encoded_arguments" for warning in run.summary.warnings)
    assert trajectory.messages[1]["tool_calls"][0]["function"]["arguments"] == arguments


def test_a_turn_with_null_content_stays_and_graders_read_none(workspace: Workspace) -> None:
    workspace.write("plugins/rollout.py", REPLAYS)
    workspace.write("plugins/grader.py", READS)
    run = workspace.run(script=workspace.script(call({}), {"turn": 1, "content": "done"}))
    (trajectory,) = run.trajectories
    assert [message["role"] for message in trajectory.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert trajectory.messages[1]["content"] is None
    assert run.groups[0].graders[0].metrics == {"none": 1.0}


def test_tool_calls_count_whatever_the_finish_reason_says(weather: Workspace) -> None:
    run = run_weather(weather, call({"location": "北京"}, finish_reason="stop"))
    (trajectory,) = run.trajectories
    assert [message["role"] for message in trajectory.messages][2] == "tool"
    assert run.rewards == [(1.0,)]
    assert [w.code for w in run.summary.warnings] == ["tool_calls_with_finish_stop"]


def test_a_finish_reason_without_calls_ends_the_loop(weather: Workspace) -> None:
    said = {"content": "26摄氏度", "finish_reason": "tool_calls"}
    run = run_weather(weather, said)
    (trajectory,) = run.trajectories
    assert len(trajectory.turns) == 1
    assert [w.code for w in run.summary.warnings] == ["finish_tool_calls_without_calls"]


OVERLOADED = {"raw_body": {"error": {"message": "overloaded"}, "choices": None}}
NO_CHOICE = {"raw_body": {"choices": []}}


def test_an_error_hidden_in_a_success_answer_is_sent_again(workspace: Workspace) -> None:
    answers = ({**OVERLOADED, "times": 1}, {**NO_CHOICE, "times": 1}, {"content": "at last"})
    run = workspace.run(script=workspace.script(*answers))
    (trajectory,) = run.trajectories
    assert trajectory.messages[-1]["content"] == "at last"
    assert [turn.num_retries for turn in trajectory.turns] == [2]
    assert run.exit_code == 0


def test_a_hidden_error_that_persists_is_no_answer_and_no_reward(workspace: Workspace) -> None:
    run = workspace.run(script=workspace.script(OVERLOADED))
    (trajectory,) = run.trajectories
    assert trajectory.verdict is Verdict.FAILURE
    assert "overloaded" in (trajectory.attempts[-1].error or "")
    assert run.rewards == [(None,)]
    assert run.summary.reward is None
    assert run.exit_code == 1
