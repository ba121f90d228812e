"""`arkdev endpoint check` on the command line."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from arkdev.cli.main import run
from arkdev.endpoints.scripted.server import ScriptedServer
from arkdev.sessions.background import BackgroundLoop

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "endpoints.md"
SECRET = "sk-0123456789abcdef"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("COLUMNS", "160")


@pytest.fixture
def locked_url() -> Iterator[str]:
    """A scripted server that wants a key."""
    background = BackgroundLoop()
    background.start()
    server = ScriptedServer(api_key=SECRET)
    yield asyncio.run_coroutine_threadsafe(server.start(), background.loop).result(timeout=5)
    asyncio.run_coroutine_threadsafe(server.stop(), background.loop).result(timeout=5)
    background.stop()


def test_the_table_says_what_works_and_what_that_means(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["endpoint", "check", "scripted"]) == 0
    told = capsys.readouterr()
    assert re.search(r"^tool calls +yes +get_weather\(", told.out, flags=re.MULTILINE)
    assert re.search(r"^token evidence +no +text-only", told.out, flags=re.MULTILINE)
    assert "asking for tool calls ... tool calls: yes" in told.err


def test_the_document_shows_the_scripted_model_s_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert run(["endpoint", "check", "scripted"]) == 0
    section = DOCUMENT.read_text(encoding="utf-8").partition("### The scripted model")[2]
    shown = section.partition("```text\n")[2].partition("```")[0]
    assert len(verdicts(shown)) == 19
    assert verdicts(capsys.readouterr().out) == verdicts(shown)


def verdicts(table: str) -> list[tuple[str, str]]:
    """(what, whether it works) of each row; the evidence varies."""
    return re.findall(r"^(\S.*?) {2,}(yes|partly|no|unknown) ", table, flags=re.MULTILINE)


def test_json_is_one_document_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["endpoint", "check", "scripted", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema_version"] == 1 and document["model"] == "scripted"
    chat = document["capabilities"][0]
    assert chat.keys() == {"name", "support", "evidence", "status", "server_said", "duration_s"}
    assert (chat["name"], chat["support"], chat["status"]) == ("chat", "yes", 200)
    assert {feature["name"] for feature in document["features"]} >= {"rollouts", "token evidence"}


def test_nothing_there_is_exit_code_4(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:  # as long as it is, nobody else listens there
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        arguments = ["endpoint", "check", f"http://127.0.0.1:{port}/v1", "--model", "m1"]
        assert run(arguments) == 4
    told = capsys.readouterr()
    assert told.out == "" and f"127.0.0.1:{port}" in told.err and "Traceback" not in told.err
    assert "asking for a chat call ... \nerror: " in told.err


def test_an_unknown_name_is_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["endpoint", "check", "skripted"]) == 2
    assert "Did you mean 'scripted'" in capsys.readouterr().err


def test_a_missing_and_a_wrong_key_are_exit_code_2_and_not_shown(
    locked_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["endpoint", "check", locked_url, "--model", "scripted"]
    assert run(arguments) == 2
    assert "--api-key-env" in capsys.readouterr().err
    monkeypatch.setenv("LAB_KEY", "sk-another-key-of-mine")
    assert run([*arguments, "--api-key-env", "LAB_KEY"]) == 2
    told = capsys.readouterr()
    assert "LAB_KEY" in told.err and "sk-another" not in told.err + told.out
    monkeypatch.setenv("LAB_KEY", SECRET)
    assert run([*arguments, "--api-key-env", "LAB_KEY"]) == 0
