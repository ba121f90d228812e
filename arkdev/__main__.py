"""The `arkdev` command. `arkdev --version` answers from here, without loading the rest."""

from __future__ import annotations

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
    try:
        # lazy: typer alone costs several interpreter starts
        exit_code = import_module("arkdev.cli.main").run(arguments)
    except KeyboardInterrupt:  # while the commands were still being imported
        exit_code = 130
    import_module("arkdev.cli.streams").end_process(exit_code)


if __name__ == "__main__":
    main()
