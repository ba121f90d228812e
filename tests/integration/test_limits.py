"""Limits of the endpoint and of tools, by flag and by file, and what the report says of them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from arkdev.runs.reader import RunReader
from tests.integration.loopback import Loopback, listening
from tests.integration.workspace import Command, Workspace

ANSWER = {
    "id": "a",
    "object": "chat.completion",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "fine"},
            "finish_reason": "stop",
        }
    ],
    "usage": {"prompt_tokens": 60, "completion_tokens": 40, "total_tokens": 100},
}
BOTH_LOOPS = """
    from arkdev import rollout

    @rollout
    async def answer(context, proxy, sample):
        client = proxy.async_rollout_client()
        await client.chat.completions.create(
            model="m", messages=sample.model_dump()["messages"]
        )
"""


class Server:
    """Knows when requests came and how many were there at once."""

    def __init__(self, *, duration_s: float = 0.0, takes: int = 10_000) -> None:
        self.duration_s, self.takes = duration_s, takes
        self.times: list[float] = []
        self.under_way = self.peak = 0
        self._lock = threading.Lock()

    def __call__(self, _number: int, _body: dict[str, Any]) -> tuple[int, Any]:
        with self._lock:
            self.times.append(time.monotonic())
            if self.under_way >= self.takes:
                return 429, {"error": {"message": "too many at once"}}
            self.under_way += 1
            self.peak = max(self.peak, self.under_way)
        time.sleep(self.duration_s)
        with self._lock:
            self.under_way -= 1
        return 200, ANSWER


@pytest.fixture
def server() -> Iterator[tuple[Server, Loopback]]:
    policy = Server(duration_s=0.02)
    with listening(policy) as loopback:
        yield policy, loopback


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("way", ["threads", "event loop"])
def test_calls_under_way_keep_to_the_flag_and_the_report_says_what_was_waited(
    workspace: Workspace, arkdev: Command, server: tuple[Server, Loopback], way: str
) -> None:
    policy, loopback = server
    if way == "event loop":
        workspace.write("plugins/rollout.py", BOTH_LOOPS)
    workspace.samples(*["hello"] * 12)
    told = arkdev("test", "plugin", "--endpoint", loopback.url, "--max-in-flight", "2")
    assert (told.exit_code, policy.peak) == (0, 2), told.err
    assert "2 in flight" in words(told.out)
    assert "for the limits (no part of their latency)" in words(told.out)
    run = RunReader(next((workspace.root / "runs").iterdir()))
    (event,) = [event for event in run.events() if event["kind"] == "limits"]
    assert event["endpoint"]["waited_s"]["max_in_flight"] > 0.05
    assert run.manifest.settings["limits"]["max_in_flight"] == 2
    waited = sum(a.limit_wait_s for t in run.trajectories() for a in t.attempts)
    assert waited > 0.05
    turns = [turn for trajectory in run.trajectories() for turn in trajectory.turns]
    assert sum(turn.waited_s for turn in turns) == pytest.approx(waited)
    assert min(turn.duration_s - turn.waited_s for turn in turns) < 0  # it is no part of it
    shown = arkdev("show", "latest")
    assert words(shown.out).count("for the limits (no part of their latency)") == 1


def test_the_definition_s_limits_hold_and_a_flag_wins_over_them(
    workspace: Workspace, arkdev: Command, server: tuple[Server, Loopback]
) -> None:
    policy, loopback = server
    workspace.write(
        "arkworkspace.toml",
        f"""
        [endpoints.lab]
        base_url = "{loopback.url}"
        model = "m"
        max_in_flight = 1
        requests_per_minute = 60000
        """,
    )
    workspace.samples(*["hello"] * 6)
    told = arkdev("test", "plugin", "--endpoint", "lab", "--json")
    assert (told.exit_code, policy.peak) == (0, 1)
    use = told.document["summary"]["limits"]["endpoint"]
    assert use["limits"]["requests_per_minute"] == 60_000
    assert (use["limits"]["max_in_flight"], use["peak_in_flight"]) == (1, 1)
    assert told.document["summary"]["limit_wait_s"] > 0.03
    told = arkdev("test", "plugin", "--endpoint", "lab", "--max-in-flight", "3", "--json")
    assert policy.peak == 3
    assert told.document["settings"]["limits"]["max_in_flight"] == 3


def test_requests_and_tokens_go_out_at_their_rate(
    workspace: Workspace, arkdev: Command, server: tuple[Server, Loopback]
) -> None:
    policy, loopback = server
    workspace.samples(*["hello"] * 6)
    arkdev("test", "plugin", "--endpoint", loopback.url, "--requests-per-minute", "300")
    assert policy.times[-1] - policy.times[0] > 0.3  # 0.2 s apart
    policy.times.clear()
    # an answer takes 100 tokens, 0.2 s worth
    told = arkdev("test", "plugin", "--endpoint", loopback.url, "--tokens-per-minute", "30000")
    assert policy.times[-1] - policy.times[0] > 0.4
    assert "by tokens per minute" in words(told.out)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("max_in_flight", "0", "max_in_flight is 0; a whole number of at least 1"),
        ("requests_per_minute", '"60"', "requests_per_minute is '60'; a whole number"),
        ("tokens_per_minute", "1.5", "tokens_per_minute is 1.5; a whole number"),
        ("max_in_flight", "true", "max_in_flight is True; a whole number"),
        ("requests_per_second", "1", "no setting 'requests_per_second'"),
    ],
)
@pytest.mark.parametrize("of_the_user", [True, False])
def test_a_wrong_limit_is_an_error_with_file_and_key(
    workspace: Workspace, arkdev: Command, key: str, value: str, said: str, of_the_user: bool
) -> None:
    text = f'[endpoints.lab]\nbase_url = "http://127.0.0.1:9"\n{key} = {value}\n'
    name = "../config/arkdev/config.toml" if of_the_user else "arkworkspace.toml"
    workspace.write(name, text)
    told = arkdev("test", "plugin", "--endpoint", "lab", "--model", "m")
    assert told.exit_code == 2
    assert said in told.err
    assert f"{name.rpartition('/')[2]} [endpoints.lab]" in told.err.replace("\n", "")


def test_adaptive_concurrency_settles_and_says_what_the_endpoint_sustained(
    workspace: Workspace, arkdev: Command
) -> None:
    workspace.samples(*["hello"] * 120)
    with listening(Server(duration_s=0.1, takes=4)) as loopback:
        url = loopback.url
        told = arkdev("test", "plugin", "--endpoint", url, "--adaptive", "--concurrency", "24")
    assert "adaptive" in told.out
    assert "settled at" in told.out
    assert "requests/s" in words(told.out)
    document = arkdev("show", "latest", "--json").document
    seen = document["run"]["summary"]["limits"]["endpoint"]["sustained"]
    assert seen["num_decreases"] >= 1
    assert 1 <= seen["settled_at"] <= 10
    assert seen["requests_per_s"] > 5


def test_adaptive_without_anything_to_adapt_is_an_error(
    workspace: Workspace, arkdev: Command
) -> None:
    for flags in (["--concurrency", "1"], ["--max-in-flight", "1"]):
        told = arkdev("test", "plugin", "--adaptive", *flags)
        assert told.exit_code == 2
        assert "--adaptive" in told.err


USES_TOOLS = """
    import asyncio, json
    import aiohttp, httpx, requests
    from arkdev import rollout

    URL = {url!r}

    async def with_aiohttp():
        async with aiohttp.ClientSession() as client:
            async with client.post(URL, json={{}}) as answer:
                return await answer.json()

    async def with_httpx():
        async with httpx.AsyncClient() as client:
            return (await client.post(URL, json={{}})).json()

    @rollout
    async def answer(context, proxy, sample):
        client = proxy.async_rollout_client()
        await client.chat.completions.create(model="m", messages=sample.model_dump()["messages"])
        await asyncio.gather(
            with_aiohttp(), with_httpx(), asyncio.to_thread(requests.post, URL, json={{}})
        )
"""


def test_calls_of_tools_keep_to_the_limits_of_their_host(
    workspace: Workspace, arkdev: Command, server: tuple[Server, Loopback]
) -> None:
    policy, loopback = server
    host = loopback.url.partition("//")[2]
    workspace.write("plugins/rollout.py", USES_TOOLS.format(url=loopback.url + "/search"))
    workspace.write(
        "arkworkspace.toml",
        f"""
        [tools."{host}"]
        max_in_flight = 2

        [tools."127.0.0.1"]
        requests_per_minute = 6000
        """,
    )
    workspace.samples(*["hello"] * 4)
    told = arkdev("test", "plugin")
    assert told.exit_code == 0, told.out
    assert (len(policy.times), policy.peak) == (12, 2)
    assert f"tool {host}" in told.out
    assert "of 12 calls held back" in words(told.out)
    document = arkdev("show", "latest", "--json").document
    tools = document["run"]["summary"]["limits"]["tools"]
    assert {tool["host"]: tool["num_calls"] for tool in tools} == {host: 12, "127.0.0.1": 12}
    assert document["run"]["settings"]["limits"]["tools"][host]["max_in_flight"] == 2


ASKS_FROM_THREADS = """
import os
from concurrent.futures import ThreadPoolExecutor

from openai import OpenAI

with OpenAI(base_url=os.environ["ARK_BASE_URL"], api_key=os.environ["ARK_API_KEY"]) as client:
    def ask(_):
        messages = [{"role": "user", "content": "hello"}]
        return client.chat.completions.create(model="m", messages=messages)
    with ThreadPoolExecutor(6) as pool:
        assert len(list(pool.map(ask, range(6)))) == 6
"""


def test_the_definition_s_limits_hold_for_a_script_too(
    workspace: Workspace, arkdev: Command, server: tuple[Server, Loopback]
) -> None:
    policy, loopback = server
    workspace.write("ask.py", ASKS_FROM_THREADS)
    workspace.write(
        "arkworkspace.toml",
        f'[endpoints.lab]\nbase_url = "{loopback.url}"\nmodel = "m"\nmax_in_flight = 2\n',
    )
    told = arkdev("run", "ask.py", "--endpoint", "lab")
    assert (told.exit_code, len(policy.times), policy.peak) == (0, 6, 2), told.err


def test_without_limits_there_is_nothing_to_say(workspace: Workspace, arkdev: Command) -> None:
    told = arkdev("test", "plugin", "--json")
    assert told.document["summary"]["limits"] is None
    assert told.document["summary"]["limit_wait_s"] == 0
    assert "Limits" not in arkdev("show").out


def test_a_resumed_run_may_have_other_limits(workspace: Workspace) -> None:
    workspace.samples(*["hello"] * 3)
    run = workspace.run(max_in_flight=2)
    manifest = run.outcome.folder / "manifest.json"
    document = json.loads(manifest.read_text(encoding="utf-8"))
    document["status"] = "interrupted"
    manifest.write_text(json.dumps(document), encoding="utf-8")
    again = workspace.run(resume=run.outcome.folder.name, max_in_flight=1)
    assert again.summary.num_rollouts == 3
    assert again.exit_code == 0


BLOCKS_THE_LOOP = """
    import httpx, os, requests
    from arkdev import rollout

    @rollout
    async def answer(context, proxy, sample):
        question = {{"model": "m", "messages": sample.model_dump()["messages"]}}
        await proxy.async_rollout_client().chat.completions.create(**question)
        proxy.rollout_client().chat.completions.create(**question)
        async with httpx.AsyncClient() as client:
            await client.post("{url}/tool", json={{}})
        requests.post("{url}/tool", json={{}}, timeout=60)
"""


def test_synchronous_clients_in_async_plugins_end_under_limits_and_go_over_those_of_tools(
    workspace: Workspace, arkdev: Command, server: tuple[Server, Loopback]
) -> None:
    _, loopback = server
    workspace.write("plugins/rollout.py", BLOCKS_THE_LOOP.format(url=loopback.url))
    workspace.write("arkworkspace.toml", '[tools."127.0.0.1"]\nmax_in_flight = 1\n')
    workspace.samples(*["hello"] * 6)
    told = arkdev("test", "plugin", "--endpoint", loopback.url, "--max-in-flight", "2")
    assert told.exit_code == 0, told.err
    run = RunReader(next((workspace.root / "runs").iterdir()))
    (event,) = [event for event in run.events() if event["kind"] == "limits"]
    (tool,) = event["tools"]
    assert (tool["num_calls"], event["endpoint"]["peak_in_flight"]) == (12, 2)
    assert tool["num_over"] > 0
    assert "over max_in_flight, since waiting would have blocked" in words(told.out)
