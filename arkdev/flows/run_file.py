"""`arkdev run FILE`: a user's script as it is, `ark_sdk` resolved and Ark redirected."""

from __future__ import annotations

import asyncio
import atexit
import builtins
import io
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from arkdev.endpoints.limits import within_limits
from arkdev.endpoints.registry import open_endpoint, resolve_endpoint, user_config_file
from arkdev.endpoints.spec import EndpointSpec
from arkdev.errors import ConfigurationError, UsageError
from arkdev.flows.environment import environment
from arkdev.job.capture import Submitter, submitting
from arkdev.job.hyperparameters import declared_names
from arkdev.job.workspace import Workspace, find_workspace
from arkdev.plugin import ark_sdk, redirect
from arkdev.sessions.background import BackgroundLoop
from arkdev.sessions.identity import AttemptIdentity
from arkdev.sessions.session import Session, SessionServices

_T = TypeVar("_T")

_MAX_IN_FLIGHT = 512
_MODEL_CALL_TIMEOUT_S = 600.0
_NOT_PASSED_ON = ("n (one answer came)", "seed (not used)")
"""What the gateway leaves out of a raw client's request, in its own words."""


class ScriptError(Exception):
    """Holds the exception that left a user's script, which is not of our making."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(repr(error))
        self.error = error


@dataclass(frozen=True)
class ScriptEndpoint:
    """Where the script's calls to Ark go."""

    name_or_url: str
    model: str | None = None
    api_key_env: str | None = None

    def resolve(self, workspace: Workspace) -> EndpointSpec:
        """Raises `ConfigurationError` when there is no such endpoint."""
        return resolve_endpoint(
            self.name_or_url,
            model=self.model,
            api_key_env=self.api_key_env,
            workspace_endpoints=workspace.endpoints,
            user_config=user_config_file(),
        )


def run_file(
    file: Path,
    *,
    arguments: Sequence[str],
    endpoint: ScriptEndpoint | None,
    say: Callable[[str], None],
    on_submit: Submitter | None = None,
) -> None:
    """Run `file` as ``python FILE ARGUMENTS`` would with the workspace's root on PYTHONPATH.

    `say` is told, in a line, where calls to Ark go, and `on_submit` runs the debug jobs that the
    script submits. Raises `ConfigurationError` when there is no
    such file or endpoint, and `EndpointUnreachableError` when nothing listens there: the script has
    not begun then. What leaves the script is a `ScriptError`; `SystemExit`, `KeyboardInterrupt` and
    a `ConfigurationError` (say, of a name whose behaviour comes later) pass through.
    """
    if not file.is_file():
        what = "a folder, not a file" if file.is_dir() else "not there"
        raise UsageError(f"{file} is {what}", hint="name a Python file of the workspace")
    workspace = find_workspace(file.resolve().parent)
    ark_sdk.install()
    with ExitStack() as stack:
        if endpoint is not None:
            stack.enter_context(_served(endpoint.resolve(workspace), say=say))
        stack.enter_context(declared_names(workspace.hyperparameters))
        if on_submit is not None:
            stack.enter_context(submitting(on_submit))
        stack.enter_context(_interpreter_state(file, arguments=arguments, root=workspace.root))
        threads = set(threading.enumerate())
        try:
            _execute(file)
        except (SystemExit, KeyboardInterrupt, ConfigurationError):
            raise
        except BaseException as error:
            raise ScriptError(error) from error
        finally:
            left = set(threading.enumerate()) - threads
            if any(not thread.daemon for thread in left):  # Python waits for them at its end
                atexit.register(stack.pop_all().close)


def _execute(file: Path) -> None:
    path = str(file.absolute())
    with io.open_code(path) as source:
        code = compile(source.read(), path, "exec", dont_inherit=True)
    main = ModuleType("__main__")
    main.__dict__.update(__file__=path, __cached__=None, __builtins__=builtins)
    sys.modules["__main__"] = main  # where pickle and multiprocessing look
    exec(code, main.__dict__)


@contextmanager
def _interpreter_state(file: Path, *, arguments: Sequence[str], root: Path) -> Iterator[None]:
    """Set what a script sees of its start: arguments, module search path, ``__main__``."""
    argv, path, main = sys.argv, list(sys.path), sys.modules["__main__"]
    num_ours = 0 if sys.flags.safe_path else 1  # the folder of `arkdev` itself
    sys.argv = [str(file), *arguments]
    sys.path[:num_ours] = [str(file.resolve().parent), str(root)]
    try:
        yield
    finally:
        sys.argv, sys.path[:], sys.modules["__main__"] = argv, path, main


@contextmanager
def _served(spec: EndpointSpec, *, say: Callable[[str], None]) -> Iterator[None]:
    """Send calls to Ark's public hosts to `spec`, which is reached through a port of ours.

    The script never sees the endpoint's key; ARK_BASE_URL and ARK_API_KEY name the port.
    """
    background = BackgroundLoop()
    background.start()
    serve = _scripted if spec.base_url is None else _remote
    try:
        with serve(spec, background, say) as (url, key):
            model = "" if spec.model in (None, spec.name) else f" ({spec.model})"
            say(f"calls to Ark go to the endpoint {spec.name}{model}")
            redirect.install()
            redirect.start(url, key=key)
            with environment({"ARK_BASE_URL": url, "ARK_API_KEY": key}):
                yield
    finally:
        redirect.uninstall()
        background.stop()


_Say = Callable[[str], None]


@contextmanager
def _scripted(spec: EndpointSpec, loop: BackgroundLoop, _say: _Say) -> Iterator[tuple[str, str]]:
    server = import_module("arkdev.endpoints.scripted.server").ScriptedServer(model=spec.model)
    url = _on(loop, server.start())
    try:
        yield f"{url.removesuffix('/v1')}/api/v3", "scripted"
    finally:
        _on(loop, server.stop())


@contextmanager
def _remote(spec: EndpointSpec, loop: BackgroundLoop, say: _Say) -> Iterator[tuple[str, str]]:
    """Put a gateway in front of an endpoint: it knows the key and the model, and translates."""
    most = spec.limits.max_in_flight or _MAX_IN_FLIGHT
    endpoint = within_limits(
        open_endpoint(spec, max_in_flight=most, timeout_s=_MODEL_CALL_TIMEOUT_S),
        spec.limits,
        loop=loop.loop,
    )
    gateway = import_module("arkdev.sessions.gateway").Gateway()
    try:
        _on(loop, endpoint.check_reachable())
        services = SessionServices(
            endpoint=endpoint, gateway_url=_on(loop, gateway.start()), blocking_loop=loop.loop
        )
        session = Session(AttemptIdentity(0, 0, 0), sampling={}, services=services)
        gateway.open(session)
        yield gateway.url, session.jwt_token
        for detail in _NOT_PASSED_ON:
            if f"raw_sampling_parameter: {detail}" in session.warnings:
                say(f"a call set {detail}")
    finally:
        _on(loop, gateway.stop())
        _on(loop, endpoint.close())


def _on(background: BackgroundLoop, work: Coroutine[Any, Any, _T]) -> _T:
    return asyncio.run_coroutine_threadsafe(work, background.loop).result()
