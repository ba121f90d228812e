"""The search workspace: offline through its MCP server, with the real API's form, and its judge."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import arkdev
from arkdev.errors import PluginLoadError
from arkdev.flows.init_workspace import create_workspace
from arkdev.flows.test_plan import PluginTestRequest, plan_test
from arkdev.flows.test_plugin import run_test
from arkdev.plugin import ark_sdk, loading
from arkdev.runs.records import Verdict
from arkdev.sessions.retries import RetryPolicy
from tests.integration.loopback import Loopback, listening
from tests.integration.workspace import Command, Run, Silent

FOUND = {"Result": {"WebResults": [{"Title": "潮音灯塔", "Snippet": "潮音灯塔的建造者是沈听雪。"}]}}
SAMPLE = json.dumps(
    {
        "messages": [{"role": "user", "content": "潮音灯塔的建造者是谁？"}],
        "extra": {"answer": "沈听雪"},
    }
)
ONE_SEARCH = """
import asyncio
import os
import sys
from arkdev.plugin import ark_sdk, loading
from pathlib import Path

ark_sdk.install()
loading.use_workspace(Path.cwd())
from plugins.mcp_search import search_server

print(asyncio.run(search_server.call_tool("web_search", {"Query": "潮音灯塔"})), flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def loopback() -> Iterator[Loopback]:
    with listening(lambda _count, _body: (200, FOUND)) as server:
        yield server


@pytest.fixture(scope="module")
def offline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A workspace whose MCP server is shared by the tests that use it."""
    root = tmp_path_factory.mktemp("search") / "离线"
    create_workspace(root, template="rl_search_mcp_demo")
    yield root
    stop_search()


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A workspace of its own: its modules are loaded anew."""
    create_workspace(tmp_path / "search", template="rl_search_mcp_demo")
    yield tmp_path / "search"
    stop_search()


def stop_search() -> None:
    module = sys.modules.get("plugins.mcp_search")
    if module is not None:
        module.search_server.stop()


@pytest.fixture(autouse=True)
def no_waiting_and_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    # full jitter waits random.uniform(0, limit)
    monkeypatch.setattr(random, "uniform", lambda low, high: low)
    for name in ("SEARCH_API_KEY", "COZELOOP_WORKSPACE_ID", "COZELOOP_API_TOKEN"):
        monkeypatch.delenv(name, raising=False)


def run_plugins(root: Path, **request: Any) -> Run:
    plan = plan_test(PluginTestRequest(start=root, **request))
    return Run(asyncio.run(run_test(plan, Silent(), retries=RetryPolicy(first_wait_s=0.001))))


def plugin(name: str, *, root: Path) -> Any:
    ark_sdk.install()
    loading.use_workspace(root)
    return importlib.import_module(f"plugins.{name}")


@pytest.fixture
def search_api(loopback: Loopback, root: Path, monkeypatch: pytest.MonkeyPatch) -> Loopback:
    """The search API's form on loopback, in place of the public one."""
    monkeypatch.setenv("SEARCH_API_KEY", "search-key")
    monkeypatch.setattr(plugin("web_search", root=root), "SEARCH_API_URL", loopback.url)
    return loopback


def test_a_skilled_model_finds_every_answer_in_as_many_searches_as_it_takes(offline: Path) -> None:
    run = run_plugins(offline, limit=24, skill=1.0)
    assert run.exit_code == 0
    assert run.rewards == [(1.0,)] * 24
    assert run.outcome.judge_calls == 24
    lines = (offline / "data/search_dataset.jsonl").read_text(encoding="utf-8").splitlines()
    hops = [json.loads(line)["extra"]["num_hops"] for line in lines[:24]]
    assert set(hops) == {1, 2, 3}
    assert [len(record.turns) - 1 for record in run.trajectories] == hops


def test_rewards_spread_within_groups(offline: Path) -> None:
    run = run_plugins(offline, limit=8, num_generations=6)
    rewards = {reward for group in run.rewards for reward in group}
    assert rewards == {1.0, 0.0, -1.0}
    assert sum(len(set(group)) > 1 for group in run.rewards) >= 6


def test_the_display_says_who_the_judge_was(
    offline: Path, arkdev: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(offline)
    told = arkdev("test", "plugin", "--limit", "2", "--skill", "1")
    assert told.exit_code == 0
    assert "2 of 2 rollouts graded, mean reward 1.00" in told.out
    assert "2 model calls that plugins made past their proxy went to the scripted model" in told.err
    document = arkdev("test", "plugin", "--limit", "2", "--skill", "1", "--json").document
    assert document["judge_calls"] == 2


def test_a_rollout_file_runs_by_itself_against_the_scripted_model(
    offline: Path, arkdev: Command, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.chdir(offline)
    with caplog.at_level("INFO"):
        assert arkdev("run", "plugins/rollout.py", "--endpoint", "scripted").exit_code == 0
    assert "100 个样本，100 个得分；没有得分的：{}" in caplog.text


def test_broken_arguments_are_penalised(offline: Path, tmp_path: Path) -> None:
    for arguments in ('{"Query": "潮', '{"query": "潮音灯塔"}'):
        script = tmp_path / "script.json"
        call = {"name": "web_search", "arguments": arguments}
        script.write_text(json.dumps({"answers": [{"tool_calls": [call]}]}), encoding="utf-8")
        run = run_plugins(offline, sample=SAMPLE, script=script)
        assert run.rewards == [(-1,)]
        assert run.trajectories[0].extra == {"reward": -1}
        assert len(run.trajectories[0].turns) == 1


def test_a_model_that_never_stops_searching_is_stopped(offline: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    call = {"name": "web_search", "arguments": '{"Query": "潮音灯塔"}'}
    script.write_text(json.dumps({"answers": [{"tool_calls": [call] * 2}]}), encoding="utf-8")
    run = run_plugins(offline, sample=SAMPLE, script=script)
    assert run.rewards == [(0.0,)]
    (record,) = run.trajectories
    assert len(record.turns) == 6
    assert [m["role"] for m in record.messages].count("tool") == 10


def test_with_a_key_the_real_api_is_asked(search_api: Loopback, root: Path) -> None:
    search_api.policy = lambda count, _body: (
        (503, {"error": "busy"}) if count == 1 else (200, FOUND)
    )
    run = run_plugins(root, sample=SAMPLE, skill=1.0)
    assert run.rewards == [(1.0,)]
    assert len(run.trajectories[0].attempts) == 1, "the search was tried again, not the rollout"
    path, authorization, body = search_api.requests[-1]
    assert len(search_api.requests) == 2
    assert path == "/search_api/web_search"
    assert authorization == "Bearer search-key"
    assert body == {"Query": "潮音灯塔的建造者", "SearchType": "web"}
    assert json.loads(run.trajectories[0].messages[2]["content"]) == FOUND


@pytest.mark.parametrize("answer", [(200, {"Result": None}), (200, []), (429, {})])
def test_a_search_that_keeps_failing_ends_in_retry(
    search_api: Loopback, root: Path, monkeypatch: pytest.MonkeyPatch, answer: tuple[int, Any]
) -> None:
    module = plugin("rollout", root=root)
    monkeypatch.setattr(module.rate_limiter, "max_rate", 1000)
    search_api.policy = lambda _count, _body: answer
    run = run_plugins(root, sample=SAMPLE, skill=1.0)
    (record,) = run.trajectories
    assert {attempt.verdict for attempt in record.attempts} == {Verdict.RETRY}
    assert "web_search" in str(record.attempts[0].error)
    assert len(search_api.requests) == 10 * len(record.attempts)
    assert run.rewards == [(None,)] or run.rewards == []


def test_a_refused_key_is_a_failure_and_is_not_tried_again(
    search_api: Loopback, root: Path
) -> None:
    search_api.policy = lambda _count, _body: (401, {"error": "no such key"})
    run = run_plugins(root, sample=SAMPLE, skill=1.0)
    assert run.summary.verdicts == {"failure": 1}
    assert "SEARCH_API_KEY" in run.summary.errors[0].message
    assert len(search_api.requests) == len(run.trajectories[0].attempts)


def judge_says(content: str, *, status: int = 200) -> tuple[int, Any]:
    message = {"role": "assistant", "content": content}
    choice = {"index": 0, "message": message, "finish_reason": "length"}
    return status, {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [choice],
    }


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (judge_says('{"rationale": "太长'), "JudgeError"),
        (judge_says('{"judgement": "也许"}'), "JudgeError"),
        (judge_says("", status=500), "InternalServerError"),
    ],
)
def test_a_judge_that_fails_gives_no_reward_not_a_zero(
    loopback: Loopback,
    offline: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: tuple[int, Any],
    error: str,
) -> None:
    monkeypatch.setenv("ARK_BASE_URL", loopback.url)
    monkeypatch.setenv("ARK_API_KEY", "judge-key")
    loopback.policy = lambda _count, _body: answer
    run = run_plugins(offline, sample=SAMPLE, skill=1.0, num_generations=2)
    (group,) = run.groups
    assert group.rewards == (None, None)
    assert error in str(group.graders[0].error)
    assert run.outcome.judge_calls == 0
    assert len(loopback.requests) % 20 == 0, "ten tries for each trajectory"


def test_a_judge_is_asked_again_after_an_error(
    loopback: Loopback, offline: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARK_BASE_URL", loopback.url)
    monkeypatch.setenv("ARK_API_KEY", "judge-key")
    verdict = judge_says('{"rationale": "同一个人", "judgement": "正确"}')
    loopback.policy = lambda count, _body: (
        (429, {"error": {"message": "busy"}}) if count < 3 else verdict
    )
    assert run_plugins(offline, sample=SAMPLE, skill=1.0).rewards == [(1.0,)]
    _, authorization, body = loopback.requests[-1]
    assert authorization == "Bearer judge-key"
    assert body["temperature"] == 0
    assert body["response_format"]["json_schema"]["strict"] is True
    assert "沈听雪" in body["messages"][1]["content"]


def children(pid: int) -> list[int]:
    """The MCP servers that a process has started."""
    command = ["pgrep", "-P", str(pid), "-f", "plugins.search_server"]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    return [int(child) for child in found]


def is_running(pid: int) -> bool:
    command = ["ps", "-o", "stat=", "-p", str(pid)]
    state = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return bool(state) and not state.startswith("Z")


def wait_until(is_so: Callable[[], bool], *, timeout_s: float = 60.0) -> bool:
    end = time.monotonic() + timeout_s
    while not is_so():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def test_all_rollouts_of_a_process_share_one_server_that_is_started_again_when_it_dies(
    root: Path,
) -> None:
    before = children(os.getpid())
    search = plugin("mcp_search", root=root)
    exec_tool_call = plugin("rollout", root=root).exec_tool_call
    mcp = plugin("web_search", root=root).McpSearch()

    async def several() -> list[str]:
        return await asyncio.gather(
            *(exec_tool_call(mcp, {"Query": "潮音灯塔"}) for _ in range(16))
        )

    assert all("沈听雪" in text for text in asyncio.run(several()))
    (first,) = set(children(os.getpid())) - set(before)
    os.kill(first, signal.SIGKILL)
    assert wait_until(lambda: not is_running(first))
    assert all("沈听雪" in text for text in asyncio.run(several()))
    (second,) = set(children(os.getpid())) - {*before, first}
    search.search_server.stop()
    assert wait_until(lambda: not is_running(second))


@pytest.mark.parametrize("end", ["exit", "kill"])
def test_the_server_ends_with_its_process(root: Path, end: str) -> None:
    package = str(Path(arkdev.__file__).parents[1])
    with subprocess.Popen(
        [sys.executable, "-c", ONE_SEARCH],
        cwd=root,
        env={**os.environ, "PYTHONPATH": package},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        assert "沈听雪" in process.stdout.readline()
        (server,) = children(process.pid)
        if end == "kill":
            process.kill()
        else:
            process.stdin.write("\n")
            process.stdin.flush()
        process.wait(timeout=300)
        assert process.returncode == (-signal.SIGKILL if end == "kill" else 0)
    assert wait_until(lambda: not is_running(server))


def test_without_arkitect_the_draft_says_so_and_the_others_load(
    offline: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "arkitect", None)
    ark_sdk.install()
    with pytest.raises(PluginLoadError, match="需要 arkitect，它是可选的") as failed:
        loading.load_plugin("plugins.draft_rollout_arkitect:demo_rollout", root=offline)
    assert "draft_rollout_arkitect.py" in failed.value.where
    assert loading.load_plugin("plugins.rollout:demo_rollout", root=offline).plugin.is_async


class SlowSearch:
    """A search that takes its time, as the rollout sees one."""

    def __init__(self, *, is_remote: bool, duration_s: float = 0.0) -> None:
        self.is_remote = is_remote
        self._duration_s = duration_s
        self.num_calls = 0

    async def search(self, arguments: dict[str, Any]) -> str:
        self.num_calls += 1
        await asyncio.sleep(self._duration_s)
        return "found"


def test_the_real_api_is_rate_limited_and_the_local_search_is_not(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = plugin("rollout", root=root)
    limiter = module.rate_limiter
    assert (limiter.max_rate, limiter.time_period) == (20, 1)
    monkeypatch.setattr(module, "rate_limiter", type(limiter)(max_rate=2, time_period=1))

    async def timed(search: SlowSearch) -> float:
        started = time.monotonic()
        await asyncio.gather(*(module.exec_tool_call(search, {"Query": "x"}) for _ in range(6)))
        return time.monotonic() - started

    async def both() -> tuple[float, float]:
        local = await timed(SlowSearch(is_remote=False))
        return local, await timed(SlowSearch(is_remote=True))

    local_s, remote_s = asyncio.run(both())
    assert local_s < 1.5 < remote_s


def test_a_search_that_takes_too_long_is_tried_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = plugin("rollout", root=root)
    assert module.TOOL_CALL_TIMEOUT == 20.0
    monkeypatch.setattr(module, "TOOL_CALL_TIMEOUT", 0.01)
    search = SlowSearch(is_remote=False, duration_s=60)
    with pytest.raises(module.RolloutRetryException, match=r"0\.01 秒"):
        asyncio.run(module.exec_tool_call(search, {"Query": "x"}))
    assert search.num_calls == module.TOOL_CALL_MAX_RETRY == 10


def test_the_tool_of_the_model_is_the_documented_one_and_the_servers(offline: Path) -> None:
    function = plugin("web_search", root=offline).search_tool["function"]
    properties = function["parameters"]["properties"]
    assert function["name"] == "web_search"
    assert list(properties) == ["Query", "Count"]
    assert properties["Count"]["default"] == 10
    assert function["parameters"]["required"] == ["Query"]
    server = plugin("search_server", root=offline).server
    (tool,) = asyncio.run(server.list_tools())
    assert (tool.name, tool.description) == (function["name"], function["description"])
    assert {name: part["type"] for name, part in tool.inputSchema["properties"].items()} == {
        name: part["type"] for name, part in properties.items()
    }
    assert tool.inputSchema["required"] == ["Query"]


FAKE_ARKITECT = {
    "core/component/context/hooks.py": """
        class HookInterruptException(Exception):
            def __init__(self, reason):
                self.reason = reason

        class PreLLMCallHook:
            pass
    """,
    "core/component/context/context.py": """
        import json
        from types import SimpleNamespace
        from arkitect.core.component.context.hooks import HookInterruptException

        class Context:
            def __init__(self, *, model, tools, client):
                self.model, self.pool, self.client = model, tools[0], client
                self.state = SimpleNamespace(messages=[])
                create = client.chat.completions.create
                self.chat = SimpleNamespace(completions=SimpleNamespace(create=create))
                self.completions = SimpleNamespace(create=self._create)
                self.is_ready = False

            def set_pre_llm_call_hook(self, hook):
                self.hook = hook

            async def init(self):
                self.is_ready = True

            async def _create(self, messages, stream):
                assert self.is_ready and not stream
                self.state.messages.extend(messages)
                while True:
                    try:
                        await self.hook.pre_llm_call(self.state)
                    except HookInterruptException as interrupt:
                        return interrupt.reason
                    await self.chat.completions.create(
                        model=self.model, messages=self.state.messages, tool_pool=self.pool
                    )
                    calls = self.state.messages[-1].get("tool_calls")
                    if not calls:
                        return None
                    for call in calls:
                        query = json.loads(call["function"]["arguments"])
                        content = await self.pool.execute_tool("web_search", query)
                        self.state.messages.append(
                            {"role": "tool", "content": content, "tool_call_id": call["id"]}
                        )
    """,
    "core/component/tool/builder.py": """
        import json

        cleaned = []

        class Client:
            async def list_tools(self):
                schema = {"type": "object", "properties": {"Query": {"type": "string"}}}
                function = {"name": "web_search", "description": "search", "parameters": schema}
                return [{"type": "function", "function": function}]

            async def execute_tool(self, name, arguments):
                return "潮音灯塔的建造者是沈听雪。"

        def build_mcp_clients_from_config(path):
            with open(path, encoding="utf-8") as file:
                names = json.load(file)["mcpServers"]

            async def cleanup():
                cleaned.append(path)

            return {name: Client() for name in names}, cleanup
    """,
}
"""Stands for the package arkitect 0.2.11, as far as the draft uses it."""


@pytest.fixture
def arkitect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, text in FAKE_ARKITECT.items():
        file = tmp_path / "packages/arkitect" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "arkitect"]:
        del sys.modules[name]


DRAFT = "plugins.draft_rollout_arkitect:demo_rollout"


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_the_draft_rollout_searches_through_arkitect(root: Path, arkitect: None) -> None:
    run = run_plugins(root, rollout=DRAFT, sample=SAMPLE, skill=1.0)
    assert run.rewards == [(1.0,)]
    roles = [message["role"] for message in run.trajectories[0].messages]
    assert roles == ["user", "assistant", "tool", "assistant"]
    builder = sys.modules["arkitect.core.component.tool.builder"]
    assert builder.cleaned == [str(root / "mcp_config.json")]


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_the_draft_rollout_stops_after_its_steps(
    root: Path, arkitect: None, tmp_path: Path
) -> None:
    script = tmp_path / "script.json"
    call = {"name": "web_search", "arguments": '{"Query": "潮音灯塔"}'}
    script.write_text(json.dumps({"answers": [{"tool_calls": [call]}]}), encoding="utf-8")
    run = run_plugins(root, rollout=DRAFT, sample=SAMPLE, script=script)
    assert len(run.trajectories[0].turns) == 6
