"""`arkdev run FILE`: a user's script with `ark_sdk` resolved, against a served scripted model."""

from __future__ import annotations

import asyncio
import runpy
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from importlib import import_module
from pathlib import Path

from arkdev.errors import UsageError
from arkdev.flows.environment import environment
from arkdev.job.workspace import find_workspace
from arkdev.plugin import ark_sdk
from arkdev.plugin.loading import use_workspace
from arkdev.sessions.background import BackgroundLoop


def run_file(file: Path, *, arguments: Sequence[str], endpoint: str | None) -> None:
    """Run `file` as ``__main__``. What it raises is the user's own and is not caught.

    Raises `UsageError` when there is no such file or the endpoint is not one that can be served.
    """
    if not file.is_file():
        raise UsageError(f"there is no file {file}")
    if endpoint not in (None, "scripted"):
        raise UsageError(
            f"--endpoint {endpoint}: `arkdev run` serves the scripted model only",
            hint="for another model set ARK_BASE_URL and ARK_API_KEY, which the script reads",
        )
    ark_sdk.install()
    use_workspace(find_workspace(file.resolve().parent).root)
    serving = _scripted_model() if endpoint else nullcontext()
    argv = sys.argv
    sys.argv = [str(file), *arguments]
    try:
        with serving:
            runpy.run_path(str(file), run_name="__main__")
    finally:
        sys.argv = argv


@contextmanager
def _scripted_model() -> Iterator[None]:
    """Serve the scripted model on a free port and point the script's environment at it."""
    server = import_module("arkdev.endpoints.scripted.server").ScriptedServer()
    background = BackgroundLoop()
    background.start()
    try:
        url = asyncio.run_coroutine_threadsafe(server.start(), background.loop).result()
        with environment({"ARK_BASE_URL": url, "ARK_API_KEY": "scripted"}):
            yield
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), background.loop).result(timeout=5)
        background.stop()
