"""The templates as the documents describe them: files, names, data, local tests (WS, LT, DEMO)."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from arkdev.cli.main import run as run_command
from arkdev.endpoints.scripted.server import ScriptedServer
from arkdev.errors import JobError
from arkdev.flows.init_workspace import create_workspace
from arkdev.flows.test_plan import plan_test
from arkdev.flows.test_request import PluginTestRequest
from arkdev.plugin import ark_sdk, loading
from arkdev.types import ChatCompletionSample, PluginStatus, Trajectory
from tests.integration.workspace import Workspace, away_from_the_user

NAMED_FILES = [
    "data/mcj_rollout_test_dataset.jsonl",
    "plugins/random_reward.py",
    "plugins/raw_rollout.py",
    "plugins/weather_rollout.py",
    "plugins/async_weather_rollout.py",
    "plugins/test_utils.py",
    "job.py",
    "job.yaml",
    "README.md",
    "arkworkspace.toml",
    "requirements.txt",
    "test_faas.py",
]
ROLLOUTS = ["weather_rollout", "async_weather_rollout", "raw_rollout"]
QUESTION = {"role": "user", "content": "北京现在多少摄氏度？"}
SCRIPTED = ("--endpoint", "scripted")
VALIDATION = "data/mcj_rollout_validation_dataset.jsonl"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    root = tmp_path_factory.mktemp("templates") / "demo"
    create_workspace(root, template="rl_demo")
    return Workspace.at(root)


@pytest.fixture(scope="module")
def minimal(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    root = tmp_path_factory.mktemp("templates") / "minimal"
    create_workspace(root, template="minimal")
    return Workspace.at(root)


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with away_from_the_user(tmp_path / "config", monkeypatch):
        ark_sdk.install()
        yield


@pytest.fixture
async def served() -> AsyncIterator[str]:
    server = ScriptedServer(skill=1.0)
    yield await server.start("127.0.0.1", 0)
    await server.stop()


def plugins(name: str, *, workspace: Workspace) -> ModuleType:
    loading.use_workspace(workspace.root)
    return importlib.import_module(f"plugins.{name}")


def test_init_makes_a_ready_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(["init", "workspace", "ark_rl_project", "--template", "rl_demo"]) == 0
    told = capsys.readouterr().out
    assert "Made ark_rl_project from the template rl_demo" in told
    assert "cd ark_rl_project\n  arkdev test plugin\n" in told
    monkeypatch.chdir("ark_rl_project")
    assert run_command(["test", "plugin", "--limit", "2", "--skill", "1"]) == 0
    assert "2 of 2 rollouts graded, mean reward 1.00" in capsys.readouterr().out


def test_rl_demo_has_every_named_file(demo: Workspace) -> None:
    missing = [name for name in NAMED_FILES if not (demo.root / name).is_file()]
    assert missing == []
    text = (demo.root / "arkworkspace.toml").read_text(encoding="utf-8")
    assert tomllib.loads(text)["plugin"] == {"package": {"include": ["*.py"]}}


def test_the_commands_run_inside_the_workspace(
    demo: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in (demo.root, demo.root / "plugins"):
        monkeypatch.chdir(folder)
        assert run_command(["test", "plugin", "--limit", "1", "--skill", "1", "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["settings"]["workspace"] == str(demo.root)
        assert Path(document["folder"]).parent == demo.root / "runs"


def test_without_a_rollout_the_built_in_one_answers_once(minimal: Workspace) -> None:
    run = minimal.run(limit=4, skill=1.0)
    assert run.reader.manifest.settings["rollout"] == "arkdev.plugin.default_rollout:single_turn"
    assert [len(record.turns) for record in run.trajectories] == [1, 1, 1, 1]
    assert [[m["role"] for m in record.messages] for record in run.trajectories] == [
        ["user", "assistant"]
    ] * 4
    assert run.rewards == [(1.0,)] * 4


def test_at_least_one_grader_is_needed(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "ws")
    several = ("plugins.grader:one=0.25", "plugins.grader:one=0.5")
    assert workspace.run(graders=several).rewards == [(0.75,)]
    with pytest.raises(JobError, match="weight 0"):
        plan_test(PluginTestRequest(start=workspace.root, graders=("plugins.grader:one=0",)))
    job = json.loads((workspace.root / "job.yaml").read_text(encoding="utf-8"))
    job["custom_rl_pipeline"]["graders"] = []
    workspace.write("job.yaml", json.dumps(job))
    with pytest.raises(JobError, match="at least one grader"):
        plan_test(PluginTestRequest(start=workspace.root))


def answered(text: str | None, *, extra: dict[str, object] | None = None) -> Trajectory:
    call = {"id": "c", "function": {"name": "get_current_weather", "arguments": "{}"}}
    return Trajectory(
        messages=[
            QUESTION,
            {"role": "assistant", "content": None, "tool_calls": [call]},
            *([] if text is None else [{"role": "tool", "content": "晴", "tool_call_id": "c"}]),
            *([] if text is None else [{"role": "assistant", "content": text}]),
        ],
        extra=extra,
    )


def rewards_of(workspace: Workspace, *trajectories: Trajectory) -> list[float]:
    grader = plugins("random_reward", workspace=workspace).random_reward_fn
    sample = ChatCompletionSample(messages=[QUESTION], extra={"answer": "26摄氏度"})
    result = asyncio.run(grader({}, sample, list(trajectories)))
    assert result.status is PluginStatus.SUCCESS
    return list(result.rewards)


def test_a_reward_in_extra_is_honoured(demo: Workspace) -> None:
    given = [answered("26摄氏度", extra={"reward": value}) for value in (-1, 0.25)]
    assert rewards_of(demo, *given, answered("26摄氏度", extra={"other": 1})) == [-1, 0.25, 1.0]


def test_the_demo_grader_rewards_the_right_answer(demo: Workspace) -> None:
    right, wrong, unfinished = answered("现在26摄氏度。"), answered("27摄氏度"), answered(None)
    assert rewards_of(demo, right, wrong, unfinished) == [1.0, 0.0, 0.0]
    bad_call = {"turn": 0, "tool_calls": [{"name": "get_current_weather", "arguments": "{"}]}
    run = demo.run(limit=1, script=demo.script(bad_call))
    assert run.rewards == [(-1.0,)]


def test_every_spelling_of_the_random_reward_resolves(demo: Workspace) -> None:
    names = ("random_reward_fn", "random_reward", "randaom_reward")
    loaded = [loading.load_plugin(f"plugins.random_reward:{n}", root=demo.root) for n in names]
    assert len({id(found.function) for found in loaded}) == 1
    assert loaded[0].plugin.name == "random_reward"  # what reports show
    assert [callable(plugins(name, workspace=demo).demo_rollout) for name in ROLLOUTS] == [True] * 3


def test_the_weather_tool_is_the_documented_one(demo: Workspace) -> None:
    tool = plugins("weather_tool", workspace=demo)
    signature = inspect.signature(tool.get_current_weather)
    assert list(signature.parameters) == ["location", "unit"]
    assert signature.parameters["unit"].default == "摄氏度"
    (definition,) = tool.rollout_tools
    assert definition["function"]["name"] == "get_current_weather"
    for arguments in ({"city": "北京"}, {"location": "北京", "unit": "开尔文"}):
        with pytest.raises((TypeError, ValueError)):
            tool.get_current_weather(**arguments)
    # a model that never stops calling is stopped well before the documents' 30 steps
    always = {"tool_calls": [{"name": "get_current_weather", "arguments": {"location": "北京"}}]}
    (trajectory,) = demo.run(limit=1, script=demo.script(always)).trajectories
    assert 1 < len(trajectory.turns) <= 30


def test_the_data_follows_the_conventions_of_the_demo(demo: Workspace, minimal: Workspace) -> None:
    files = [*demo.root.glob("data/*.jsonl"), *minimal.root.glob("data/*.jsonl")]
    assert len(files) == 4
    for file in files:
        for line in file.read_text(encoding="utf-8").splitlines():
            sample = ChatCompletionSample(**json.loads(line))
            assert sample.messages[-1].role == "user"
            assert sample.extra is not None
            assert sample.extra["answer"] and sample.extra["prompt_id"]
    thinking = {"type": "enabled"}
    line = {"messages": [QUESTION], "thinking": thinking, "extra": {"answer": "26摄氏度"}}
    demo.lines([line], name="thinking.jsonl")
    assert demo.run(data=(demo.root / "thinking.jsonl",), skill=1.0).rewards == [(1.0,)]


def test_a_rollout_file_runs_on_its_own(demo: Workspace) -> None:
    process = subprocess.run(
        [sys.executable, "-m", "arkdev", "run", "plugins/weather_rollout.py", *SCRIPTED],
        cwd=demo.root,
        env=demo.environment(),
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    assert process.returncode == 0, process.stderr
    # first one sample: its conversation, then the grader; then the average over many
    assert re.search(r"user: .*摄氏度.*tool: .*打分：", process.stderr, re.DOTALL)
    average = re.search(r"平均得分：(\d\.\d+)", process.stderr)
    assert average and 0 < float(average[1]) <= 1
    for name in ROLLOUTS:
        text = (demo.root / f"plugins/{name}.py").read_text(encoding="utf-8")
        assert "async def main()" in text and "asyncio.run(main())" in text


def test_local_tests_use_the_public_url_and_the_key_in_the_environment(
    demo: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = plugins("test_utils", workspace=demo)
    with pytest.raises(SystemExit, match="ARK_API_KEY"):
        helper.local_endpoint()
    monkeypatch.setenv("ARK_API_KEY", "key")
    assert helper.local_endpoint() == ("https://ark.cn-beijing.volces.com/api/v3", "key")
    plan = plan_test(PluginTestRequest(start=demo.root, endpoint="ark", model="m"))
    assert plan.endpoint.base_url == "https://ark.cn-beijing.volces.com/api/v3"
    assert plan.endpoint.api_key_env == "ARK_API_KEY"
    for name in ROLLOUTS:
        module = plugins(name, workspace=demo)
        assert module.LOCAL_TEST_MODEL == "doubao-seed-2-0-mini-260428"


async def test_test_with_dataset_takes_both_documented_forms(
    demo: Workspace, served: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    test_with_dataset = plugins("test_utils", workspace=demo).test_with_dataset
    demo_rollout = plugins("async_weather_rollout", workspace=demo).demo_rollout
    grader = plugins("random_reward", workspace=demo).random_reward_fn
    path = str(demo.root / VALIDATION)
    rewards = await test_with_dataset(
        path,
        demo_rollout,
        grader,
        "key",
        base_url=served,
        limit=3,
        max_concurrent=2,
        n_sample=2,
        top_p=1,
        temperature=1.0,
    )
    assert rewards == [1.0] * 6
    monkeypatch.setenv("ARK_API_KEY", "key")
    monkeypatch.setenv("ARK_BASE_URL", served)
    rewards = await test_with_dataset(path, demo_rollout, grader, limit=4, max_concurrent=5)
    assert rewards == [1.0] * 4


def test_the_report_tells_latencies_failures_and_concurrency(
    demo: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(demo.root)
    down = {"error": {"status": 400, "code": "InvalidParameter", "message": "no."}, "times": 4}
    demo.script(down)
    arguments = ("--limit", "8", "--concurrency", "1", "--script", "script.json")
    assert run_command(["test", "plugin", *arguments]) == 1
    told = capsys.readouterr()
    rows = {line[:20].strip(): line.split() for line in told.out.splitlines()}
    for name in ("rollout", "model call", "tool get_current_we"):
        assert any(row.startswith(name) for row in rows), name
    assert "7 of 8 rollouts graded" in told.out and "1 failed" in told.out
    assert "BadRequestError" in told.out
    assert run_command(["test", "plugin", "--limit", "8"]) == 0
    assert "8 at once" in capsys.readouterr().err
