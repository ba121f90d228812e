"""The root of the command line: which commands there are, and what becomes of an exception.

A command module imports typer and the standard library at its top and everything else inside the
command's function, so that `arkdev --help` stays quick. Modules in `_COMMANDS` have
``register(app)``; modules in `_GROUPS` have a Typer ``app`` of their own.
"""

from __future__ import annotations

import errno
import os
import select
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer

from arkdev import __version__
from arkdev.cli.later import LaterGroup
from arkdev.cli.output import configure_streams, print_error
from arkdev.cli.streams import drop_output, results
from arkdev.errors import ArkdevError, ExitCode, OutputError

_COMMANDS = (
    "init",
    "check",
    "plan",
    "run",
    "runs",
    "replay",
    "debug",
    "train",
    "forecast",
    "freeze",
    "schema",
    "export",
    "stop",
    "watch",
)
"""`arkdev.cli.<name>` registers its commands on the root; `runs` also brings `show`."""

_GROUPS = ("test", "endpoint", "data", "faas", "get", "create", "list", "doctor")
"""`arkdev.cli.<name>.app` is the group `arkdev <name>`."""

_GROUP_COMMANDS = (
    ("endpoint", "endpoint_list"),
    ("endpoint", "endpoint_check"),
    ("get", "get_job"),
    ("test", "test_grader"),
    ("test", "test_pipeline_plugin"),
    ("doctor", "doctor_tokens"),
)
"""(group, module): the module registers its commands on that group."""

_LACKS = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EROFS,
    errno.EIO,
    errno.EMFILE,
    errno.ENFILE,
)
"""What the machine lacks: space, or descriptors."""

_OUTPUT_CLOSED = 141
"""As a shell reports a program whose reader went away (128 + SIGPIPE)."""


class _Root(LaterGroup):
    """The root group. Typer would end any broken pipe, a socket's too, without a word."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            sys.exit(_OUTPUT_CLOSED if _is_output_closed() else _on_fault(error))


def build_root() -> typer.Typer:
    """Return the root app without any command."""
    app = typer.Typer(
        name="arkdev",
        cls=_Root,
        help="Write, test and train agent plugins for reinforcement learning on a laptop.",
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # rich's own help costs more than all other imports together
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    return app


@cache
def build_app() -> typer.Typer:
    """Return the root app with every command registered. Made once: groups belong to modules."""
    app = build_root()
    groups = {name: import_module(f"arkdev.cli.{name}").app for name in _GROUPS}
    for name in _COMMANDS:
        import_module(f"arkdev.cli.{name}").register(app)
    for group, name in _GROUP_COMMANDS:
        import_module(f"arkdev.cli.{name}").register(groups[group])
    for name, group_app in groups.items():
        app.add_typer(group_app, name=name)
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"arkdev {__version__}")
        raise typer.Exit


def _root(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error (or ARKDEV_DEBUG=1).")
    ] = False,
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    if debug:
        # in the environment, so that processes that this one starts see it too
        os.environ["ARKDEV_DEBUG"] = "1"


def run(arguments: Sequence[str], *, build: Callable[[], typer.Typer] = build_app) -> int:
    """Run one command line and return its exit code; errors are reported on stderr."""
    configure_streams()
    try:
        build()(args=list(arguments), prog_name="arkdev")
    except SystemExit as exit_request:
        code = exit_request.code
        return code if isinstance(code, int) else ExitCode.OK
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last handler
        return _on_error(error)
    return ExitCode.OK


def _on_error(error: Exception) -> int:
    """Report what a person can do something about as such; whatever is left is our fault."""
    leaves = _leaves(error)
    known = next((leaf for leaf in leaves if isinstance(leaf, ArkdevError)), None)
    if known is not None:
        return _on_known_error(known)
    lack = next((leaf for leaf in leaves if _is_lack(leaf)), None)
    if not isinstance(lack, OSError):
        return _on_fault(error)
    is_output = lack.filename is None
    if is_output:  # nothing more goes there; the interpreter would fail at its own last flush
        drop_output(results().fileno())
    what = "the output cannot be written" if is_output else "the system refused"
    return _on_known_error(OutputError(f"{what}: {lack.strerror}", where=str(lack.filename or "")))


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]


def _is_lack(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in _LACKS


def _is_debugging() -> bool:
    return os.environ.get("ARKDEV_DEBUG", "") not in ("", "0")


def _on_known_error(error: ArkdevError) -> int:
    if _is_debugging():
        traceback.print_exception(error, file=sys.stderr)
    print_error(error)
    return error.exit_code


def _on_fault(error: BaseException) -> int:
    if _is_debugging():
        traceback.print_exception(error, file=sys.stderr)
    sys.stderr.write(
        f"a fault in arkdev {__version__}: {type(error).__name__}: {error}\n"
        "run again with `arkdev --debug ...` for the traceback\n"
    )
    return ExitCode.INTERNAL


def _is_output_closed() -> bool:
    poll = select.poll()
    poll.register(results(), 0)  # no event asked for: only an error or a hang-up is reported
    if not poll.poll(0):
        return False
    drop_output(results().fileno())
    return True
