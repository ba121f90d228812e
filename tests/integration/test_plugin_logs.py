"""What plugins log and print: kept by attempt, shown in `arkdev show`, never among the progress."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from arkdev.runs.reader import RunReader
from tests.integration.workspace import Command, Workspace

LOGS = """
    import logging
    from arkdev import rollout, single_grader

    logger = logging.getLogger("plugins.weather")
    seen = set()

    @rollout
    def answer(context, proxy, sample):
        place = sample.messages[0].content
        logger.info("asked about %s", place)
        print("printed", place)
        client = proxy.rollout_client()
        client.chat.completions.create(model="m", messages=sample.model_dump()["messages"])
        if place not in seen:
            seen.add(place)
            try:
                raise TimeoutError("search timed out")
            except TimeoutError:
                logger.exception("tool broke")
            raise ValueError("again")

    @single_grader
    def one(context, sample, trajectory):
        logger.warning("graded %s", sample.messages[0].content)
        return 1.0
"""


@pytest.fixture
def logging_workspace(workspace: Workspace) -> Workspace:
    workspace.write("plugins/rollout.py", LOGS)
    workspace.write("plugins/grader.py", "from plugins.rollout import one")
    workspace.samples("Paris", "Rome")
    return workspace


def test_what_plugins_log_is_shown_under_their_trajectory(
    logging_workspace: Workspace, arkdev: Command
) -> None:
    arkdev("test", "plugin")
    told = arkdev("show", "1.0")
    head, _, log = told.out.partition("Log ")
    assert "weighted" in head
    lines = [line.split(maxsplit=1)[1] for line in log.splitlines()[1:] if line[2:3] == ":"]
    assert lines == [
        "INFO     plugins.weather: asked about Rome",
        "PRINT    printed Rome",
        "ERROR    plugins.weather: tool broke",
        "INFO     attempt 2 plugins.weather: asked about Rome",
        "PRINT    attempt 2 printed Rome",
        "WARNING  one plugins.weather: graded Rome",
    ]
    assert "TimeoutError: search timed out" in log
    assert "Paris" not in log


def test_all_lines_of_a_run_are_listed_by_level(
    logging_workspace: Workspace, arkdev: Command
) -> None:
    arkdev("test", "plugin")
    told = arkdev("show", "--logs")
    assert told.out.count("asked about") == 4
    assert " 0.0 plugins.weather: asked about Paris" in told.out
    told = arkdev("show", "latest", "--logs", "--level", "warning", "--json")
    lines = told.document["logs"]
    assert [line["level"] for line in lines].count("ERROR") == 2
    assert {line["grader"] for line in lines if line["level"] == "WARNING"} == {"one"}
    told = arkdev("show", "--logs", "--level", "loud")
    assert (told.exit_code, "--level loud: there is DEBUG, INFO" in told.err) == (2, True)
    for wrong in (("--level", "error"), ("--logs", "--failed"), ("0.0", "--logs")):
        assert arkdev("show", *wrong).exit_code == 2


def test_too_many_and_too_long_lines_are_cut_and_counted(
    workspace: Workspace, arkdev: Command
) -> None:
    workspace.write(
        "plugins/rollout.py",
        """
        from arkdev import rollout

        @rollout
        def answer(context, proxy, sample):
            print("x" * 1_000_000)
            for number in range(100_000):
                print(number)
            client = proxy.rollout_client()
            client.chat.completions.create(model="m", messages=sample.model_dump()["messages"])
        """,
    )
    told = arkdev("test", "plugin", "--out", "out")
    assert "1,000 lines that plugins logged or printed, 99,001 more are left out" in told.out
    lines = list(RunReader(workspace.root / "out").logs("0.0"))
    assert (len(lines), lines[0].num_cut) == (1001, 1_000_000 - 16_384)
    assert (lines[-1].num_left_out, lines[-1].level) == (99_001, "WARNING")
    assert (workspace.root / "out/logs/plugin.jsonl").stat().st_size < 300_000


def test_on_a_terminal_nothing_of_plugins_disturbs_the_progress(workspace: Workspace) -> None:
    workspace.write(
        "plugins/rollout.py",
        """
        import os, subprocess, sys, threading
        from arkdev import rollout

        @rollout
        def answer(context, proxy, sample):
            os.write(1, b"raw one\\n")
            os.write(2, b"raw two\\n")
            sys.__stderr__.write("the first stderr\\n")
            sys.__stderr__.flush()
            subprocess.run([sys.executable, "-c", "print('a program')"], check=True)
            thread = threading.Thread(target=print, args=("a thread",))
            thread.start()
            thread.join()
            print("printed")
            client = proxy.rollout_client()
            client.chat.completions.create(model="m", messages=sample.model_dump()["messages"])
        """,
    )
    shown, exit_code = on_a_terminal(workspace, "test", "plugin", "--out", "out")
    assert exit_code == 0
    assert "plugins.rollout:answer on 1 sample" in shown  # the display has the terminal
    texts = ("raw one", "raw two", "the first stderr", "a program", "a thread", "printed")
    assert [text for text in texts if text in shown] == []
    lines = list(RunReader(workspace.root / "out").logs())
    assert {line.text: line.level for line in lines} == {
        "raw one": "OUTPUT",
        "raw two": "OUTPUT",
        "the first stderr": "OUTPUT",
        "a program": "OUTPUT",
        "a thread": "PRINT",
        "printed": "PRINT",
    }


def on_a_terminal(workspace: Workspace, *arguments: str) -> tuple[str, int]:
    """What a command shows whose stderr is a terminal, and its exit code."""
    here, there = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "arkdev", *arguments],
        cwd=workspace.root,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=there,
        env=workspace.environment(TERM="xterm", COLUMNS="100"),
    )
    os.close(there)
    shown = b""
    while True:
        try:
            data = os.read(here, 65_536)
        except OSError:  # the other end is closed
            break
        if not data:
            break
        shown += data
    os.close(here)
    return shown.decode("utf-8", "replace"), process.wait(timeout=300)


def test_what_is_logged_is_one_line_of_json_each(logging_workspace: Workspace) -> None:
    run = logging_workspace.run()
    path: Path = run.outcome.folder / "logs/plugin.jsonl"
    assert path.read_bytes().count(b"\n") == len(list(run.reader.logs()))
    for name in ("0.0", "1.0"):  # threads of different attempts write as they come
        ats = [line.at for line in run.reader.logs(name)]
        assert ats == sorted(ats) and ats[0].endswith("Z")
