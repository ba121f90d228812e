"""vLLM's process ends with us, and its last words are told. A shell plays its part."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from arkdev.backends.local.vllm.process import VllmProcess, told_by
from arkdev.errors import PolicyEngineError

PYTHON = sys.executable
SLEEPER = (
    "import subprocess as s; p = s.Popen(['sleep', '300']); print(p.pid, flush=True); p.wait()"
)
"""Starts a process of its own and prints its id."""
OWNER = f"""
import sys, time
from pathlib import Path
from arkdev.backends.local.vllm.process import VllmProcess
process = VllmProcess(Path(sys.argv[1]))
process.start([sys.executable, "-c", {SLEEPER!r}], environment={{}})
print(process.folder, flush=True)
time.sleep(300)
"""


def printed_id(log: Path) -> int:
    return int(until(lambda: log.is_file() and log.read_text(encoding="utf-8").strip()))


def until(condition):
    deadline = time.monotonic() + 60
    while not (value := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return value


def is_gone(pid: int) -> bool:
    """Also when it waits to be reaped by what adopted it."""
    listed = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return listed.stdout.strip()[:1] in ("", "Z")


def test_it_ends_with_all_that_it_started(tmp_path: Path) -> None:
    process = VllmProcess(tmp_path / "log")
    process.start([PYTHON, "-c", SLEEPER], environment={})
    sleeper = printed_id(process.log)
    process.end()
    process.end()
    until(lambda: is_gone(sleeper))
    assert not process.folder.exists()


def test_it_ends_when_its_owner_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = [PYTHON, "-c", OWNER, str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        folder = Path(owner.stdout.readline().strip())
        sleeper = printed_id(log)
        assert folder.is_dir() and not is_gone(sleeper)
        os.kill(owner.pid, signal.SIGKILL)
    until(lambda: is_gone(sleeper))
    until(lambda: not folder.exists())


def test_what_it_leaves_behind_ends_when_it_has_ended(tmp_path: Path) -> None:
    process = VllmProcess(tmp_path / "log")
    process.start([PYTHON, "-c", SLEEPER.removesuffix("; p.wait()")], environment={})
    sleeper = printed_id(process.log)
    until(lambda: is_gone(sleeper))
    assert process.has_ended.wait(60)
    process.end()


def test_its_end_is_told_with_causes_and_last_lines(tmp_path: Path) -> None:
    process = VllmProcess(tmp_path / "log")
    text = "(Worker pid=7) ERROR 11-30 02:50:22 [core.py:15] ValueError: head_dim=40\n" * 2
    process.start([PYTHON, "-c", f"print({text!r}); raise SystemExit(3)"], environment={})
    assert process.has_ended.wait(60)
    fault = process.fault("vLLM did not start")
    assert fault.message == "vLLM did not start: vLLM ended (exit code 3): ValueError: head_dim=40"
    assert fault.hint.endswith("ValueError: head_dim=40")
    assert fault.where == str(process.log)
    process.end()


def test_a_signal_that_ended_it_has_its_name(tmp_path: Path) -> None:
    process = VllmProcess(tmp_path / "log")
    kill = "import os; os.kill(os.getpid(), 9)"
    process.start([PYTHON, "-c", kill], environment={})
    assert process.has_ended.wait(60)
    assert "killed by SIGKILL" in process.fault("vLLM broke off").message
    process.end()


def test_what_cannot_be_started_is_an_error(tmp_path: Path) -> None:
    process = VllmProcess(tmp_path / "log")
    with pytest.raises(PolicyEngineError, match="cannot be started"):
        process.start([str(tmp_path / "nowhere")], environment={})
    assert not process.folder.exists()


def test_the_first_errors_are_the_cause_and_warnings_are_none(tmp_path: Path) -> None:
    log = tmp_path / "log"
    lines = [
        "(APIServer pid=5) WARNING 11-30 03:54:59 [base.py:380] ValueError: no tokenizer",
        "(Worker pid=6) ERROR 11-30 03:55:03 [multiproc.py:10] RuntimeError: no offset",
        *["(APIServer pid=5) ERROR 11-30 03:55:03 [e.py:54] vllm.EngineDeadError: see above"] * 9,
        "INFO:     Shutting down",
        "nanobind: leaked 4 instances!",
        ' - leaked type "TMEM"',
    ]
    log.write_text("\n".join(lines), encoding="utf-8")
    causes, last = told_by(log)
    assert causes == ["RuntimeError: no offset", "vllm.EngineDeadError: see above"]
    assert last[-1] == "INFO:     Shutting down"


def test_a_log_that_is_not_there_tells_nothing(tmp_path: Path) -> None:
    assert told_by(tmp_path / "log") == ([], [])
