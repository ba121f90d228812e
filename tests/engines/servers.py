"""Start real inference servers in environments of their own, and end them by their id."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.engines.dialogues import dialogues_of_check

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ENGINES = Path(os.environ.get("ARKDEV_ENGINES_DIR") or ROOT / ".cache" / "engines")
LOCAL = Path(os.environ.get("ARKDEV_LOCAL_DIR") or ROOT / ".cache" / "local")
"""Where arkdev[local] is installed, which trains."""
START_LIMIT_S = 300.0
"""vLLM needs a minute on two free cores, and several on busy ones."""

_STOP_LIMIT_S = 20.0


def engine_python(name: str) -> Path:
    """The Python of the engine `name`; skips the test when it is not installed, or fails in CI."""
    return _python_in(ENGINES / name)


def training_python() -> Path:
    """The Python that has arkdev[local], likewise."""
    return _python_in(LOCAL)


def _python_in(home: Path) -> Path:
    python = home / "bin" / "python"
    if not python.is_file():
        message = f"no environment in {home}; install it with: bash .ci/engines.sh"
        if os.environ.get("ARKDEV_REQUIRE_ENGINES"):
            pytest.fail(message)
        pytest.skip(message)
    return python


def make_tiny_model(folder: Path) -> None:
    """Write the tiny model into `folder`, in both forms."""
    dialogues = folder / "dialogues.json"
    dialogues.write_text(json.dumps(dialogues_of_check()), encoding="utf-8")
    command = [engine_python("vllm"), HERE / "make_tiny_model.py", dialogues, folder]
    subprocess.run(command, check=True, timeout=START_LIMIT_S, env=_environment())


@contextmanager
def vllm_server(model: Path, *, log: Path) -> Iterator[str]:
    """Serve `model` (a folder) as ``tiny`` with the tool parser of its template; yields the URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        *(str(engine_python("vllm")), "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", str(model), "--served-model-name", "tiny"),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--enforce-eager", "--dtype", "float32", "--max-model-len", "2048"),
        *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
    ]
    settings = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    with _started(command, log=log, settings=settings) as process:
        _wait_for_health(f"http://127.0.0.1:{port}/health", process=process, log=log)
        yield f"http://127.0.0.1:{port}/v1"


@contextmanager
def llama_server(model: Path, *, log: Path) -> Iterator[str]:
    """Serve `model` (a GGUF file) as ``tiny``; yields the URL."""
    command = [str(engine_python("xllamacpp")), str(HERE / "serve_llama.py"), str(model)]
    with _started(command, log=log, settings={}) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:"), _tail(log)
        yield url


def _environment(**settings: str) -> dict[str, str]:
    return {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", **settings}


@contextmanager
def _started(
    command: list[str], *, log: Path, settings: dict[str, str]
) -> Iterator[subprocess.Popen[str]]:
    """Run `command` in a process group of its own; the group ends with the block."""
    with (
        log.open("w", encoding="utf-8") as log_file,
        subprocess.Popen(
            ["nice", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if not settings else log_file,
            stderr=log_file,
            text=True,
            encoding="utf-8",
            env=_environment(**settings),
            start_new_session=True,
        ) as process,
    ):
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(_STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


def _wait_for_health(url: str, *, process: subprocess.Popen[str], log: Path) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        assert process.poll() is None, _tail(log)
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(1)
    pytest.fail(f"{url} did not answer within {START_LIMIT_S:g} s\n{_tail(log)}")


def _tail(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")[-3000:]
