"""`arkdev init`: both spellings, its output, and no questions asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from arkdev.cli.init import register
from arkdev.errors import UsageError, WorkspaceError
from arkdev.flows.init_workspace import TEMPLATES


def run(*args: str) -> Result:
    """Type `arkdev *args` with stdin closed."""
    app = typer.Typer()
    app.callback()(lambda: None)
    register(app)
    return CliRunner().invoke(app, args)


@pytest.mark.parametrize("words", [["init"], ["init", "workspace"]])
def test_both_spellings_make_the_workspace(tmp_path: Path, words: list[str]) -> None:
    target = tmp_path / "my ws"
    result = run(*words, str(target), "--template", "minimal")
    assert result.exit_code == 0
    assert (target / "plugins/exact_answer.py").is_file()
    assert f"cd '{target}'" in result.stdout
    assert "arkdev test plugin" in result.stdout


def test_the_default_template_is_the_weather_demo(tmp_path: Path) -> None:
    run("init", str(tmp_path / "ws"))
    assert (tmp_path / "ws/plugins/weather_rollout.py").is_file()


def test_no_cd_is_advised_for_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("init", ".", "--template", "minimal")
    assert result.exit_code == 0
    assert "cd " not in result.stdout


def test_json_is_one_document(tmp_path: Path) -> None:
    result = run("init", str(tmp_path / "工作区"), "--template", "minimal", "--json")
    document = json.loads(result.stdout)
    assert document["schema_version"] == 1
    assert document["directory"] == str(tmp_path / "工作区")
    assert "job.yaml" in document["files"]


def test_list_shows_every_template_and_makes_nothing(tmp_path: Path) -> None:
    result = run("init", str(tmp_path / "ws"), "--list")
    assert [line.split()[0] for line in result.stdout.splitlines()] == list(TEMPLATES)
    assert not (tmp_path / "ws").exists()
    templates = json.loads(run("init", "--list", "--json").stdout)["templates"]
    assert {entry["name"]: entry["description"] for entry in templates} == TEMPLATES


@pytest.mark.parametrize("words", [[], ["workspace"], ["a", "b"], ["workspace", "a", "b"]])
def test_exactly_one_folder_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("init", *words)
    assert isinstance(result.exception, UsageError)
    assert "arkdev init DIR" in result.exception.hint
    assert list(tmp_path.iterdir()) == []


def test_a_taken_folder_is_an_error_and_never_a_question(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    result = run("init", str(tmp_path))
    assert isinstance(result.exception, WorkspaceError)
    assert result.exception.exit_code == 2
    assert result.stdout == ""
