"""The pytest plugin as a workspace's own tests use it: by its entry point, in processes apart."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from textwrap import dedent

import pytest

from arkdev.flows.init_workspace import TEMPLATES, create_workspace
from tests.integration.workspace import Workspace

ROOT = Path(__file__).parents[2]
HEAVY = {"aiohttp", "openai", "pydantic", "rich", "typer", "httpx", "opentelemetry"}

USES_ALL = """
    import asyncio

    import httpx
    import pytest

    from ark_sdk.types.pipeline_plugin.rollout import ChatCompletionSample
    from arkdev import Trajectory

    QUESTION = {"role": "user", "content": "hello"}


    def test_workspace(arkdev_workspace, pytestconfig):
        assert arkdev_workspace.root == pytestconfig.rootpath
        grade = arkdev_workspace.load("plugins.grader:one")
        trajectory = Trajectory(messages=[QUESTION])
        assert asyncio.run(grade({}, ChatCompletionSample(messages=[QUESTION]), trajectory)) == 1.0


    def test_endpoint(arkdev_endpoint, tmp_path):
        script = tmp_path / "script.yaml"
        script.write_text("answers:\\n  - content: scripted words\\n", encoding="utf-8")
        endpoint = arkdev_endpoint(script=script)
        other = arkdev_endpoint(skill=1.0)
        assert endpoint.url != other.url
        body = {"model": "m", "messages": [QUESTION]}
        for url in (endpoint.url, endpoint.ark_url):
            answer = httpx.post(f"{url}/chat/completions", json=body, trust_env=False).json()
            assert answer["choices"][0]["message"]["content"] == "scripted words"
        assert (endpoint.num_chat_calls, other.num_chat_calls) == (2, 0)


    def test_proxy_of_a_sync_rollout(arkdev_proxy, arkdev_workspace):
        answer = arkdev_workspace.load("plugins.rollout:answer")
        proxies = [arkdev_proxy({"messages": [QUESTION]}) for _ in range(2)]
        for proxy in proxies:
            asyncio.run(answer({}, proxy, proxy.sample))
            assert [m.role for m in proxy.messages] == ["user", "assistant"]
            assert proxy.usage.total_tokens > 0


    def test_proxy_of_a_raw_rollout(arkdev_proxy):
        proxy = arkdev_proxy(ChatCompletionSample(messages=[QUESTION], temperature=0.5))
        proxy.update_state_from_messages([QUESTION])
        headers = {"authorization": f"Bearer {proxy.jwt_token}"}
        body = {"model": "m", "messages": [QUESTION]}
        url = f"{proxy.url}/chat/completions"
        answer = httpx.post(url, json=body, headers=headers, trust_env=False)
        assert answer.status_code == 200
        assert len(proxy.messages) == 2


    def test_run(arkdev_run, tmp_path_factory):
        outcome = arkdev_run(num_generations=2)
        outcome.assert_nothing_failed()
        outcome.assert_reward_mean(at_least=1.0)
        outcome.assert_success_rate(at_least=1.0)
        assert len(list(outcome.records.trajectories())) == 2
        assert tmp_path_factory.getbasetemp() in outcome.folder.parents
"""


def entry_points(folder: Path) -> str:
    """A folder for PYTHONPATH in which arkdev is installed, with the entry points of today."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [f"{name} = {where}" for name, where in scripts["entry-points"]["pytest11"].items()]
    information = folder / "site" / "arkdev-0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: arkdev\nVersion: 0\n")
    (information / "entry_points.txt").write_text("\n".join(["[pytest11]", *lines, ""]))
    return str(information.parent)


def run_pytest(
    root: Path, *arguments: str, site: str, is_bare: bool = True, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run pytest in `root`; bare is without pytest-asyncio, which a user need not have."""
    plugins = ["-p", "no:cacheprovider", *(["-p", "no:asyncio"] if is_bare else [])]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", *plugins, *arguments],
        cwd=root,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), site]), **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture
def tested(workspace: Workspace) -> Workspace:
    workspace.write("pytest.ini", "[pytest]\npythonpath = .\n")
    workspace.write("arkworkspace.toml", "")
    return workspace


def test_every_fixture_does_what_it_promises(tested: Workspace, tmp_path: Path) -> None:
    tested.write("tests/test_it.py", USES_ALL)
    result = run_pytest(tested.root, site=entry_points(tmp_path))
    assert result.returncode == 0, result.stdout + result.stderr
    assert "5 passed" in result.stdout
    assert not (tested.root / "runs").exists(), "runs of tests are in pytest's temporary folder"


def test_a_missed_threshold_says_the_number_its_error_and_how_many(
    tested: Workspace, tmp_path: Path
) -> None:
    """Four samples, rewards 1 0 1 0: mean 0.5, standard error 0.5 / sqrt(3) = 0.289."""
    tested.samples("1", "0", "1", "0")
    tested.write(
        "plugins/grader.py",
        """
        from arkdev import single_grader

        @single_grader
        def one(context, sample, trajectory):
            return float(sample.messages[0].content)
        """,
    )
    tested.write(
        "test_it.py",
        """
        def test_mean(arkdev_run):
            arkdev_run().assert_reward_mean(at_least=0.1)

        def test_rate(arkdev_run):
            arkdev_run().assert_success_rate(at_least=0.1)

        def test_mean_alone(arkdev_run):
            arkdev_run().assert_reward_mean(at_least=0.5, z=0)
        """,
    )
    result = run_pytest(tested.root, site=entry_points(tmp_path))
    assert "2 failed, 1 passed" in result.stdout, result.stdout
    line = "0.5 (n = 4, standard error 0.289): 0.5 - 1.645 x 0.289 = 0.02513, at least 0.1"
    assert f"AssertionError: reward mean {line}" in result.stdout
    assert f"AssertionError: success rate {line}" in result.stdout


def test_what_failed_is_named(tested: Workspace, tmp_path: Path) -> None:
    tested.write(
        "plugins/grader.py",
        """
        from arkdev import single_grader

        @single_grader
        def one(context, sample, trajectory):
            return 1 / 0
        """,
    )
    tested.write(
        "test_it.py", "def test_it(arkdev_run):\n    arkdev_run().assert_nothing_failed()\n"
    )
    result = run_pytest(tested.root, site=entry_points(tmp_path))
    assert "4 x grader one: ZeroDivisionError" in result.stdout
    assert "plugins/grader.py:6" in result.stdout
    assert "testing/runs.py" not in result.stdout.partition("short test summary")[0]


USES_WRONGLY = """
    import pytest

    OPTIONS = [
        {"sample": 3},
        {"graders": "plugins.grader:one"},
        {"num_generation": 2},
        {"limit": "many"},
        {"record": "tape.jsonl"},
        {"replay": "no_tape.jsonl"},
        {"graders": ("plugins.grader:none",)},
    ]

    @pytest.mark.parametrize("options", OPTIONS, ids=str)
    def test_run(arkdev_run, options):
        arkdev_run(**options)

    def test_tape(arkdev_tape):
        arkdev_tape("no.jsonl", n_sample=2)

    def test_load(arkdev_workspace):
        arkdev_workspace.load("plugins.grader:none")

    def test_script(arkdev_endpoint):
        arkdev_endpoint(script="no.yaml")
"""


def test_a_wrong_option_is_told_with_a_hint_and_without_arkdev_s_own_lines(
    tested: Workspace, tmp_path: Path
) -> None:
    tested.write("test_it.py", USES_WRONGLY)
    result = run_pytest(tested.root, site=entry_points(tmp_path), CI="")
    assert "10 failed" in result.stdout, result.stdout
    for told in (
        "UsageError: sample=3: input should be a valid string",
        "hint: the index of a sample as text",
        "UsageError: graders='plugins.grader:one': input should be a valid tuple",
        "UsageError: there is no option 'num_generation'",
        "hint: did you mean num_generations?",
        "UsageError: limit='many': input should be a valid integer",
        "UsageError: code that a test has imported cannot be recorded",
        "hint: arkdev_tape(PATH)",
        "TapeError: ",
        "UsageError: there is no option 'n_sample'",
        "PluginLoadError: ",
    ):
        assert told in result.stdout, told
    # the summary alone may name a file of arkdev
    told_at_length = result.stdout.partition("short test summary")[0]
    assert "arkdev/testing" not in told_at_length
    assert "arkdev/flows" not in told_at_length


def test_a_run_inside_a_running_loop_is_refused(tested: Workspace, tmp_path: Path) -> None:
    tested.write(
        "test_it.py",
        """
        import pytest

        @pytest.mark.asyncio
        async def test_it(arkdev_run):
            arkdev_run()
        """,
    )
    arguments = ("-o", "asyncio_default_fixture_loop_scope=function")
    result = run_pytest(tested.root, *arguments, site=entry_points(tmp_path), is_bare=False)
    assert "UsageError: arkdev_run was called on a running event loop" in result.stdout


def test_a_test_outside_any_workspace_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(arkdev_workspace):\n    pass\n")
    result = run_pytest(tmp_path, "--rootdir", str(tmp_path), site=entry_points(tmp_path))
    assert "the test is in no workspace" in result.stdout
    assert "hint: a workspace has an arkworkspace.toml" in result.stdout
    assert "pytest_plugin.py" not in result.stdout


PROBE = """
    import json, sys
    import pytest
    assert pytest.main(["--help", "-p", "no:cacheprovider", *sys.argv[1:]]) == 0
    assert "arkdev.pytest_plugin" in sys.modules
    names = {name.partition(".")[0] for name in sys.modules}
    arkdevs = [name for name in sys.modules if name.partition(".")[0] == "arkdev"]
    print(json.dumps([sorted(names), sorted(arkdevs)]), file=sys.stderr)
"""


def test_pytest_is_not_slowed_where_nothing_of_it_is_used(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", dedent(PROBE), "-p", "no:asyncio"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), entry_points(tmp_path)])},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    names, arkdevs = json.loads(result.stderr.splitlines()[-1])
    assert HEAVY.intersection(names) == set()
    assert arkdevs == ["arkdev", "arkdev.pytest_plugin"]
    assert "ark_sdk" not in names


@pytest.mark.parametrize("template", sorted(TEMPLATES))
def test_the_tests_of_a_template_pass(tmp_path: Path, template: str) -> None:
    root = tmp_path / "工作区"
    create_workspace(root, template=template)
    result = run_pytest(root, site=entry_points(tmp_path))
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_tests_of_the_documents_pass(tested: Workspace, tmp_path: Path) -> None:
    for page in ("plugins.md", "pytest.md"):
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        for name, code in re.findall(r"^```python\n# (\S+\.py)\n(.*?)^```$", text, re.M | re.S):
            if name == "plugins/first.py" or page == "pytest.md":
                tested.write(name, code)
    sums = [(12, 7), (3, 4), (20, 5), (8, 8)]
    tested.lines(
        {
            "messages": [{"role": "user", "content": f"{a} + {b} = ?"}],
            "extra": {"answer": str(a + b)},
        }
        for a, b in sums * 4
    )
    result = run_pytest(tested.root, "tests", site=entry_points(tmp_path), CI="")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "4 passed" in result.stdout


def test_a_tape_is_recorded_once_and_replayed_from_then_on(
    tested: Workspace, tmp_path: Path
) -> None:
    site = entry_points(tmp_path)
    tested.samples("one", "two")
    tested.write(
        "tests/test_it.py",
        """
        def test_it(arkdev_tape):
            outcome = arkdev_tape("once.jsonl", num_generations=2, skill=1.0)
            outcome.assert_nothing_failed()
            outcome.assert_reward_mean(at_least=1.0)
            assert outcome.summary.num_rollouts == 4

        def test_run(arkdev_run):
            outcome = arkdev_run(replay="tests/once.jsonl", limit=1)
            assert outcome.records.manifest.settings["replay"].endswith("once.jsonl")
            assert outcome.summary.num_rollouts == 2
            outcome.assert_nothing_failed()
        """,
    )
    tape = tested.root / "tests" / "once.jsonl"

    result = run_pytest(tested.root, site=site, CI="true")
    assert "there is no such tape" in result.stdout
    assert not tape.exists()

    result = run_pytest(tested.root, site=site, CI="")
    assert result.returncode == 0, result.stdout + result.stderr
    recorded = tape.read_bytes()
    result = run_pytest(tested.root, site=site, CI="true")
    assert result.returncode == 0, result.stdout + result.stderr

    source = tested.root / "plugins" / "rollout.py"
    code = source.read_text(encoding="utf-8")
    changed = code.replace('messages=sample.model_dump()["messages"]', "messages=MESSAGES")
    assert changed != code
    message = 'MESSAGES = [{"role": "user", "content": "something else"}]'
    source.write_text(f"{changed}\n{message}\n", encoding="utf-8")
    result = run_pytest(tested.root, site=site, CI="true")
    assert "rollout 0.0 left the tape" in result.stdout
    assert "testing/tapes.py" not in result.stdout.partition("short test summary")[0]
    assert "+something else" in result.stdout
    assert "2 failed" in result.stdout, "arkdev_run on a tape fails like any run"
    assert tape.read_bytes() == recorded
