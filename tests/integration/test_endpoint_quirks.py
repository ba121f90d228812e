"""What model servers do that others stumble over, through a whole test; field cases 2.6 to 2.10."""

from __future__ import annotations

import http.server
import json
import threading
from typing import Any

import pytest

from tests.integration.loopback import listening
from tests.integration.workspace import Command, Workspace
from tests.running import answer, tool_call

TWO_TURNS = """
    from arkdev import rollout

    @rollout
    def answer(context, proxy, sample):
        client = proxy.rollout_client()
        messages = sample.model_dump()["messages"]
        for _ in range(2):
            completion = client.chat.completions.create(model="m", messages=messages)
            messages.append(completion.choices[0].message.model_dump())
            messages.append({"role": "user", "content": "go on"})
"""


def test_a_server_that_only_streams_is_read_all_the_same(workspace: Workspace) -> None:
    """2.6: an event stream where none was asked for, its call's id in the first delta alone."""
    deltas = [
        {"role": "assistant", "tool_calls": [{"id": "call_7", "function": {"name": "look"}}]},
        {"tool_calls": [{"id": "", "function": {"arguments": '{"a": '}}]},
        {"tool_calls": [{"id": "", "function": {"arguments": "1}"}}]},
    ]
    sent: list[dict[str, Any]] = []

    class Streams(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            for delta in deltas:
                chunk = {"id": "c", "choices": [{"index": 0, "delta": delta}]}
                self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
            end = {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
            self.wfile.write(f"data: {json.dumps(end)}\n\ndata: [DONE]\n\n".encode())

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Streams) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        run = workspace.run(endpoint=f"http://127.0.0.1:{server.server_port}/v1", model="m")
        server.shutdown()
        thread.join()
    assert not sent[0].get("stream")
    (call,) = run.trajectories[0].messages[-1]["tool_calls"]
    assert call["id"] == "call_7"
    assert call["function"] == {"name": "look", "arguments": '{"a": 1}'}


def test_the_history_of_responses_is_kept_here_and_not_on_the_server(workspace: Workspace) -> None:
    """2.7: the server keeps nothing; every body has the whole history of its branch."""
    workspace.write(
        "plugins/rollout.py",
        """
        from arkdev import GroupRolloutResult, SingleResponse, group_rollout

        @group_rollout
        async def answer(context, proxy, sample, n_sample):
            create = proxy.async_rollout_client().responses.create
            r1 = await create(model="m", input="one")
            r2 = await create(model="m", input="two", previous_response_id=r1.id)
            output = {"type": "function_call_output", "call_id": "call_1", "output": "42"}
            r3 = await create(model="m", input=[output], previous_response_id=r2.id)
            r4 = await create(model="m", input="four", previous_response_id=r1.id)
            try:
                await create(model="m", input="x", previous_response_id="nope")
            except Exception as error:
                assert "nope" in str(error), error
            else:
                raise AssertionError("an unknown response was accepted")
            responses = [SingleResponse(id=r3.id), SingleResponse(id=r4.id)]
            return GroupRolloutResult(responses=responses[: sample.extra["return"]])
        """,
    )
    workspace.lines(
        {"messages": [{"role": "user", "content": "hi"}], "extra": {"return": n}} for n in (2, 1)
    )

    def policy(_number: int, body: dict[str, Any]) -> tuple[int, Any]:
        last = body["messages"][-1]["content"]
        return 200, answer("", tool_calls=[tool_call("look")]) if last == "two" else answer("ok")

    with listening(policy) as server:
        run = workspace.run(
            endpoint=f"{server.url}/v1", model="m", num_generations=2, concurrency=1
        )
    bodies = [body["messages"] for _, _, body in server.requests[:4]]
    assert [message["role"] for message in bodies[2]] == [
        *("user", "assistant", "user", "assistant", "tool")
    ]
    assert bodies[2][-2]["tool_calls"][0]["id"] == bodies[2][-1]["tool_call_id"] == "call_1"
    assert [message["content"] for message in bodies[3]] == ["one", "ok", "four"]
    assert len(server.requests) % 4 == 0, "the unknown id went out"
    assert [r.verdict for r in run.trajectories] == ["success", "success", "failure"]
    assert "1 response" in (run.trajectories[2].attempts[0].error or "")


def test_reasoning_goes_back_to_a_server_that_wants_it(workspace: Workspace) -> None:
    """2.8: `model_dump()` keeps reasoning_content, the server gets it, graders can read it."""
    workspace.write("plugins/rollout.py", TWO_TURNS)
    workspace.write(
        "plugins/grader.py",
        """
        from arkdev import single_grader

        @single_grader
        def one(context, sample, trajectory):
            thoughts = [m.reasoning_content for m in trajectory.messages if m.role == "assistant"]
            return float(thoughts == ["because", "because"])
        """,
    )

    def policy(_number: int, body: dict[str, Any]) -> tuple[int, Any]:
        turns = [m for m in body["messages"] if m["role"] == "assistant"]
        if any(m.get("reasoning_content") != "because" for m in turns):
            return 400, {"error": {"message": "reasoning_content is missing", "code": "Invalid"}}
        body = answer("ok")
        body["choices"][0]["message"]["reasoning_content"] = "because"
        return 200, body

    with listening(policy) as server:
        run = workspace.run(endpoint=f"{server.url}/v1", model="m")
    assert run.rewards == [(1.0,)], run.trajectories[0].attempts


@pytest.mark.parametrize("usage", [..., None])
def test_tokens_that_a_server_does_not_count_are_unknown_and_not_0(
    workspace: Workspace, arkdev: Command, usage: Any
) -> None:
    """2.9: no usage, or null: no crash, no zero in an average."""
    workspace.write("plugins/rollout.py", TWO_TURNS)
    with listening(lambda _number, _body: (200, answer("ok", usage=usage))) as server:
        told = arkdev("test", "plugin", "--endpoint", f"{server.url}/v1", "--model", "m", "--json")
    summary = told.document["summary"]
    assert told.exit_code == 0, told.err
    for counted in (summary["prompt_tokens"], summary["completion_tokens"]):
        assert (counted["num_known"], counted["num_unknown"], counted["mean"]) == (0, 1, None)
    assert any(warning["code"] == "usage_unknown" for warning in summary["warnings"])


def test_a_refused_role_is_told_with_the_servers_sentence(
    workspace: Workspace, arkdev: Command
) -> None:
    """2.10: a warning with file and line, the server's words, one request and no more."""
    brief = {"role": "developer", "content": "be brief"}
    workspace.lines([{"messages": [brief, {"role": "user", "content": "hello"}]}])
    refusal = {"error": {"message": "Unexpected message role.", "code": "InvalidParameter"}}
    with listening(lambda _number, _body: (400, refusal)) as server:
        told = arkdev("test", "plugin", "--endpoint", f"{server.url}/v1", "--model", "m")
    assert told.exit_code == 1
    assert "Unexpected message role." in " ".join(told.out.split())
    assert "data.jsonl:1" in told.out + told.err
    assert "developer" in told.out + told.err
    assert len(server.requests) == 4, "one for each attempt of the plugin: a 400 is not sent again"
