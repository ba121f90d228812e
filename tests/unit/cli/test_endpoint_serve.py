"""`arkdev endpoint serve scripted`."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from arkdev.cli.endpoint import _Made, _serve, app
from arkdev.endpoints.scripted.server import ScriptedServer
from arkdev.errors import ConfigurationError, UsageError


@contextmanager
def serving(*flags: str) -> Iterator[subprocess.Popen[str]]:
    program = "from arkdev.cli.endpoint import app; app()"
    process = subprocess.Popen(
        [sys.executable, "-c", program, "serve", "scripted", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=300)


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def content_from(url: str) -> str:
    body = json.dumps({"messages": [{"role": "user", "content": "12 + 7"}]}).encode()
    request = urllib.request.Request(f"{url}/chat/completions", body)
    with urllib.request.urlopen(request, timeout=60) as response:
        return str(json.load(response)["choices"][0]["message"]["content"])


@pytest.mark.parametrize("interruption", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_prints_the_url_serves_and_ends_with_130(interruption: signal.Signals) -> None:
    with serving("--skill", "1") as process:
        url = first_line(process)
        assert content_from(url) == "The answer is 19."
        process.send_signal(interruption)
        assert process.wait(60) == 130


def test_json_is_one_document_and_the_script_is_used(tmp_path: Path) -> None:
    script = tmp_path / "script.yaml"
    script.write_text("answers: [{content: scripted}]", encoding="utf-8")
    with serving("--json", "--script", str(script), "--latency", "0.01") as process:
        shown = json.loads(first_line(process))
        assert content_from(shown["url"]) == "scripted"
    assert (shown["schema_version"], shown["model"], shown["latency_s"]) == (1, "scripted", 0.01)


def test_a_wrong_script_and_a_taken_port_are_said() -> None:
    result = CliRunner().invoke(app, ["serve", "scripted", "--script", "missing.yaml"])
    assert isinstance(result.exception, ConfigurationError)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = CliRunner().invoke(app, ["serve", "scripted", "--port", port])
    assert isinstance(result.exception, UsageError) and port in str(result.exception)


@pytest.mark.parametrize("flags", [["nothing"], ["scripted", "--skill", "2"]])
def test_wrong_flags_end_with_2(flags: list[str]) -> None:
    assert CliRunner().invoke(app, ["serve", *flags]).exit_code == 2


def test_help_has_an_example() -> None:
    result = CliRunner().invoke(app, ["serve", "--help"], env={"COLUMNS": "120"})
    assert result.exit_code == 0
    assert "arkdev endpoint serve scripted --port 8000" in result.output


async def test_what_answers_is_closed_after_its_server(capsys: pytest.CaptureFixture[str]) -> None:
    answered_at_the_end = []

    async def close() -> None:
        with pytest.raises(OSError, match=r"[Cc]onn"):
            await asyncio.open_connection(*address)
        answered_at_the_end.append(False)

    made = _Made(ScriptedServer(skill=1.0), "the scripted model", {}, close)
    serving_it = asyncio.create_task(_serve(made, host="127.0.0.1", port=0, as_json=False))
    shown = ""
    while not (shown := shown + capsys.readouterr().out):  # noqa: ASYNC110 (it tells nobody else)
        await asyncio.sleep(0.01)
    host, port = shown.split("/")[2].split(":")
    address = (host, int(port))
    serving_it.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving_it
    assert answered_at_the_end == [False]
