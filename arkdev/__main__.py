"""The `arkdev` command. `arkdev --version` answers from here, without loading the rest."""

from __future__ import annotations

import os
import sys
from importlib import import_module

from arkdev import __version__


def main() -> None:
    """Run the command line of this process and exit with one of `errors.ExitCode`."""
    arguments = sys.argv[1:]
    if None in (sys.stdin, sys.stdout, sys.stderr):
        import_module("arkdev.cli.streams").open_missing_streams()
    if arguments == ["--version"]:
        sys.stdout.write(f"arkdev {__version__}\n")
        return
    if _records(arguments) and "PYTHONHASHSEED" not in os.environ:
        _restart_with_hash_seed()
    try:
        # lazy: typer alone costs several interpreter starts
        exit_code = import_module("arkdev.cli.main").run(arguments)
    except KeyboardInterrupt:  # while the commands were still being imported
        exit_code = 130
    import_module("arkdev.cli.streams").end_process(exit_code)


def _records(arguments: list[str]) -> bool:
    return arguments[:2] == ["test", "plugin"] and any(
        argument.partition("=")[0] == "--record" for argument in arguments
    )


def _restart_with_hash_seed() -> None:
    """Begin again with a hash seed that a tape can name: the order of a set of texts hangs on it.

    Python draws it before anything runs, and keeps it for itself.
    """
    seed = int.from_bytes(os.urandom(4), "big") or 1
    os.environ["PYTHONHASHSEED"] = str(seed)
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


if __name__ == "__main__":
    main()
