"""``arkdev freeze``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arkdev.cli.options import JsonOption

if TYPE_CHECKING:
    from rich.console import Console

    from arkdev.faas_emulator.requirement_files.requirements import LineFinding
    from arkdev.flows.freeze import FreezeOutcome

_EXAMPLES = """\b
Examples:
  arkdev freeze                            write requirements.txt
  arkdev freeze --dry-run                  print it
  arkdev freeze --check                    in CI: is it what freeze would write?
  arkdev freeze --python .venv-prod/bin/python --platform linux/arm64

\b
Exit codes: 0 written, or nothing to change; 1 --check: the file is another one, or has lines that a
function cannot install; 2 a plugin imports what a function could not have, or uv is missing."""


def register(app: typer.Typer) -> None:
    """Add the command `freeze` to `app`."""
    app.command("freeze", epilog=_EXAMPLES)(freeze)


def freeze(
    python: Annotated[
        Path | None,
        typer.Option(
            "--python",
            metavar="FILE",
            help="The interpreter whose packages count; without it, the workspace's .venv, else "
            "the one that runs arkdev.",
        ),
    ] = None,
    platform: Annotated[
        str, typer.Option("--platform", help="The function's: linux/amd64 or linux/arm64.")
    ] = "linux/amd64",
    python_version: Annotated[
        str, typer.Option("--python-version", metavar="3.N", help="The function's Python.")
    ] = "3.11",
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", help="Write this file, not requirements.txt."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the file and write nothing.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; end with 1 where the file differs.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Write requirements.txt: exact versions of what the plugins import, and of what that needs.

    Imports are read from the files under plugins/ and what they import of the workspace; nothing is
    run. The author's comments and the order of lines stay; what nothing imports is left out.
    """
    from arkdev.cli.output import console, print_json
    from arkdev.errors import ExitCode
    from arkdev.flows.freeze import FreezeRequest, freeze_workspace, write_frozen

    _check_flags(output=output, dry_run=dry_run, check=check)
    found = freeze_workspace(
        FreezeRequest(Path.cwd(), python=python, platform=platform, python_version=python_version)
    )
    is_wrong = check and (found.is_changed or bool(found.problems))
    code = ExitCode.SOME_FAILED if is_wrong else ExitCode.OK
    target = output or found.file
    is_written = not (check or dry_run) and (found.is_changed or output is not None)
    if is_written:
        write_frozen(found, target)
    if as_json:
        print_json(_document(found, code=int(code), is_written=is_written))
    elif dry_run:
        typer.echo(_shown(found.text), nl=False)
    _report(found, console(is_stderr=as_json or dry_run), check=check)
    if is_wrong:
        _print_difference()
    elif not as_json:
        _say_what_was_done(found, target, is_written=is_written, check=check)
    raise typer.Exit(int(code))


def _check_flags(*, output: Path | None, dry_run: bool, check: bool) -> None:
    from arkdev.errors import UsageError

    if check and (output is not None or dry_run):
        other = "--output" if output is not None else "--dry-run"
        raise UsageError(f"--check writes nothing, so {other} has no effect")
    if dry_run and output is not None:
        raise UsageError("--dry-run writes nothing, so --output has no effect")


def _shown(text: str) -> str:
    """The text with the credentials of URLs masked: comments may hold some."""
    from arkdev.faas_emulator.requirement_files.requirement_sources import shown

    return "".join(map(shown, text.splitlines(keepends=True)))


def _report(found: FreezeOutcome, out: Console, *, check: bool) -> None:
    from rich.text import Text

    from arkdev.cli.terminal import printable

    if check and found.diff:
        for line in found.diff.splitlines():
            style = {"+": "green", "-": "red"}.get(line[:1], "dim")
            out.print(Text(printable(line), style=style), soft_wrap=True)
    # lines that are written anew are wrong no more
    rows = [("error", "bold red", found.problems)] if check else []
    rows += [("warning", "yellow", found.warnings), ("left out", "yellow", found.left_out)]
    rows += [("note", "cyan", found.notes)]
    for label, style, findings in rows:
        for finding in findings:
            said = printable(f"{finding.where}: {finding.message}")
            out.print(Text.assemble((f"{label}: ", style), said), soft_wrap=True)
            if finding.advice:
                out.print(Text(f"  {printable(finding.advice)}", style="cyan"), soft_wrap=True)


def _say_what_was_done(
    found: FreezeOutcome, target: Path, *, is_written: bool, check: bool
) -> None:
    from arkdev.cli.output import console
    from arkdev.cli.terminal import plural, printable
    from arkdev.job.paths import shown_path

    imported = sum(bool(pin.imported_at) for pin in found.pins)
    counts = f"{imported} imported, {len(found.pins) - imported} required by these"
    packages = f"{plural(len(found.pins), 'package')} ({counts})" if found.pins else "no packages"
    done = "written" if is_written else "as it should be" if not found.is_changed else "not written"
    others = f"{plural(len(found.unused), 'other package')} of the environment"
    unused = f"; plugins do not need {others}" if found.unused else ""
    is_aside = done == "not written" and not check
    out = console(is_stderr=is_aside)
    out.print(
        printable(
            f"{shown_path(target)}: {done}, {packages} for {found.target}, versions of "
            f"{shown_path(found.interpreter)}{unused}"
        ),
        soft_wrap=True,
    )


def _print_difference() -> None:
    from arkdev.cli.output import print_error
    from arkdev.errors import RequirementsError

    print_error(
        RequirementsError(
            "requirements.txt is not what `arkdev freeze` writes",
            hint="run `arkdev freeze` where the plugins work, and commit the file",
        )
    )


def _document(found: FreezeOutcome, *, code: int, is_written: bool) -> dict[str, Any]:
    from arkdev.job.paths import shown_path

    return {
        "exit_code": code,
        "file": shown_path(found.file),
        "is_changed": found.is_changed,
        "is_written": is_written,
        "python": shown_path(found.interpreter),
        "platform": found.target.platform,
        "python_version": found.target.python,
        "pins": [
            {
                "name": pin.name,
                "version": pin.version,
                "line": pin.text,
                "imported_at": list(pin.imported_at),
                "required_by": list(pin.required_by),
            }
            for pin in found.pins
        ],
        "left_out": _rows(found.left_out),
        "unused": list(found.unused),
        "diff": found.diff,
        "problems": _rows(found.problems),
        "warnings": _rows(found.warnings),
        "notes": _rows(found.notes),
    }


def _rows(findings: Iterable[LineFinding]) -> list[dict[str, str]]:
    return [{"where": f.where, "message": f.message, "fix": f.advice} for f in findings]
