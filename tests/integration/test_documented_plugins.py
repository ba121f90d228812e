"""The pages about plugins keep their word: code blocks are run, messages are compared."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from arkdev.plugin.decorators import plugin_of
from arkdev.plugin.loading import load_plugin
from tests.integration.workspace import Command, Workspace

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "plugins.md"
CHINESE_PAGE = DOCS / "plugins.zh-CN.md"

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# ((?:plugins|tests)/\w+\.py)\n")
_DECORATED = re.compile(
    r"^@\w*(?:rollout|grader)\b.*?^(?:async )?def (\w+)", re.MULTILINE | re.DOTALL
)
_TOLERATED = {"client_built_per_rollout"}
"""Warnings of examples that show a client of one's own."""


def blocks(page: Path) -> list[tuple[str, str]]:
    return _BLOCK.findall(page.read_text(encoding="utf-8"))


def files() -> dict[str, str]:
    """The file of each Python block, by the name in its first line."""
    return {
        match[1]: code
        for language, code in blocks(PAGE)
        if language == "python" and (match := _FILE.match(code))
    }


FILES = files()
CONSOLES = [code for language, code in blocks(PAGE) if language == "console"]


def modules_of_mistakes() -> set[str]:
    return set(re.findall(r"plugins\.(\w+):", "".join(CONSOLES)))


GOOD = [
    (Path(name).stem, function)
    for name, code in FILES.items()
    if name.startswith("plugins/") and Path(name).stem not in modules_of_mistakes()
    for function in _DECORATED.findall(code)
]


@pytest.fixture
def documented(workspace: Workspace) -> Workspace:
    """A workspace with the files of the page and a sample with an answer."""
    for name, code in FILES.items():
        workspace.write(name, code)
    question = {"role": "user", "content": "What is 12 plus 7? And the price of an apple?"}
    workspace.lines([{"messages": [question], "extra": {"answer": "19"}}])
    return workspace


def test_every_python_block_is_a_file_with_a_name_of_its_own() -> None:
    code = [code for language, code in blocks(PAGE) if language == "python"]
    assert len(FILES) == len(code) > 10


def test_every_kind_of_plugin_is_shown() -> None:
    assert len(GOOD) >= 14


def test_the_chinese_page_has_the_same_code() -> None:
    assert blocks(CHINESE_PAGE) == blocks(PAGE)


@pytest.mark.parametrize(("module", "function"), GOOD)
def test_a_documented_plugin_runs(documented: Workspace, module: str, function: str) -> None:
    reference = f"plugins.{module}:{function}"
    plugin = plugin_of(load_plugin(reference, root=documented.root).function)
    assert plugin is not None
    given = {"rollout": reference} if plugin.kind.is_rollout else {"graders": (reference,)}
    run = documented.run(num_generations=2, **given)
    assert (run.exit_code, run.summary.num_graded) == (0, 2)
    assert {warning.code for warning in run.summary.warnings} - {"reward_constant"} <= _TOLERATED


def test_the_tool_of_the_page_is_called(documented: Workspace) -> None:
    run = documented.run(rollout="plugins.tools:with_tools", skill=1.0)
    assert [message["role"] for message in run.trajectories[0].messages] == [
        *("user", "assistant", "tool", "assistant")
    ]


# the first mistake is a coroutine that nobody awaits, of which Python complains as well
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("console", CONSOLES, ids=lambda text: text.partition("\n")[0][22:])
def test_a_documented_mistake_is_told_so(
    documented: Workspace, arkdev: Command, console: str
) -> None:
    command, *promised = console.strip().splitlines()
    told = arkdev(*shlex.split(command.removeprefix("$ arkdev ")))
    said = " ".join(f"{told.out} {told.err}".split())
    assert [line for line in promised if line not in said] == []
    assert promised


def test_the_documented_tests_pass(documented: Workspace) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=documented.root,
        env=documented.environment(PYTHONPATH=f"{documented.root}:{':'.join(sys.path)}"),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, "2 passed" in done.stdout) == (0, True), done.stdout + done.stderr
