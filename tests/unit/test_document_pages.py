"""The documents keep their word: links lead somewhere and command lines can be typed."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Iterator
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import typer

from arkdev.cli.main import build_app
from arkdev.harness.warnings import WARNINGS
from arkdev.runs import records
from tests.running import running

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("templates/*/*.md")])
READMES = (ROOT / "README.md", ROOT / "README.zh-CN.md")
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks_of(page: Path, *languages: str) -> list[str]:
    text = page.read_text(encoding="utf-8")
    return [code for language, code in _BLOCK.findall(text) if language in languages]


def command_lines() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for block in blocks_of(page, "bash", "console", "sh"):
            for line in block.splitlines():
                command = line.removeprefix("$ ").strip()
                if command.startswith("arkdev "):
                    yield name_of(page), command


COMMAND_LINES = sorted(set(command_lines()))


@cache
def root_command() -> Any:
    return typer.main.get_command(build_app())


@cache
def can_explain_itself(*path: str) -> bool:
    with redirect_stdout(StringIO()) as help_text:
        root_command().main([*path, "--help"], prog_name="arkdev", standalone_mode=False)
    return f"arkdev {' '.join(path)}" in help_text.getvalue()


def split(command: str) -> tuple[list[str], list[str]]:
    """(words that name a command, its arguments) of one command line, without its comment."""
    words = shlex.split(command, comments=True)[1:]
    node, path = root_command(), []
    while words and hasattr(node, "commands") and words[0] in node.commands:
        node = node.commands[words[0]]
        path.append(words.pop(0))
    return path, words


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_relative_link_leads_to_a_file(page: Path) -> None:
    text = _BLOCK.sub("", page.read_text(encoding="utf-8"))
    links = [link for link in _LINK.findall(text) if not re.match(r"[a-z]+:|#", link)]
    missing = [link for link in links if not (page.parent / link.partition("#")[0]).exists()]
    assert missing == []


def test_every_page_of_docs_is_in_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    linked = set(_LINK.findall(index))
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert pages - linked == set()


def test_command_lines_were_found() -> None:
    assert {page for page, _ in COMMAND_LINES} >= {"README.md", "docs/commands.md"}


@pytest.mark.parametrize(("page", "command"), COMMAND_LINES)
def test_a_shown_command_line_can_be_typed(page: str, command: str) -> None:
    path, arguments = split(command)
    assert path, f"{page}: no command of that name"
    node = root_command()
    for word in path:
        node = node.commands[word]
    known = {option for parameter in node.params for option in parameter.opts}
    used = {word.partition("=")[0] for word in arguments if word.startswith("--")}
    assert used - known == set()
    assert can_explain_itself(*path)


@pytest.mark.parametrize(
    "record",
    [
        records.Manifest,
        records.SampleRecord,
        records.TrajectoryRecord,
        records.Attempt,
        records.FaultRecord,
        records.TurnRecord,
        records.GroupRecord,
        records.GraderRecord,
        records.TokenRecord,
        records.PluginLogRecord,
        records.SpanRecord,
    ],
)
def test_every_field_of_a_run_folder_is_described(record: Any) -> None:
    page = (ROOT / "docs" / "runs.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(\w+)`", page))
    assert {field.name for field in dataclasses.fields(record)} - named == set()


def test_every_warning_is_described() -> None:
    page = (ROOT / "docs" / "runs.md").read_text(encoding="utf-8")
    assert [code for code in WARNINGS if f"| `{code}` |" not in page] == []


def test_both_readmes_show_the_same_commands() -> None:
    english, chinese = (blocks_of(page, "bash", "python", "text") for page in READMES)
    assert english == chinese


@pytest.mark.parametrize("page", READMES, ids=name_of)
def test_the_report_in_the_readme_is_a_real_one(page: Path) -> None:
    assert "PASTE" not in page.read_text(encoding="utf-8")


def test_readme_s_plugin_is_valid(tmp_path: Path) -> None:
    (code,) = blocks_of(READMES[0], "python")
    names: dict[str, Any] = {}
    exec(compile(code, str(tmp_path / "echo.py"), "exec"), names)
    assert callable(names["echo"])


def test_agents_md_fits_on_one_screen() -> None:
    assert len((ROOT / "AGENTS.md").read_text(encoding="utf-8").splitlines()) <= 40


async def test_the_group_rollout_of_the_documents_makes_branches_of_one_plan() -> None:
    (code,) = blocks_of(ROOT / "docs" / "group-rollouts.md", "python")
    names: dict[str, Any] = {}
    exec(compile(code, "group-rollouts.md", "exec"), names)
    async with running(["the plan", "one", "two"]) as run:
        finished = await run.group(names["plan_then_answer"], n=2)
    paths = [[message["content"] for message in one.record.messages] for one in finished]
    plan = ["Plan, do not answer: how is the weather?", "the plan", "Now answer."]
    assert paths == [[*plan, "one"], [*plan, "two"]]
    assert [one.record.extra for one in finished] == [{"branch": 0}, {"branch": 1}]
