"""`arkdev run FILE`: a user's script as it is, `ark_sdk` resolved and Ark redirected."""

from __future__ import annotations

import atexit
import builtins
import io
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType

from arkdev.errors import ConfigurationError, UsageError
from arkdev.flows.ark_endpoint import ArkEndpoint, ark_served_by
from arkdev.flows.script_instances import script_instances
from arkdev.flows.test_instances import Told
from arkdev.job.capture import Submitter, submitting
from arkdev.job.hyperparameters import declared_names
from arkdev.job.workspace import find_workspace
from arkdev.observe.log_lines import LogLine
from arkdev.plugin import ark_sdk
from arkdev.plugin.test_instance import testing_with


class ScriptError(Exception):
    """Holds the exception that left a user's script, which is not of our making."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(repr(error))
        self.error = error


def run_file(
    file: Path,
    *,
    arguments: Sequence[str],
    endpoint: ArkEndpoint | None,
    say: Callable[[str], None],
    on_submit: Submitter | None = None,
    on_log: Callable[[LogLine], None],
) -> None:
    """Run `file` as ``python FILE ARGUMENTS`` would with the workspace's root on PYTHONPATH.

    `say` is told, in a line, where calls to Ark go, and what becomes of test instances;
    `on_log` of each line that plugins log or print in them. `on_submit` runs the debug jobs that
    the script submits. Raises `ConfigurationError` when there is no
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
            stack.enter_context(ark_served_by(endpoint.resolve(workspace), say=say))
        stack.enter_context(declared_names(workspace.hyperparameters))
        if on_submit is not None:
            stack.enter_context(submitting(on_submit))
        instances = stack.enter_context(script_instances(workspace, told=Told(say, on_log)))
        stack.enter_context(testing_with(instances))
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
