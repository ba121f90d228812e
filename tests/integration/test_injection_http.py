"""`--inject` on the HTTP calls of plugins: tools of rollouts and judges of graders."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from arkdev.runs.records import Verdict
from tests.integration.loopback import Loopback, listening
from tests.integration.workspace import Workspace

TOOLS = '''
    import asyncio
    import os

    import aiohttp
    import httpx
    import requests
    from arkdev import RolloutResult, rollout

    URL = os.environ.get("TOOL_URL", "")


    async def with_httpx(question):
        async with httpx.AsyncClient() as client:
            response = await client.post(f"{URL}/httpx", json={"q": question})
            response.raise_for_status()
            return response.json()


    async def with_aiohttp(question):
        async with aiohttp.ClientSession() as session:
            async with session.post(f"{URL}/aiohttp", json={"q": question}) as response:
                response.raise_for_status()
                return await response.json()


    def with_requests(question):
        response = requests.post(f"{URL}/requests", json={"q": question})
        response.raise_for_status()
        return response.json()


    @rollout
    async def answer(context, proxy, sample):
        """Calls a tool with each library at once; notes how each call ended."""
        question = sample.messages[0].content
        client = proxy.async_rollout_client()
        await client.chat.completions.create(model="m", messages=sample.model_dump()["messages"])
        ended = await asyncio.gather(
            with_httpx(question),
            with_aiohttp(question),
            asyncio.to_thread(with_requests, question),
            return_exceptions=True,
        )
        names = [type(e).__name__ if isinstance(e, Exception) else "ok" for e in ended]
        return RolloutResult(extra={"ended": names, "texts": [str(e) for e in ended]})
'''

JUDGE = """
    import os
    from arkdev import single_grader

    @single_grader
    async def one(context, sample, trajectory):
        from openai import AsyncOpenAI
        async with AsyncOpenAI(
            base_url=os.environ["ARK_BASE_URL"], api_key="k", max_retries=0
        ) as client:
            await client.chat.completions.create(
                model="judge", messages=[{"role": "user", "content": "Score from 0 to 1?"}]
            )
        return 1.0
"""


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    with listening(lambda _number, _body: (200, {"results": ["a", "b"]})) as service:
        monkeypatch.setenv("TOOL_URL", service.url)
        yield service


@pytest.fixture
def tools(workspace: Workspace, service: Loopback) -> Workspace:
    workspace.write("plugins/rollout.py", TOOLS)
    return workspace


@pytest.mark.parametrize(
    ("item", "ended", "num_sent"),
    [
        ("503", ["HTTPStatusError", "ClientResponseError", "HTTPError"], 0),
        ("timeout", ["ReadTimeout", "SocketTimeoutError", "ReadTimeout"], 0),
        ("raise", ["RemoteProtocolError", "ClientPayloadError", "ChunkedEncodingError"], 0),
        ("garbage", ["JSONDecodeError"] * 3, 3),
        ("cut_json", ["JSONDecodeError"] * 3, 3),
        ("slow", ["ok"] * 3, 3),
    ],
)
def test_every_library_meets_the_fault_as_its_own_error(
    tools: Workspace, service: Loopback, item: str, ended: list[str], num_sent: int
) -> None:
    duration = ":30ms" if item == "slow" else ""
    (trajectory,) = tools.run(inject=f"tool.{item}=100%{duration}").trajectories
    assert trajectory.extra is not None
    assert trajectory.extra["ended"] == ended
    assert len(service.requests) == num_sent
    (attempt,) = trajectory.attempts
    host = service.url.removeprefix("http://")
    assert [(f.side, f.kind, f.target, f.handled_by) for f in attempt.faults] == [
        ("tool", item, host, "plugin")
    ] * 3
    assert all(fault.is_injected for fault in attempt.faults)
    assert (attempt.faults[0].detail == "0.03 s") is (item == "slow")


def test_an_empty_body_is_what_an_empty_body_is(tools: Workspace) -> None:
    (trajectory,) = tools.run(inject="tool.empty=100%").trajectories
    assert trajectory.extra is not None
    ended = trajectory.extra["ended"]
    assert (ended[0], ended[2]) == ("JSONDecodeError", "JSONDecodeError")
    assert trajectory.extra["texts"][1] == "None"  # aiohttp's json() of nothing
    assert [fault.kind for fault in trajectory.attempts[0].faults] == ["empty"] * 3


def ends_of(workspace: Workspace, concurrency: int) -> dict[str, object]:
    run = workspace.run(inject="tool.500=40%", seed=4, num_generations=2, concurrency=concurrency)
    return {
        record.trajectory_id: [(record.extra or {})["ended"], len(record.attempts[0].faults)]
        for record in run.trajectories
    }


def test_calls_that_run_side_by_side_meet_the_same_faults_at_any_concurrency(
    tools: Workspace,
) -> None:
    tools.samples(*(f"question {number}" for number in range(6)))
    alone, together = ends_of(tools, 1), ends_of(tools, 12)
    assert alone == together
    num_ok = sum(str(ended).count("'ok'") for ended in alone.values())
    assert 0 < num_ok < 36


def test_model_calls_are_no_traffic_of_tools(tools: Workspace) -> None:
    tools.write(
        "plugins/rollout.py",
        """
        from openai import AsyncOpenAI
        from arkdev import rollout

        @rollout
        async def answer(context, proxy, sample):
            async with AsyncOpenAI(base_url=proxy.url, api_key=proxy.jwt_token) as client:
                completion = await client.chat.completions.create(
                    model="m", messages=sample.model_dump()["messages"]
                )
            proxy.process_completion(completion)
        """,
    )
    (trajectory,) = tools.run(inject="tool.raise=100%").trajectories
    assert trajectory.verdict is Verdict.SUCCESS
    assert trajectory.attempts[0].faults == ()


def test_a_judge_s_call_is_a_tool_s_fault_of_the_grading(workspace: Workspace) -> None:
    workspace.write("plugins/grader.py", JUDGE)
    (group,) = workspace.run(inject="tool.429=100%").groups
    assert group.rewards == (None,)
    (grader,) = group.graders
    assert "RateLimitError" in (grader.error or "") and "injected 429" in (grader.error or "")
    assert [(f.side, f.kind, f.is_injected) for f in grader.faults] == [("tool", "429", True)] * 4


def test_a_judge_on_another_port_in_each_run_meets_the_same_faults(workspace: Workspace) -> None:
    workspace.write("plugins/grader.py", JUDGE)
    workspace.samples(*(f"question {number}" for number in range(12)))

    def faults() -> list[int]:
        run = workspace.run(inject="tool.429=40%", seed=1)
        return [len(group.graders[0].faults) for group in run.groups]

    first = faults()
    assert first == faults()
    assert 0 < sum(first) < 48
