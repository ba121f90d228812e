"""Everything that stands between plugins and the outside, in one call for each use of a tape.

HTTP has its own seam: `arkdev.plugin.traffic` with a rule of `http_calls`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from importlib import import_module
from types import ModuleType
from typing import Any

from arkdev.plugin.imports import ImportWatch
from arkdev.tape.callers import Workspace
from arkdev.tape.clock import clock_read_through
from arkdev.tape.randomness import random_drawn_from
from arkdev.tape.recording import Recording
from arkdev.tape.replay import Replay
from arkdev.tape.threads import threads_call_for

_MCP_MODULES = (
    "mcp.client.session",
    "mcp.client.stdio",
    "mcp.client.sse",
    "mcp.client.streamable_http",
    "mcp.client.websocket",
)
_MCP_CALLS = "arkdev.tape.mcp_calls"


def recorded_through(recording: Recording, workspace: Workspace) -> ExitStack:
    """Record clock, random numbers and MCP, in threads too, until the returned stack is closed.

    Call it before the plugins are imported: they may bind functions by name.
    """
    return _patched(recording, workspace, "record")


def replayed_through(replay: Replay, workspace: Workspace) -> ExitStack:
    """Give clock, random numbers and MCP from a tape until the returned stack is closed."""
    return _patched(replay, workspace, "replay")


def _patched(tape: Recording | Replay, workspace: Workspace, use: str) -> ExitStack:
    undo = ExitStack()
    undo.push(clock_read_through(tape, workspace))
    undo.push(random_drawn_from(tape.generators, workspace))
    undo.enter_context(threads_call_for(workspace))

    def patch(module: ModuleType) -> None:
        function: Callable[..., Any] = getattr(import_module(_MCP_CALLS), use)
        function(module, tape, undo)

    watch = ImportWatch(_MCP_MODULES, on_import=patch)
    watch.start()
    undo.callback(watch.stop)
    return undo
