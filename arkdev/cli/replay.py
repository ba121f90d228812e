"""``arkdev replay RUN``."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arkdev.cli.options import JsonOption

if TYPE_CHECKING:
    from arkdev.flows.regrading import ReplayOutcome
    from arkdev.flows.regrading_plan import ReplayPlan, ReplayRequest

_EPILOG = """\b
Examples:
  arkdev replay latest                                 today's graders on the latest run
  arkdev replay latest --grader plugins.grader:strict  another grader
  arkdev replay RUN --diff recorded plugins.grader:fn  what it would change in training
  arkdev replay RUN --diff plugins.grader:fn@HEAD plugins.grader:fn
  arkdev replay RUN --diff old/grader.py:fn plugins.grader:fn

\b
Exit codes: 0 all good, 1 a grader failed or left something ungraded, 2 usage or configuration,
70 a fault of arkdev, 130 interrupted."""


def register(app: typer.Typer) -> None:
    """Add the command `replay` to `app`."""

    @app.command("replay", epilog=_EPILOG)
    def replay_command(
        run: Annotated[
            str,
            typer.Argument(
                help="Id, its unique beginning or end, a path, or latest (the latest that is no "
                "replay itself)."
            ),
        ],
        grader: Annotated[
            list[str] | None,
            typer.Option(
                "--grader",
                metavar="MODULE:FUNCTION[=WEIGHT]",
                help="A grader; repeatable (default: those of the run).",
            ),
        ] = None,
        diff: Annotated[
            tuple[str, str] | None,
            typer.Option(
                "--diff",
                metavar="GRADER_A GRADER_B",
                help="Compare two graders in training terms: MODULE:FUNCTION, also with @COMMIT, "
                "FILE.py:FUNCTION, or recorded.",
            ),
        ] = None,
        limit: Annotated[
            int | None, typer.Option("--limit", metavar="N", min=1, help="At most so many groups.")
        ] = None,
        concurrency: Annotated[
            int | None,
            typer.Option(
                "--concurrency", metavar="N", min=1, help="At most so many groups at once (32)."
            ),
        ] = None,
        out: Annotated[
            Path | None,
            typer.Option("--out", metavar="DIR", help="The replay's folder, new or empty."),
        ] = None,
        as_json: JsonOption = False,
    ) -> None:
        """Grade a recorded run again, without a call to its model, and say what changed."""
        from arkdev.flows.regrading_plan import ReplayRequest

        request = ReplayRequest(
            start=Path.cwd(),
            run=run,
            graders=tuple(grader or ()),
            diff=diff,
            limit=limit,
            concurrency=concurrency,
            out=out,
        )
        raise typer.Exit(_run(request, as_json=as_json))


def _run(request: ReplayRequest, *, as_json: bool) -> int:
    from arkdev.cli.interrupts import run_interruptible
    from arkdev.cli.replay_display import ReplayDisplay
    from arkdev.cli.streams import keep_results_apart
    from arkdev.flows.regrading import run_replay
    from arkdev.flows.regrading_plan import plan_replay

    # what graders write while they are imported, or past sys.stdout, is no part of the result
    keep_results_apart()
    with redirect_stdout(sys.stderr):
        plan = plan_replay(request)
    display = ReplayDisplay(plan)
    with display, redirect_stdout(sys.stderr):
        outcome = run_interruptible(
            run_replay(plan, display),
            on_give_up=display.give_up,
            on_programs_ended=display.on_programs_ended,
        )
    if as_json:
        _print_json(plan, outcome)
    else:
        display.report(outcome)
    return int(outcome.exit_code)


def _print_json(plan: ReplayPlan, outcome: ReplayOutcome) -> None:
    from arkdev.cli.output import print_json
    from arkdev.runs.masking import masked_value

    document: dict[str, Any] = {
        "run": outcome.folder.name,
        "folder": str(outcome.folder),
        "replayed": plan.source.manifest.run_id,
        "exit_code": int(outcome.exit_code),
        "settings": plan.settings(),
        "summary": outcome.summary.to_json(),
        "changes": outcome.changes.to_json(),
        "diff": outcome.diff.to_json() if outcome.diff else None,
        "judge_calls": outcome.judge_calls,
        "num_left_out": outcome.num_left_out,
        "num_not_whole": outcome.num_not_whole,
        "warnings": list(plan.notes),
    }
    print_json(masked_value(document, secrets=plan.secrets))
