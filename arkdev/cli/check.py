"""``arkdev check``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from arkdev.cli.options import JsonOption

if TYPE_CHECKING:
    from arkdev.flows.check_job import Finding, JobCheck

_EXAMPLES = """\b
Examples:
  arkdev check
  arkdev check jobs/grpo.yaml
  arkdev check --json | jq -r '.problems[] | "\\(.where): \\(.message)"'

\b
Exit codes: 0 nothing is wrong (warnings are good), 2 something is."""


def register(app: typer.Typer) -> None:
    """Add the command `check` to `app`."""
    app.command("check", epilog=_EXAMPLES)(check)


def check(
    job: Annotated[
        Path | None,
        typer.Argument(help="The job file; without it, the workspace's own.", show_default=False),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check a job before anything starts: the file, its plugins, its data.

    Every problem is told at once with file:line. Plugins are imported and not called; of each data
    file the first 100 samples are looked at.
    """
    import sys
    from contextlib import redirect_stdout

    from arkdev.cli.output import print_error, print_json
    from arkdev.cli.streams import keep_results_apart
    from arkdev.cli.terminal import plural
    from arkdev.errors import ExitCode, JobError
    from arkdev.flows.check_job import check_job
    from arkdev.job.paths import shown_path

    keep_results_apart()  # job.py and plugins may print
    with redirect_stdout(sys.stderr):
        found = check_job(Path.cwd(), job)
    code = ExitCode.USAGE if found.problems else ExitCode.OK
    if as_json:
        print_json(
            {
                "exit_code": int(code),
                "job": shown_path(found.source),
                "customization_type": found.job.customization_type.value if found.job else None,
                "inferred": list(found.job.inferred) if found.job else [],
                "problems": _rows(found.problems),
                "warnings": _rows(found.warnings),
            }
        )
    else:
        _print(found)
    if found.problems:
        count = plural(len(found.problems), "problem")
        print_error(JobError(f"{count}; nothing was run", where=shown_path(found.source)))
    raise typer.Exit(int(code))


def _rows(findings: tuple[Finding, ...]) -> list[dict[str, str]]:
    return [{"where": f.where, "message": f.message, "fix": f.fix} for f in findings]


def _print(found: JobCheck) -> None:
    from rich.text import Text

    from arkdev.cli.output import console
    from arkdev.cli.terminal import printable

    out = console()
    for label, style, findings in (
        ("error", "bold red", found.problems),
        ("warning", "yellow", found.warnings),
    ):
        for finding in findings:
            place = f"{finding.where}: " if finding.where else ""
            line = Text(f"{label:<8}", style=style)
            line.append(printable(f"{place}{finding.message}"))
            out.print(line, soft_wrap=True)
            if finding.fix:
                out.print(Text(f"{'':<8}{printable(finding.fix)}", style="cyan"), soft_wrap=True)
    for sentence in found.job.inferred if found.job else ():
        out.print(Text(f"inferred {printable(sentence)}", style="dim"), soft_wrap=True)
    out.print(Text(printable(_summary(found)), style="bold"), soft_wrap=True)


def _summary(found: JobCheck) -> str:
    from arkdev.cli.terminal import plural
    from arkdev.job.paths import shown_path

    method = f"{found.job.customization_type}, " if found.job else ""
    looked_at = f"{plural(found.num_plugins, 'plugin')} and {plural(found.num_files, 'data file')}"
    verdict = (
        plural(len(found.problems), "problem") if found.problems else "nothing is wrong with it"
    )
    warnings = f", {plural(len(found.warnings), 'warning')}" if found.warnings else ""
    return f"{shown_path(found.source)}: {verdict}{warnings} ({method}{looked_at} looked at)"
