"""What `--sample` shows: the sample's extra, every attempt with its reason, the plugin's lines."""

from __future__ import annotations

from tests.integration.workspace import Command, Workspace

FAILS_ONCE = """
    from arkdev import rollout

    CALLS = []

    @rollout
    def answer(context, proxy, sample):
        client = proxy.rollout_client()
        CALLS.append(1)
        print("call number", len(CALLS))
        messages = sample.model_dump()["messages"]
        client.chat.completions.create(model="m", messages=messages)
        if len(CALLS) == 1:
            raise RuntimeError("not the first time")
"""


def test_attempts_reasons_lines_and_the_extra(workspace: Workspace, arkdev: Command) -> None:
    workspace.write("plugins/rollout.py", FAILS_ONCE)
    message = {"role": "user", "content": "q"}
    workspace.lines([{"messages": [message], "extra": {"answer": "Paris"}}])
    told = arkdev("test", "plugin", "--sample", "0")
    assert told.exit_code == 0, told.err
    parts = [
        'sample extra: answer="Paris"',
        "call number 1",
        "turn 1",
        "attempt 1: failure",
        "RuntimeError: not the first time",
        "attempt 2",
        "call number 2",
        "turn 1",
    ]
    at = 0
    for part in parts:
        assert part in told.out[at:], told.out
        at = told.out.index(part, at) + 1
    assert "turn 2" not in told.out
    assert 'sample extra: answer="Paris"' in arkdev("show", "latest", "0.0").out


def test_the_reason_of_a_last_failure_stands_once(workspace: Workspace, arkdev: Command) -> None:
    workspace.write("plugins/rollout.py", FAILS_ONCE.replace("len(CALLS) == 1", "True"))
    told = arkdev("test", "plugin", "--sample", "0")
    assert told.exit_code == 1
    assert told.out.count("attempt 4: failure") == 1
    assert told.out.count('raise RuntimeError("not the first time")') == 1
