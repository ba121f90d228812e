"""`--record` and `--replay`: a run's code runs again without the services that it used."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from arkdev.runs.reader import RunReader
from tests.integration.loopback import Loopback, listening
from tests.integration.workspace import Command, Told, Workspace, job_yaml
from tests.running import answer

DECLARED = "declared-sentinel-8c1f"
HEADER = "header-sentinel-77aa"
BODY = "body-sentinel-1b2c"
QUERY = "query-sentinel-90fe"
REPLY = "reply-sentinel-3d4e"
KEY = "sk-key-sentinel-5511"
SENTINELS = (DECLARED, HEADER, BODY, QUERY, REPLY, KEY)

ZOO = """
    import asyncio
    import os
    import random
    import time
    import uuid
    from datetime import datetime
    from random import choice

    import aiohttp
    import httpx
    import requests
    from arkdev import RolloutResult, RolloutRetryException, rollout

    SERVICES = {services!r}
    STARTED = datetime.now().isoformat()

    async def by_httpx(question):
        headers = {{"Authorization": "Bearer {header}"}}
        async with httpx.AsyncClient() as client:
            url = f"{{SERVICES}}/httpx?token={query}&q={{question}}"
            body = {{"api_key": "{body}", "q": 1}}
            return (await client.post(url, json=body, headers=headers)).json()

    async def by_aiohttp(question):
        async with aiohttp.ClientSession() as client:
            async with client.post(f"{{SERVICES}}/aiohttp", json={{"q": question}}) as response:
                return await response.json()

    def by_requests(question):
        body = {{"q": question, "declared": os.environ["DECLARED"]}}
        return requests.post(f"{{SERVICES}}/requests", json=body, timeout=5).json()

    @rollout
    async def answer(context, proxy, sample):
        question = sample.messages[0].content
        client = proxy.async_rollout_client()
        found = await asyncio.gather(
            by_httpx(question),
            by_aiohttp(question),
            asyncio.get_running_loop().run_in_executor(None, by_requests, question),
        )
        facts = [datetime.now().isoformat(), STARTED, time.time_ns(), choice("abcdefghij"),
                 random.random(), str(uuid.uuid4()), [one["number"] for one in found]]
        messages = [
            {{"role": "system", "content": f"Answer politely. Facts: {{facts}}"}},
            *sample.model_dump()["messages"],
        ]
        got = await client.chat.completions.create(model="m", messages=messages)
        if "again" in got.choices[0].message.content:
            raise RolloutRetryException("again")
        return RolloutResult(extra={{"facts": facts, "has_token": bool(found[0]["token"])}})
"""
JUDGE = """
    import random

    import httpx
    from arkdev import group_grader

    SERVICES = {services!r}

    @group_grader
    def one(context, sample, trajectories):
        with httpx.Client() as client:
            return [
                client.post(f"{{SERVICES}}/judge", json={{"text": t.messages[-1].content}}).json()[
                    "number"] + random.random()
                for t in trajectories
            ]
"""


@contextmanager
def services() -> Iterator[Loopback]:
    """A model, tools and a judge whose answers never repeat."""
    numbers = itertools.count(1)

    def policy(count: int, body: dict[str, Any]) -> tuple[int, Any]:
        if "messages" not in body:
            return 200, {"number": next(numbers), "token": REPLY}
        if count % 7 == 0:
            return 500, {"error": {"message": "busy"}}
        return 200, answer(f"answer {next(numbers)}{' again' if count % 5 == 0 else ''}")

    with listening(policy) as server:
        yield server


def write_zoo(workspace: Workspace, url: str) -> None:
    sentinels = {"header": HEADER, "body": BODY, "query": QUERY}
    workspace.write("plugins/rollout.py", ZOO.format(services=url, **sentinels))
    workspace.write("plugins/grader.py", JUDGE.format(services=url))
    plugin = {
        "name": "answer",
        "python_func": "plugins.rollout:answer",
        "envs": {"DECLARED": DECLARED},
    }
    pipeline = {
        "rollout": {"plugin": plugin},
        "graders": [{"plugin": {"name": "one", "python_func": "plugins.grader:one"}}],
    }
    workspace.write("job.yaml", job_yaml(custom_rl_pipeline=pipeline))
    workspace.samples("tea", "coffee", "milk")


def result_of(workspace: Workspace) -> dict[str, Any]:
    """What the last run came to, without what takes time and without names of runs."""
    reader = RunReader(
        max((workspace.root / "runs").iterdir(), key=lambda path: path.stat().st_ctime)
    )
    trajectories = {
        record.trajectory_id: (
            record.messages,
            record.verdict,
            record.extra,
            record.usage,
            [(attempt.verdict, attempt.error) for attempt in record.attempts],
            [(turn.response_id, turn.num_retries) for turn in record.turns],
        )
        for record in reader.trajectories()
    }
    rewards = {record.sample_index: (record.verdict, record.rewards) for record in reader.groups()}
    return {"trajectories": trajectories, "rewards": rewards}


def recorded(arkdev: Command, *arguments: str) -> Told:
    told = arkdev("test", "plugin", "--record", "tape.jsonl", *arguments)
    assert "a fault in arkdev" not in told.err
    return told


def replayed(arkdev: Command, *arguments: str) -> Told:
    return arkdev("test", "plugin", "--replay", "tape.jsonl", *arguments)


@pytest.fixture
def zoo(workspace: Workspace, arkdev: Command, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A recorded run of a rollout and a judge that use every kind of service; they are gone."""
    monkeypatch.setenv("ZOO_KEY", KEY)
    monkeypatch.setattr("arkdev.sessions.retries.RetryPolicy.wait_s", lambda *_: 0.001)
    with services() as server:
        write_zoo(workspace, server.url)
        told = recorded(
            arkdev,
            *("--endpoint", f"{server.url}/v1", "--model", "m", "--api-key-env", "ZOO_KEY"),
            *("--n-sample", "2"),
        )
        assert told.exit_code == 0, told.out + told.err
    return workspace


def test_a_run_repeats_itself_when_its_services_are_gone(zoo: Workspace, arkdev: Command) -> None:
    first = result_of(zoo)
    attempts = [one[4] for one in first["trajectories"].values()]
    assert any(len(one) > 1 for one in attempts), "a rollout was tried again"
    (zoo.root / "data.jsonl").unlink()
    grader = zoo.root / "plugins" / "grader.py"
    grader.write_text("# moved\n" + grader.read_text(encoding="utf-8"), encoding="utf-8")
    for _ in range(2):
        told = replayed(arkdev)
        assert told.exit_code == 0, told.out + told.err
        assert result_of(zoo) == first


def test_no_secret_is_on_a_tape(zoo: Workspace) -> None:
    text = (zoo.root / "tape.jsonl").read_text(encoding="utf-8")
    assert [sentinel for sentinel in SENTINELS if sentinel in text] == []
    for expected in ("/httpx?token=***", '"authorization":"***"', "Answer politely", "tea"):
        assert expected in text


def test_a_changed_word_is_named_with_its_place(zoo: Workspace, arkdev: Command) -> None:
    path = zoo.root / "plugins" / "rollout.py"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("Answer politely.", "Answer rudely."), encoding="utf-8")
    told = replayed(arkdev, "--sample", "1")
    assert told.exit_code == 1
    line = text[: text.index("await client.chat")].count("\n") + 1
    assert f"{path}:{line}" in told.out
    assert "model call 1 of 1.0 differs from the recorded one" in told.out
    removed = [
        line for line in told.out.splitlines() if line.startswith("-") and "politely" in line
    ]
    added = [line for line in told.out.splitlines() if line.startswith("+") and "rudely" in line]
    assert len(removed) == len(added) == 2, told.out
    assert "changed since the recording: plugins/rollout.py" in told.err
    assert "record the tape anew" in told.out


def test_a_call_that_is_not_made_any_more_is_told(workspace: Workspace, arkdev: Command) -> None:
    source = """
    import httpx
    from arkdev import rollout

    @rollout
    def answer(context, proxy, sample):
        httpx.post("{url}/log", json={{"q": 1}})
        client = proxy.rollout_client()
        client.chat.completions.create(model="m", messages=sample.model_dump()["messages"])
    """
    with services() as server:
        path = workspace.write("plugins/rollout.py", source.format(url=server.url))
        assert recorded(arkdev).exit_code == 0
        text = path.read_text(encoding="utf-8")
        kept = [line for line in text.splitlines() if "post" not in line]
        path.write_text("\n".join(kept), encoding="utf-8")
        told = replayed(arkdev, "--json")
    assert told.exit_code == 0, told.err
    (warning,) = told.document["summary"]["warnings"]
    assert warning["code"] == "tape_left_over"
    assert warning["detail"] == f"POST {server.url}/log"


def test_a_difference_in_a_tools_call_is_shown(zoo: Workspace, arkdev: Command) -> None:
    path = zoo.root / "plugins" / "rollout.py"
    text = path.read_text(encoding="utf-8").replace('json={"q": question})', 'json={"q": "water"})')
    path.write_text(text, encoding="utf-8")
    told = replayed(arkdev, "--sample", "0")
    assert told.exit_code == 1
    assert "HTTP call" in told.out and '-      "q": "tea"' in told.out
    assert '+      "q": "water"' in told.out
    assert BODY not in told.out and DECLARED not in told.out


def test_a_grader_that_asks_its_judge_otherwise_is_shown(zoo: Workspace, arkdev: Command) -> None:
    path = zoo.root / "plugins" / "grader.py"
    text = path.read_text(encoding="utf-8").replace('json={"text"', 'json={"answer"')
    path.write_text(text, encoding="utf-8")
    told = replayed(arkdev, "--sample", "2")
    assert told.exit_code == 1
    assert "the grading of sample 2 left the tape" in told.out
    line = text[: text.index("client.post")].count("\n") + 1
    assert f"{path}:{line}" in told.out
    assert '+      "answer": ' in told.out and '-      "text": ' in told.out
    assert result_of(zoo)["rewards"] == {2: ("failure", (None, None))}


RAW = """
    import httpx
    from arkdev import rollout

    @rollout
    async def answer(context, proxy, sample):
        messages = sample.model_dump()["messages"]
        headers = {"Authorization": f"Bearer {proxy.jwt_token}"}
        async with httpx.AsyncClient(base_url=proxy.url, headers=headers) as client:
            for question in ("more", "and more"):
                body = {"model": "m", "messages": messages}
                completion = (await client.post("chat/completions", json=body)).json()
                proxy.process_completion(completion)
                messages = [*messages, completion["choices"][0]["message"],
                            {"role": "user", "content": question}]
"""
GROUP = """
    import asyncio
    from arkdev import GroupRolloutResult, group_rollout

    @group_rollout
    async def answer(context, proxy, sample, n_sample):
        client = proxy.async_rollout_client()
        first = await client.responses.create(model="m", input=sample.messages[0].content)
        branches = await asyncio.gather(*(
            client.responses.create(model="m", input="go on", previous_response_id=first.id)
            for _ in range(n_sample)
        ))
        return GroupRolloutResult(responses=[{"id": one.id} for one in branches])
"""


@pytest.mark.parametrize(
    ("source", "call"),
    [(RAW, "client.post("), (GROUP, "await asyncio.gather")],
    ids=["raw", "group"],
)
def test_raw_clients_and_group_rollouts_are_replayed(
    workspace: Workspace, arkdev: Command, source: str, call: str
) -> None:
    workspace.write("plugins/rollout.py", source)
    told = recorded(arkdev, "--n-sample", "3")
    assert told.exit_code == 0, told.out + told.err
    first = result_of(workspace)
    told = replayed(arkdev)
    assert told.exit_code == 0, told.out + told.err
    assert result_of(workspace) == first
    changed = source.replace('"more"', '"stop"').replace('"go on"', '"stop"')
    path = workspace.write("plugins/rollout.py", changed)
    told = replayed(arkdev)
    assert told.exit_code == 1
    line = next(n for n, text in enumerate(dedent(changed).splitlines(), 1) if call in text)
    assert "+stop" in told.out and f"{path}:{line}" in told.out


def test_the_search_workspace_is_replayed_without_its_mcp_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    root = tmp_path / "search"
    source = Path(__file__).parents[2] / "templates" / "rl_search_mcp_demo"
    shutil.copytree(source, root, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(root)
    arkdev, workspace = Command(capsysbinary), Workspace.at(root)
    told = recorded(arkdev, "--limit", "3", "--n-sample", "2")
    assert told.exit_code == 0, told.out + told.err
    kinds = [
        json.loads(line)["kind"] for line in (root / "tape.jsonl").read_text("utf-8").splitlines()
    ]
    assert {"model", "mcp", "http"} <= set(kinds), "model calls, the search tool and the judge"
    first = result_of(workspace)
    (root / "plugins" / "search_server.py").unlink()
    told = replayed(arkdev)
    assert told.exit_code == 0, told.out + told.err
    assert result_of(workspace) == first


FRESH = """
    import asyncio
    import os
    import signal
    import socket
    import threading
    import time
    from arkdev import Runtime, rollout
    {top}

    @rollout(runtime=Runtime(timeout=3))
    async def answer(context, proxy, sample):
        client = proxy.async_rollout_client()
        if "ok" not in sample.messages[0].content:
            {before}
        await client.chat.completions.create(model="m", messages=sample.model_dump()["messages"])
"""


def write_fresh(workspace: Workspace, *, before: str = "pass", top: str = "") -> Path:
    return workspace.write("plugins/rollout.py", FRESH.format(before=before, top=top))


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("time.sleep(60)", "its process did not end within 3 s, and was ended"),
        (
            "os.kill(os.getpid(), signal.SIGSEGV)",
            "its process ended before its result: killed by SIGSEGV",
        ),
        ("os._exit(7)", "its process ended before its result: exit status 7"),
        (
            "socket.create_connection(('10.255.255.1', 80))",
            "a connection to 10.255.255.1:80 was about to be made",
        ),
        (
            "socket.getaddrinfo('example.com', 80)",
            "a connection to example.com:80 was about to be made",
        ),
        ("raise ValueError('new')", "ValueError: new"),
    ],
    ids=["hangs", "crashes", "exits", "connects", "resolves", "raises"],
)
def test_what_happens_to_one_rollout_is_that_rollouts_failure(
    workspace: Workspace,
    arkdev: Command,
    monkeypatch: pytest.MonkeyPatch,
    before: str,
    said: str,
) -> None:
    monkeypatch.setattr("arkdev.flows.replay_children._GRACE_S", 2.0)
    workspace.samples("ok", "bad")
    write_fresh(workspace)
    assert recorded(arkdev).exit_code == 0
    write_fresh(workspace, before=before)
    told = replayed(arkdev)
    assert told.exit_code == 1, told.out + told.err
    assert said in " ".join(told.out.split())
    verdicts = {name: one[1] for name, one in result_of(workspace)["trajectories"].items()}
    assert verdicts == {"0.0": "success", "1.0": "failure"}


def test_an_attempt_that_ran_out_of_time_does_so_again_at_once(
    workspace: Workspace, arkdev: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = """
    import asyncio, os
    from arkdev import Runtime, rollout

    @rollout(runtime=Runtime(timeout=1.5))
    async def answer(context, proxy, sample):
        client, messages = proxy.async_rollout_client(), sample.model_dump()["messages"]
        await client.chat.completions.create(model="m", messages=messages)
        if os.environ.get("IS_BUSY"):
            await asyncio.sleep(60)
        for _ in range(2):
            await client.chat.completions.create(model="m", messages=messages)
    """
    workspace.samples("ok")
    workspace.write("plugins/rollout.py", source)
    monkeypatch.setenv("IS_BUSY", "1")
    assert recorded(arkdev).exit_code == 1
    monkeypatch.delenv("IS_BUSY")
    first = result_of(workspace)
    attempts = first["trajectories"]["0.0"][4]
    assert len(attempts) == 4 and "took longer than 1.5 s" in attempts[0][1]
    told = replayed(arkdev, "--json")
    assert told.exit_code == 1, told.out + told.err
    assert "left the tape" not in told.out + told.err
    again = result_of(workspace)["trajectories"]["0.0"]
    assert [one[0] for one in again[4]] == ["failure"] * 4
    assert all("took longer than 1.5 s" in one[1] for one in again[4])
    assert told.document["summary"]["warnings"] == []


def test_texts_in_a_set_come_in_the_same_order(
    workspace: Workspace, arkdev: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = """
    from arkdev import rollout

    @rollout
    async def answer(context, proxy, sample):
        words = " ".join({f"word {number}" for number in range(20)})
        messages = [{"role": "user", "content": words}]
        await proxy.async_rollout_client().chat.completions.create(model="m", messages=messages)
    """
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    workspace.samples("ok")
    workspace.write("plugins/rollout.py", source)
    recording = workspace.start("test", "plugin", "--record", "tape.jsonl")
    _, err = recording.communicate(timeout=300)
    assert recording.returncode == 0, err
    told = replayed(arkdev)
    assert told.exit_code == 0, told.out + told.err


def test_an_interrupted_recording_names_no_way_to_go_on(
    workspace: Workspace, arkdev: Command
) -> None:
    workspace.samples("ok", "bad")
    mark = workspace.root / "mark"
    write_fresh(workspace, before=f"open({str(mark)!r}, 'w').close(); await asyncio.sleep(60)")
    process = workspace.start("test", "plugin", "--record", "tape.jsonl")
    for _ in range(1200):
        if mark.exists():
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    err = " ".join(process.communicate(timeout=300)[1].decode("utf-8").split())
    assert "--resume" not in err
    assert "the tape is good for the samples that came to their end" in err


def test_an_attempt_that_leaves_the_tape_is_told_once(
    workspace: Workspace, arkdev: Command
) -> None:
    source = """
    from arkdev import RolloutRetryException, rollout

    @rollout
    async def answer(context, proxy, sample):
        client, messages = proxy.async_rollout_client(), sample.model_dump()["messages"]
        await client.chat.completions.create(model="m", messages=messages)
        raise RolloutRetryException("again")
    """
    workspace.samples("ok")
    path = workspace.write("plugins/rollout.py", source)
    recorded(arkdev)
    assert len(result_of(workspace)["trajectories"]["0.0"][4]) == 4
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("messages=messages", "messages=messages * 2"), encoding="utf-8")
    replayed(arkdev)
    (attempt,) = result_of(workspace)["trajectories"]["0.0"][4]
    assert attempt[1].startswith("TapeMismatchError: ")


@pytest.mark.parametrize(
    "top",
    ["", "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()"],
    ids=["forked", "imported"],
)
def test_what_a_rollout_leaves_alive_is_ended_and_not_waited_for(
    workspace: Workspace, arkdev: Command, top: str
) -> None:
    workspace.samples("bad")
    write_fresh(workspace, top=top)
    assert recorded(arkdev).exit_code == 0
    left = "open('left', 'w').write(str(os.fork() or time.sleep(100) or os._exit(0)))"
    write_fresh(workspace, before=left, top=top)
    started = time.monotonic()
    told = replayed(arkdev)
    assert told.exit_code == 0, told.out + told.err
    assert time.monotonic() - started < 90
    pid = int((workspace.root / "left").read_text(encoding="utf-8"))
    status = Path(f"/proc/{pid}/status")
    assert not status.exists() or "State:\tZ" in status.read_text(encoding="utf-8")


def test_where_importing_the_plugins_starts_threads_each_process_imports_them(
    workspace: Workspace, arkdev: Command
) -> None:
    write_fresh(
        workspace, top="threading.Thread(target=time.sleep, args=(600,), daemon=True).start()"
    )
    workspace.samples("ok", "also ok")
    assert recorded(arkdev).exit_code == 0
    first = result_of(workspace)
    told = replayed(arkdev, "--concurrency", "2")
    assert told.exit_code == 0, told.out + told.err
    assert result_of(workspace) == first


def test_a_recording_that_was_cut_short_is_replayed_as_far_as_it_goes(
    workspace: Workspace, arkdev: Command
) -> None:
    workspace.samples("one", "two", "three")
    assert recorded(arkdev, "--concurrency", "1").exit_code == 0
    path = workspace.root / "tape.jsonl"
    path.write_bytes(path.read_bytes()[:-30])
    told = replayed(arkdev, "--json")
    assert told.exit_code == 0, told.err
    assert told.document["summary"]["num_rollouts"] == 2
    assert "1 sample that had begun is left out" in told.err


def test_flags_that_contradict_a_tape_are_refused(workspace: Workspace, arkdev: Command) -> None:
    assert recorded(arkdev, "--seed", "3").exit_code == 0
    for flags, said in (
        (("--seed", "4"), "--seed: a replay takes this from the tape, where it was 3"),
        (("--n-sample", "2"), "--n-sample: a replay takes this from the tape"),
        (("--endpoint", "http://127.0.0.1:1/v1"), "--endpoint: a replay takes this"),
        (("--temperature", "0.5"), "--temperature, --top-p, --max-new-tokens: a replay"),
        (("--sample", "7"), "--sample 7: the tape has no such sample"),
        (("--record", "other.jsonl"), "--record and --replay do not go together"),
        (("--resume", "latest"), "--resume and --replay do not go together"),
    ):
        told = replayed(arkdev, *flags)
        assert (told.exit_code, told.out) == (2, "")
        assert said in told.err
    assert replayed(arkdev, "--seed", "3").exit_code == 0
    told = recorded(arkdev)
    assert told.exit_code == 2
    assert "tape holds one run" in told.err
    told = arkdev("test", "plugin", "--record", "other.jsonl", "--resume", "latest")
    assert told.exit_code == 2
    workspace.write("plugins/other.py", "from plugins.rollout import answer\n")
    workspace.write("job.yaml", job_yaml(rollout="plugins.other:answer"))
    told = replayed(arkdev)
    assert told.exit_code == 2
    assert "the tape was recorded with rollout plugins.rollout:answer" in told.err


def test_a_plan_that_fails_leaves_nothing_patched(workspace: Workspace, arkdev: Command) -> None:
    import random

    before = (time.time, random.random, os.urandom)
    told = recorded(arkdev, "--rollout", "plugins.none:f")
    assert told.exit_code == 2
    assert (time.time, random.random, os.urandom) == before
    assert not (workspace.root / "tape.jsonl").exists()


SEARCH_SERVER = """
    import sys
    from mcp.server.fastmcp import FastMCP

    server = FastMCP("numbers", host="127.0.0.1", port=int(sys.argv[1]), log_level="ERROR")
    count = 0

    @server.tool()
    def number(of: str) -> str:
        global count
        count += 1
        return f"{of} is {count}"

    server.run(sys.argv[2])
"""
MCP_OVER_HTTP = """
    import warnings
    from arkdev import rollout
    from mcp import ClientSession
    from mcp.client.sse import sse_client
    from mcp.client.streamable_http import streamable_http_client

    @rollout
    async def answer(context, proxy, sample):
        async with {transport}("{url}") as streams, ClientSession(*streams[:2]) as session:
            await session.initialize()
            tools = [tool.name for tool in (await session.list_tools()).tools]
            result = await session.call_tool("number", {{"of": sample.messages[0].content}})
        content = f"{{tools}}: {{result.content[0].text}}"
        messages = [*sample.model_dump()["messages"], {{"role": "user", "content": content}}]
        client = proxy.async_rollout_client()
        await client.chat.completions.create(model="m", messages=messages)
"""


@pytest.mark.parametrize(
    ("served_as", "path", "transport"),
    [("streamable-http", "mcp", "streamable_http_client"), ("sse", "sse", "sse_client")],
)
def test_mcp_over_http_is_replayed_without_its_server(
    workspace: Workspace, arkdev: Command, served_as: str, path: str, transport: str
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = workspace.write("server.py", SEARCH_SERVER)
    url = f"http://127.0.0.1:{port}/{path}"
    workspace.write("plugins/rollout.py", MCP_OVER_HTTP.format(transport=transport, url=url))
    workspace.samples("tea", "coffee")
    process = subprocess.Popen([sys.executable, str(server), str(port), served_as])
    try:
        wait_for(port)
        told = recorded(arkdev)
    finally:
        process.terminate()
        process.wait()
    assert told.exit_code == 0, told.out + told.err
    lines = (workspace.root / "tape.jsonl").read_text("utf-8").splitlines()
    kinds = Counter(json.loads(line)["kind"] for line in lines)
    assert kinds["mcp"] == 6
    assert kinds["http"] == 0, "what carries MCP is not recorded a second time"
    first = result_of(workspace)
    told = replayed(arkdev)
    assert told.exit_code == 0, told.out + told.err
    assert result_of(workspace) == first


def wait_for(port: int) -> None:
    """Wait until somebody listens there."""
    for _ in range(600):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.05)
    raise TimeoutError(port)


def test_an_interrupted_replay_ends_its_processes(workspace: Workspace, arkdev: Command) -> None:
    workspace.samples("ok", "bad")
    write_fresh(workspace)
    assert recorded(arkdev).exit_code == 0
    mark = workspace.root / "mark"
    stuck = f"open({str(mark)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    write_fresh(workspace, before=stuck)
    process = workspace.start("test", "plugin", "--replay", "tape.jsonl")
    for _ in range(1200):
        if mark.exists() and mark.read_text(encoding="utf-8"):
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert b"interrupted" in err and b"--resume" not in err
    with pytest.raises(ProcessLookupError):
        for _ in range(1200):
            os.kill(int(mark.read_text(encoding="utf-8")), 0)
            time.sleep(0.05)
