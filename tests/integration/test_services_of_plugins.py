"""What plugins call over HTTP for themselves, from the call to the report (LT-14)."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from arkdev.runs.records import HandledBy, Verdict
from tests.integration.loopback import listening
from tests.integration.workspace import Command, Workspace

CALLS_WITH = """
    import aiohttp, httpx, requests
    from arkdev import rollout

    URL = "%s/search?key=s3cret"

    @rollout
    async def with_httpx(context, proxy, sample):
        await proxy.async_rollout_client().chat.completions.create(
            model="m", messages=sample.model_dump()["messages"])
        async with httpx.AsyncClient() as client:
            answer = await client.post(URL, json={})
        return {"status": "success", "extra": {"status": answer.status_code}}

    @rollout
    async def with_aiohttp(context, proxy, sample):
        await proxy.async_rollout_client().chat.completions.create(
            model="m", messages=sample.model_dump()["messages"])
        async with aiohttp.ClientSession() as session, session.post(URL, json={}) as answer:
            return {"status": "success", "extra": {"status": answer.status}}

    @rollout
    def with_requests(context, proxy, sample):
        proxy.rollout_client().chat.completions.create(
            model="m", messages=sample.model_dump()["messages"])
        return {"status": "success", "extra": {"status": requests.post(URL, json={}).status_code}}

    @rollout
    async def raw(context, proxy, sample):
        async with httpx.AsyncClient() as client:
            await client.post(
                f"{proxy.url}/chat/completions",
                headers={"Authorization": f"Bearer {proxy.jwt_token}"},
                json={"model": "m", "messages": sample.model_dump()["messages"]},
            )
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


@pytest.mark.parametrize("plugin", ["with_httpx", "with_aiohttp", "with_requests"])
def test_a_service_is_measured_and_its_real_faults_are_in_the_records(
    workspace: Workspace, plugin: str
) -> None:
    workspace.samples(*(str(i) for i in range(30)))
    with listening(lambda n, _: (503, {"error": "busy"}) if n % 3 == 0 else (200, {})) as service:
        workspace.write("plugins/rollout.py", CALLS_WITH % service.url)
        run = workspace.run(rollout=f"plugins.rollout:{plugin}", concurrency=4)

    host = service.url.removeprefix("http://")
    (found,) = run.summary.services
    assert (found.host, found.num_calls, found.num_errors) == (host, 30, 10)
    assert found.outcomes == {"2xx": 20, "5xx": 10}
    assert 1 <= found.max_in_flight <= 4
    assert [one.kind for one in found.unstable] == ["errors"]
    faulty = [record for record in run.trajectories if record.attempts[0].faults]
    assert len(faulty) == 10
    assert all(record.extra == {"status": 503} for record in faulty)
    (fault,) = faulty[0].attempts[0].faults
    assert (fault.side, fault.kind, fault.target) == ("tool", "503", host)
    assert (fault.handled_by, fault.is_injected) == (HandledBy.PLUGIN, False)
    assert fault.detail == '{"error": "busy"}'


def test_calls_of_the_gateway_are_no_service(workspace: Workspace) -> None:
    workspace.write("plugins/rollout.py", CALLS_WITH % "http://127.0.0.1:9")
    run = workspace.run(rollout="plugins.rollout:raw")
    assert run.trajectories[0].verdict is Verdict.SUCCESS
    assert run.summary.services == ()


def test_the_endpoint_of_the_run_is_no_service_and_a_dead_tool_is_a_fault(
    workspace: Workspace,
) -> None:
    workspace.write("plugins/rollout.py", CALLS_WITH % "http://127.0.0.1:9")
    message = {"role": "assistant", "content": "fine"}
    answer = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    with listening(lambda *_: (200, answer)) as endpoint:
        run = workspace.run(
            rollout="plugins.rollout:with_aiohttp", endpoint=f"{endpoint.url}/v1", model="m"
        )
    (found,) = run.summary.services
    assert (found.host, found.outcomes) == ("127.0.0.1:9", {"unreachable": 4})
    faults = [fault for one in run.trajectories[0].attempts for fault in one.faults]
    assert [(fault.kind, fault.handled_by) for fault in faults] == [
        ("unreachable", HandledBy.NOBODY)
    ] * 4
    assert not any("s3cret" in fault.detail for fault in faults)


def test_the_scripted_judge_has_a_name(workspace: Workspace) -> None:
    workspace.write(
        "plugins/grader.py",
        """
        import openai
        from arkdev import single_grader

        @single_grader
        def one(context, sample, trajectory):
            client = openai.OpenAI(base_url="https://ark.cn-beijing.volces.com/api/v3")
            client.chat.completions.create(
                model="judge", messages=[{"role": "user", "content": "grade this"}])
            return 1.0
        """,
    )
    (found,) = workspace.run().summary.services
    assert (found.host, found.num_calls) == ("judge (scripted)", 1)


SLOWS_DOWN = """
    import httpx
    from arkdev import rollout

    client = httpx.Client()

    @rollout
    def answer(context, proxy, sample):
        proxy.rollout_client().chat.completions.create(
            model="m", messages=sample.model_dump()["messages"])
        client.post("%s", json={}).raise_for_status()
"""


def test_a_service_that_slows_down_is_called_out_also_when_it_is_shown_again(
    workspace: Workspace, arkdev: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.samples(*(str(i) for i in range(160)))

    def policy(num_requests: int, _body: object) -> tuple[int, object]:
        if num_requests > 60:
            time.sleep(0.2)  # far above what a busy machine adds to the first sixty
        return 200, {}

    monkeypatch.chdir(workspace.root)
    with listening(policy) as service:
        workspace.write("plugins/rollout.py", SLOWS_DOWN % service.url)
        told = arkdev("test", "plugin", "--concurrency", "8")

    assert told.exit_code == 0
    host = service.url.removeprefix("http://")
    line = next(line for line in told.out.splitlines() if "unstable" in line)
    assert re.search(rf"{host}: p(50|95) [\d.]+ m?s in the first quarter, [\d.]+ m?s in the", line)
    shown = arkdev("show").out
    assert line in shown
    document = arkdev("show", "--json").document["run"]["summary"]["services"][0]
    assert document["unstable"][0]["kind"] == "latency"
    assert (document["num_calls"], document["num_errors"]) == (160, 0)


def test_a_steady_noisy_service_is_in_the_table_and_nothing_is_said_of_it(
    workspace: Workspace, arkdev: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.samples(*(str(i) for i in range(120)))

    def policy(num_requests: int, _body: object) -> tuple[int, object]:
        # far above what a busy machine adds to a quarter of the calls; where it stands still for
        # a while, four calls of thirty are late
        time.sleep(0.05 + 0.01 * (num_requests * 7919 % 23))
        return 200, {}

    monkeypatch.chdir(workspace.root)
    with listening(policy) as service:
        workspace.write("plugins/rollout.py", SLOWS_DOWN % service.url)
        told = arkdev("test", "plugin", "--concurrency", "4")
    assert service.url.removeprefix("http://") in told.out
    assert "unstable" not in told.out


def test_a_run_without_services_has_no_such_section(
    workspace: Workspace, arkdev: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workspace.root)
    assert "Services" not in arkdev("test", "plugin").out
