"""What the root of the command line makes of exceptions, signals and closed pipes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest
import typer

from arkdev.cli.main import build_app, build_root, run
from arkdev.errors import ArkdevError, DataError, EndpointUnreachableError

_SLEEPER = """
import sys, time, typer
from arkdev.cli.main import build_root, run

def build():
    app = build_root()
    @app.command()
    def work() -> None:
        {body}
    return app

sys.exit(run(["work"], build=build))
"""


def app_that(action: Callable[[], object]) -> Callable[[], typer.Typer]:
    def build() -> typer.Typer:
        app = build_root()

        @app.command()
        def work() -> None:
            action()

        return app

    return build


def raiser(error: BaseException) -> Callable[[], object]:
    def raise_it() -> None:
        raise error

    return raise_it


def start(body: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _SLEEPER.format(body=body)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )


def test_a_command_that_returns_exits_with_0() -> None:
    assert run(["work"], build=app_that(lambda: None)) == 0


def test_a_command_chooses_its_own_exit_code() -> None:
    assert run(["work"], build=app_that(raiser(typer.Exit(3)))) == 3


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ArkdevError("some failed"), 1),
        (DataError("not JSON", where="data/train.jsonl:7", hint="write one object per line"), 2),
        (EndpointUnreachableError("no connection"), 4),
    ],
)
def test_a_known_error_is_told_on_stderr_with_its_own_code(
    error: ArkdevError, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["work"], build=app_that(raiser(error))) == code
    told = capsys.readouterr()
    assert told.out == ""
    for part in (error.message, error.where, error.hint):
        assert part in told.err
    assert "Traceback" not in told.err


def test_a_fault_of_ours_is_one_sentence_without_a_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ARKDEV_DEBUG", raising=False)
    assert run(["work"], build=app_that(raiser(ValueError("unforeseen")))) == 70
    told = capsys.readouterr().err
    assert "a fault in arkdev" in told and "ValueError: unforeseen" in told
    assert "--debug" in told
    assert "Traceback" not in told


@pytest.mark.parametrize("arguments", [["--debug", "work"], ["work"]])
def test_debug_shows_the_traceback(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARKDEV_DEBUG", "0" if "--debug" in arguments else "1")
    assert run(arguments, build=app_that(raiser(ValueError("unforeseen")))) == 70
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_an_unknown_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["wrok"], build=app_that(lambda: None)) == 2
    assert "wrok" in capsys.readouterr().err


def test_version_is_the_same_by_both_ways(capsys: pytest.CaptureFixture[str]) -> None:
    fast = subprocess.run(
        [sys.executable, "-m", "arkdev", "--version"],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
    )
    assert run(["--version", "work"], build=app_that(lambda: None)) == 0
    assert capsys.readouterr().out == fast.stdout


def test_ctrl_c_exits_with_130_and_no_traceback() -> None:
    process = start('print("ready", flush=True); time.sleep(120)')
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "Traceback" not in told


def test_a_reader_that_goes_away_is_no_fault() -> None:
    process = start('[typer.echo("x" * 1000) for _ in range(1000)]')
    assert process.stdout is not None and process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    told = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=300) == 141
    assert told == ""


def test_another_broken_pipe_is_not_taken_for_a_closed_output() -> None:
    process = start('raise BrokenPipeError(32, "a socket")')
    _, told = process.communicate(timeout=300)
    assert process.returncode == 70
    assert "a socket" in told


@pytest.mark.parametrize(
    ("words", "place", "offered"),
    [
        ("arkdev te", 1, "test"),
        ("arkdev init new --template ", 4, "minimal"),
        ("arkdev schema show-", 2, "show-failed"),
        ("arkdev show ", 2, "latest"),
    ],
)
def test_the_shell_completes_commands_and_values(words: str, place: int, offered: str) -> None:
    completed = subprocess.run(
        [sys.executable, "-m", "arkdev"],
        env={
            **os.environ,
            "_ARKDEV_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(place),
        },
        capture_output=True,
        encoding="utf-8",
        check=True,
        timeout=300,
    )
    assert offered in completed.stdout.split()


def test_building_the_commands_again_adds_none_of_them_twice():
    build_app()
    for group in build_app().registered_groups:
        callbacks = [info.callback for info in group.typer_instance.registered_commands]
        assert len(callbacks) == len(set(callbacks))


@pytest.mark.parametrize("group", [[], ["doctor"]])
def test_the_help_has_each_command_s_whole_sentence(
    group: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*group, "--help"]) == 0
    listed = capsys.readouterr().out.partition("Commands:")[2].partition("Examples:")[0]
    assert listed.strip() and "..." not in listed
