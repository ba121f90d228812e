"""Tracing end to end: which spans there are, whose they are, and that they change nothing."""

from __future__ import annotations

from collections import defaultdict

import pytest

from arkdev.runs.records import SpanRecord
from tests.integration.workspace import Command, Run, Workspace

TRACED = """
    import asyncio, threading
    from openai import OpenAI
    from arkdev import rollout, single_grader, group_grader
    from arkdev.observe.tracing import observe, trace_monitor

    @observe(span_type="tool")
    def tool(place):
        return f"21 degrees in {place}"

    @rollout
    @trace_monitor
    def answer(context, proxy, sample):
        place = sample.messages[0].content
        if proxy.rollout_client().chat.completions.create(
            model="m", messages=[{"role": "user", "content": place}]
        ).choices[0].finish_reason != "stop":
            raise ValueError("cut")
        raw = OpenAI(base_url=proxy.url, api_key=proxy.jwt_token)
        messages = [{"role": "user", "content": place}]
        stream = raw.chat.completions.create(model="m", messages=messages, stream=True)
        "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
        thread = threading.Thread(target=tool, args=(place,))
        thread.start()
        thread.join()

    @single_grader
    def one(context, sample, trajectory):
        return 1.0

    @group_grader
    def all_of_them(context, sample, trajectories):
        return [1.0] * len(trajectories)
"""


def spans_of(run: Run, *ids: str) -> dict[str, list[SpanRecord]]:
    """The spans of each trajectory in the order of their beginnings."""
    names = ids or [record.trajectory_id for record in run.trajectories]
    return {
        name: sorted(run.reader.spans(name), key=lambda span: span.started_at) for name in names
    }


@pytest.fixture
def traced(workspace: Workspace) -> Workspace:
    workspace.write("plugins/traced.py", TRACED)
    return workspace


def test_an_attempt_is_a_trace_with_its_model_calls_tools_and_graders(traced: Workspace) -> None:
    run = traced.run(
        rollout="plugins.traced:answer",
        graders=("plugins.traced:one", "plugins.traced:all_of_them"),
        num_generations=2,
        trace=True,
    )
    for name, spans in spans_of(run).items():
        root, wrapped, raw, tool, *graders = spans
        assert root.name == "invoke_agent answer"
        assert root.parent_span_id is None
        assert root.attributes["gen_ai.conversation.id"] == name
        assert root.attributes["arkdev.verdict"] == "success"
        assert root.attributes["input"]["sample"]["messages"][0]["content"] == "hello"
        assert (wrapped.name, raw.name) == ("chat scripted", "chat scripted")
        assert (wrapped.attributes["arkdev.via"], raw.attributes["arkdev.via"]) == (
            "wrapped",
            "raw",
        )
        for call in (wrapped, raw):
            assert call.kind == "client"
            assert call.attributes["gen_ai.usage.output_tokens"] > 0
            assert call.attributes["gen_ai.response.finish_reasons"] == ["stop"]
            assert call.attributes["gen_ai.response.id"]
        assert tool.attributes["gen_ai.tool.call.result"] == "21 degrees in hello"
        assert {span.parent_span_id for span in (wrapped, raw, tool)} == {root.span_id}
        assert {span.trace_id for span in (root, wrapped, raw, tool)} == {root.trace_id}
        single = next(g for g in graders if g.attributes["arkdev.grader"] == "one")
        group = next(g for g in graders if g.attributes["arkdev.grader"] == "all_of_them")
        assert (single.trace_id, single.parent_span_id) == (root.trace_id, root.span_id)
        assert group.trajectory_ids == ("0.0", "0.1")
        assert group.trace_id != root.trace_id
        assert {"trace_id": root.trace_id, "span_id": root.span_id} in group.links


def test_a_retried_attempt_is_a_trace_of_its_own(workspace: Workspace) -> None:
    workspace.write(
        "plugins/rollout.py",
        """
        import logging
        from arkdev import rollout
        seen = []

        @rollout
        def answer(context, proxy, sample):
            logging.getLogger("mine").warning("attempt of the plugin: %d", len(seen))
            seen.append(1)
            client = proxy.rollout_client()
            client.chat.completions.create(model="m", messages=sample.model_dump()["messages"])
            if len(seen) == 1:
                raise ValueError("the search is down")
        """,
    )
    run = workspace.run(trace=True)
    first, second = (s for s in spans_of(run)["0.0"] if s.name == "invoke_agent answer")
    assert (first.attempt, second.attempt) == (0, 1)
    assert first.error == "ValueError: the search is down"
    assert second.error is None
    assert first.trace_id != second.trace_id
    # what retried attempts logged is kept, with their number
    said = {line.attempt: line.text for line in run.reader.logs("0.0")}
    assert said == {0: "attempt of the plugin: 0", 1: "attempt of the plugin: 1"}


def test_nothing_is_written_without_the_flag(traced: Workspace, arkdev: Command) -> None:
    told = arkdev("test", "plugin", "--json")
    assert told.document["trace"] is None
    run = traced.run()
    assert not (run.outcome.folder / "traces.jsonl").exists()
    assert run.outcome.tracing is None
    told = arkdev("show", "0.0", "--trace")
    assert told.exit_code == 2
    assert "--trace` records them" in told.err


@pytest.mark.parametrize("kind", ["thread", "pool", "call"])
def test_tools_of_synchronous_rollouts_are_under_their_own(workspace: Workspace, kind: str) -> None:
    # field case 10.1: 8 concurrent sync rollouts, some call tools from threads of their own
    workspace.write(
        "plugins/rollout.py",
        f"""
        import threading, time
        from concurrent.futures import ThreadPoolExecutor
        from arkdev import rollout
        from arkdev.observe.tracing import observe

        SHARED = ThreadPoolExecutor(3)

        @observe()
        def tool(place):
            time.sleep(0.002)
            return place

        @rollout
        def answer(context, proxy, sample):
            place = sample.messages[0].content
            client = proxy.rollout_client()
            client.chat.completions.create(model="m", messages=sample.model_dump()["messages"])
            for _ in range(3):
                if {kind!r} == "thread":
                    thread = threading.Thread(target=tool, args=(place,))
                    thread.start()
                    thread.join()
                elif {kind!r} == "pool":
                    SHARED.submit(tool, place).result()
                else:
                    tool(place)
        """,
    )
    workspace.samples(*(f"place {number}" for number in range(24)))
    run = workspace.run(trace=True, concurrency=8)
    tools = 0
    for name, spans in spans_of(run).items():
        root = spans[0]
        for span in spans:
            if span.name == "tool":
                tools += 1
                assert span.parent_span_id == root.span_id
                sample = name.partition(".")[0]
                assert span.attributes["gen_ai.tool.call.result"] == f"place {sample}"
    assert tools == 24 * 3
    assert run.outcome.tracing is not None
    assert run.outcome.tracing.warnings == ()


def test_no_spans_are_crossed_at_256_rollouts_at_once(workspace: Workspace) -> None:
    workspace.write(
        "plugins/rollout.py",
        """
        import asyncio
        from arkdev import rollout
        from arkdev.observe.tracing import observe

        @observe()
        async def tool(place):
            await asyncio.sleep(0.01)
            return await asyncio.to_thread(inner, place)

        @observe()
        def inner(place):
            return place

        @rollout
        async def answer(context, proxy, sample):
            client = proxy.async_rollout_client()
            messages = sample.model_dump()["messages"]
            await client.chat.completions.create(model="m", messages=messages)
            await asyncio.gather(*(tool(messages[0]["content"]) for _ in range(3)))
        """,
    )
    workspace.samples(*(f"place {number}" for number in range(512)))
    run = workspace.run(trace=True, concurrency=256)
    for name, spans in spans_of(run).items():
        by_id = {span.span_id: span for span in spans}
        names = defaultdict(int)
        for span in spans:
            names[span.name] += 1
            assert span.trace_id == spans[0].trace_id
            assert span.parent_span_id in by_id or span is spans[0]
            if span.name in ("tool", "inner"):
                place = f"place {name.partition('.')[0]}"
                assert span.attributes["gen_ai.tool.call.result"] == place
                assert by_id[span.parent_span_id or ""].name == (
                    "invoke_agent answer" if span.name == "tool" else "tool"
                )
        assert names == {
            "invoke_agent answer": 1,
            "chat scripted": 1,
            "tool": 3,
            "inner": 3,
            "grade one": 1,
        }


@pytest.mark.parametrize("order", ["before", "after", "both"])
def test_a_client_that_is_wrapped_twice_records_each_call_once(
    workspace: Workspace, order: str
) -> None:
    # field case 10.4: wrap_client_inplace twice, one client shared, wrap_inplace_trace around it
    workspace.write(
        "plugins/rollout.py",
        f"""
        import asyncio
        from openai import AsyncOpenAI
        from arkdev import rollout, wrap_async_client_inplace, wrap_inplace_trace

        SHARED = AsyncOpenAI(base_url="http://127.0.0.1:1/v1", api_key="none")

        @rollout
        async def answer(context, proxy, sample):
            if {order!r} in ("before", "both"):
                wrap_inplace_trace(SHARED)
            wrap_async_client_inplace(SHARED, proxy=proxy)
            wrap_async_client_inplace(SHARED, proxy=proxy)
            if {order!r} in ("after", "both"):
                wrap_inplace_trace(SHARED)
            messages = sample.model_dump()["messages"]
            for _ in range(2):
                await SHARED.chat.completions.create(model="m", messages=messages)
                await asyncio.sleep(0.005)
        """,
    )
    workspace.samples(*(f"hello {number}" for number in range(8)))
    run = workspace.run(trace=True, concurrency=8)
    assert [len(record.turns) for record in run.trajectories] == [2] * 8
    for record in run.trajectories:
        assert record.messages[0]["content"] == f"hello {record.sample_index}"
    for name, spans in spans_of(run).items():
        calls = [span for span in spans if span.name == "chat scripted"]
        assert len(calls) == 2
        for call in calls:
            [message] = call.attributes["gen_ai.input.messages"]
            assert message["parts"][0]["content"] == f"hello {name.partition('.')[0]}"


def test_a_judge_s_own_calls_are_spans_of_their_grader(workspace: Workspace) -> None:
    workspace.write(
        "plugins/grader.py",
        """
        import os
        import httpx
        from openai import OpenAI
        from arkdev import single_grader, wrap_inplace_trace

        @single_grader
        def one(context, sample, trajectory):
            judge = OpenAI(base_url=os.environ["ARK_BASE_URL"], api_key=os.environ["ARK_API_KEY"])
            wrap_inplace_trace(judge)
            ask = {"model": "judge", "messages": [{"role": "user", "content": "Good?"}]}
            reply = judge.chat.completions.create(**ask)
            assert reply.choices[0].message.content
            list(judge.chat.completions.create(**ask, stream=True))
            url = os.environ["ARK_BASE_URL"] + "/nothing?api_key=sk-1234567"
            httpx.get(url)
            return 1.0
        """,
    )
    run = workspace.run(trace=True)
    spans = spans_of(run)["0.0"]
    grader = next(span for span in spans if span.name == "grade one")
    inside = [span for span in spans if span.parent_span_id == grader.span_id]
    whole, streamed = (span for span in inside if span.name == "chat judge")
    for call in (whole, streamed):
        assert call.attributes["gen_ai.response.finish_reasons"] == ["stop"]
        assert call.attributes["gen_ai.request.model"] == "judge"
    assert whole.attributes["gen_ai.output.messages"][0]["parts"]
    assert whole.attributes["gen_ai.usage.output_tokens"] > 0
    get = next(span for span in inside if span.name.startswith("GET 127.0.0.1"))
    assert get.attributes["http.response.status_code"] == 404
    assert get.error == "status 404"
    assert "sk-1234567" not in str(get.attributes)
    assert "api_key=***" in get.attributes["url.full"]


def test_a_grouped_rollout_s_trace_is_that_of_all_its_trajectories(workspace: Workspace) -> None:
    workspace.write(
        "plugins/rollout.py",
        """
        from arkdev import GroupRolloutResult, SingleResponse, group_rollout

        @group_rollout
        def answer(context, proxy, sample, n_sample):
            print("once for all")
            client = proxy.rollout_client()
            ids = [
                client.responses.create(model="m", input="hello").id for _ in range(n_sample)
            ]
            return GroupRolloutResult(responses=[SingleResponse(id=name) for name in ids])
        """,
    )
    run = workspace.run(trace=True, num_generations=2)
    for name in ("0.0", "0.1"):
        names = [span.name for span in spans_of(run, name)[name]]
        assert names.count("invoke_agent answer") == 1
        assert names.count("chat scripted") == 2


def test_the_waterfall_fits_80_columns_in_ascii(
    traced: Workspace, arkdev: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = arkdev(
        *("test", "plugin", "--rollout", "plugins.traced:answer"),
        *("--grader", "plugins.traced:one", "--trace"),
    )
    assert "spans recorded; see them: arkdev show" in told.err
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    told = arkdev("show", "0.0", "--trace")
    lines = told.out.splitlines()
    assert lines[0] == "attempt 1: invoke_agent answer  success"
    assert lines[1].startswith("invoke_agent answer  ")
    assert [line.split()[0] for line in lines[2:5]] == ["chat", "chat", "tool"]
    assert all(line.startswith("  ") for line in lines[2:5])
    assert all(line.rstrip().endswith("s") for line in lines[1:5])
    assert lines[6] == "grading: grade one  success"
    assert max(map(len, lines)) <= 80
    told = arkdev("show", "latest", "--trace")
    assert (told.exit_code, "--trace is of one trajectory" in told.err) == (2, True)


def test_a_traced_grader_with_a_bare_decorator_and_the_older_type(workspace: Workspace) -> None:
    workspace.write(
        "plugins/grader.py",
        """
        from ark_sdk.core.trace import trace_monitor
        from ark_sdk.resources.pipeline_plugin import single_grader
        from ark_sdk.types.pipeline_plugin import PluginContext, SingleGraderResult
        from ark_sdk.types.pipeline_plugin.rollout import ChatCompletion, ChatCompletionSample

        @single_grader
        @trace_monitor
        def one(
            context: PluginContext, sample: ChatCompletionSample, completion: ChatCompletion
        ) -> SingleGraderResult:
            return SingleGraderResult(reward=1.0)
        """,
    )
    run = workspace.run(trace=True)
    (grader,) = (span for span in spans_of(run)["0.0"] if span.name == "grade one")
    assert grader.attributes["input"]["completion"]["messages"][0]["content"] == "hello"
    assert grader.attributes["output"]["reward"] == 1.0
