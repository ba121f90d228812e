"""vLLM's process: started, watched, ended with us; what it printed last when it goes wrong."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from arkdev.backends.local.vllm import guardian
from arkdev.errors import PolicyEngineError

_NUM_LAST_LINES = 6
_NUM_CAUSES = 2
_LINE_LENGTH = 100
_TAIL_BYTES = 20_000_000
_ENDS_WITHIN_S = 15.0
_PREFIX = re.compile(r"^(\(\w+ pid=\d+\) )?([A-Z]+ \d\d-\d\d [\d:]+ )?(\[[\w.]+:\d+\] ?)?")
_NOISE = re.compile(r"^(nanobind: | - (leaked|\.\.\.) |- (leaked|\.\.\.) |See https://nanobind)")
"""What its libraries say at every end."""
_IS_NO_ERROR = re.compile(r"^\S* ?\S* ?(INFO|WARNING) ")
_CAUSE = re.compile(r"^[\w.]*(Error|Exception): ")


@dataclass
class VllmProcess:
    """A command in a process group of its own, whose output goes to `log`.

    It ends with `end`, and by itself when this process is gone, however that ended
    (`arkdev.backends.local.vllm.guardian`).
    """

    log: Path
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="arkdev-vllm-")))
    """For its socket and what it puts away; nobody else's, and removed at its end."""
    has_ended: threading.Event = field(default_factory=threading.Event)
    exit_code: int | None = None
    _process: subprocess.Popen[bytes] | None = None
    _lifeline: int = -1
    _lock: threading.Lock = field(default_factory=threading.Lock)
    """Between signals to the process group and waiting for its leader, whose number it has."""

    def start(self, command: Sequence[str], *, environment: Mapping[str, str]) -> None:
        """Start it. Raises `PolicyEngineError` when it cannot be started at all."""
        lifeline, self._lifeline = os.pipe()
        guarded = [command[0], "-I", guardian.__file__, str(lifeline), str(self.folder), *command]
        try:
            with self.log.open("wb") as log:
                self._process = subprocess.Popen(
                    guarded,
                    cwd=self.folder,
                    env=dict(environment),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    pass_fds=(lifeline,),
                    start_new_session=True,
                )
        except OSError as error:
            self.end()
            raise PolicyEngineError(f"vLLM cannot be started: {error}") from error
        finally:
            os.close(lifeline)
        waiting = threading.Thread(
            target=self._wait, args=(self._process,), name="arkdev-vllm-process", daemon=True
        )
        waiting.start()

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for its end, and end what it leaves behind."""
        if hasattr(os, "waitid"):  # until it is waited for below, its number is nobody else's
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            self._signal(signal.SIGKILL)
        with self._lock:
            code = process.wait()
        self.exit_code = code if code >= 0 else 128 - code
        self.has_ended.set()

    def _signal(self, number: signal.Signals) -> None:
        with self._lock, suppress(ProcessLookupError, PermissionError):
            if self._process is not None and self._process.returncode is None:
                os.killpg(self._process.pid, number)

    def end(self) -> None:
        """End it and all that it started, and remove its folder; blocks. Idempotent."""
        lifeline, self._lifeline = self._lifeline, -1
        if lifeline >= 0:
            os.close(lifeline)  # the guardian ends it in good order
        if self._process is not None and not self.has_ended.wait(_ENDS_WITHIN_S):
            self._signal(signal.SIGKILL)
            self.has_ended.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def fault(self, what: str) -> PolicyEngineError:
        """Make an error of what happened, its causes as it printed them, and its last lines."""
        if self.has_ended.is_set():
            what = f"{what}: vLLM ended ({_said_of(self.exit_code)})"
        causes, last = told_by(self.log)
        return PolicyEngineError(
            ": ".join([what, *causes]),
            where=str(self.log),
            hint="it printed last:\n" + "\n".join(last) if last else "it printed nothing",
        )

    @property
    def last_line(self) -> str:
        """What it printed last."""
        _, last = told_by(self.log)
        return last[-1][:_LINE_LENGTH] if last else ""


def told_by(log: Path) -> tuple[list[str], list[str]]:
    """Return the exceptions that ended what a log of vLLM tells of, each once, and its last lines.

    The lines are without their prefix of process, time and place. The first exceptions are the
    cause: what follows, many times over, is how other processes saw the end.
    """
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return [], []
    lines: list[str] = []
    causes: dict[str, None] = {}
    for raw in text.splitlines():
        prefix = _PREFIX.match(raw)
        line = raw[prefix.end() :].strip() if prefix else raw.strip()
        if not line or _NOISE.match(line):
            continue
        lines.append(line)
        if _CAUSE.match(line) and not _IS_NO_ERROR.search(raw):
            causes[line] = None
    return list(causes)[:_NUM_CAUSES], lines[-_NUM_LAST_LINES:]


def _said_of(code: int | None) -> str:
    if code is not None and code > 128:
        with suppress(ValueError):
            return f"killed by {signal.Signals(code - 128).name}"
    return f"exit code {code}"
