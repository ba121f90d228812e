"""``arkdev test grader``: how noisy graders are, and whether they can be hacked."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arkdev.cli.options import JsonOption
from arkdev.errors import UsageError

if TYPE_CHECKING:
    from arkdev.flows.attack_graders import AttackOutcome
    from arkdev.flows.repeat_graders import RepeatOutcome
    from arkdev.flows.test_grader import GraderTestPlan, GraderTestRequest

_EXAMPLES = """\b
Examples:
  arkdev test grader --attack                                 the job's graders, the latest run
  arkdev test grader --attack plugins.my_grader:fn --data data/train.jsonl
  arkdev test grader --attack --show padding                  one attack's trajectory
  arkdev test grader --attack --junit attacks.xml             for CI
  arkdev test grader --repeat 5                               noise, and judge calls needed
  arkdev test grader --repeat 5 plugins.judge:a plugins.judge:b   and how far they agree

\b
Exit codes: 0 all good, 1 a grader failed, 2 usage or configuration, 3 an attack got through (or
the right answer is not at the top), 70 a fault of arkdev, 130 interrupted."""


def register(app: typer.Typer) -> None:
    """Add the command `grader` to the group `test`."""

    @app.command("grader", epilog=_EXAMPLES)
    def grader_command(
        grader: Annotated[
            list[str] | None,
            typer.Argument(
                metavar="[MODULE:FUNCTION[=WEIGHT]]...", help="Graders (default: the job's)."
            ),
        ] = None,
        repeat: Annotated[
            int | None,
            typer.Option(
                "--repeat",
                metavar="N",
                min=2,
                help="Grade a recorded run N times: noise, sign errors of advantages, judge calls.",
            ),
        ] = None,
        attack: Annotated[
            bool,
            typer.Option("--attack", help="Grade trajectories that deserve no reward."),
        ] = False,
        run: Annotated[
            str | None,
            typer.Option(
                "--run", metavar="RUN", help="The recorded run (default: the latest, no replay)."
            ),
        ] = None,
        data: Annotated[
            list[Path] | None,
            typer.Option(
                "--data", metavar="FILE", help="Samples to attack on, without a run; repeatable."
            ),
        ] = None,
        limit: Annotated[
            int | None,
            typer.Option(
                "--limit", metavar="N", min=1, help="Groups to repeat (32), samples to attack (8)."
            ),
        ] = None,
        concurrency: Annotated[
            int | None,
            typer.Option(
                "--concurrency", metavar="N", min=1, help="Gradings of --repeat at once (32)."
            ),
        ] = None,
        floor: Annotated[
            float | None,
            typer.Option(
                "--floor",
                metavar="X",
                help="The most that an attack may score (default: from a wrong answer).",
            ),
        ] = None,
        reference_key: Annotated[
            str | None,
            typer.Option(
                "--reference-key", metavar="KEY", help="Key of extra that has the right answer."
            ),
        ] = None,
        show: Annotated[
            str | None,
            typer.Option("--show", metavar="ATTACK", help="Show the trajectory of an attack."),
        ] = None,
        junit: Annotated[
            Path | None,
            typer.Option("--junit", metavar="FILE", help="Write the attacks as JUnit XML."),
        ] = None,
        seed: Annotated[
            int | None,
            typer.Option("--seed", metavar="N", help="Of the intervals of --repeat (default 0)."),
        ] = None,
        as_json: JsonOption = False,
    ) -> None:
        """Find out whether graders can be hacked (--attack), or how noisy they are (--repeat)."""
        from arkdev.flows.test_grader import GraderTestRequest

        _check_flags(
            "--attack",
            is_given=attack,
            needs={
                "--data": bool(data),
                "--floor": floor is not None,
                "--reference-key": reference_key is not None,
                "--show": show is not None,
                "--junit": junit is not None,
            },
        )
        _check_flags(
            "--repeat",
            is_given=repeat is not None,
            needs={"--seed": seed is not None, "--concurrency": concurrency is not None},
        )
        request = GraderTestRequest(
            start=Path.cwd(),
            graders=tuple(grader or ()),
            repeat=repeat,
            attacks=attack,
            run=run,
            data=tuple(data or ()),
            limit=limit,
            concurrency=concurrency,
            floor=floor,
            reference_key=reference_key,
            seed=seed or 0,
        )
        if attack and repeat is None:
            raise typer.Exit(_attack(request, show=show, junit=junit, as_json=as_json))
        raise typer.Exit(_repeat(request, as_json=as_json))


def _check_flags(test: str, *, is_given: bool, needs: dict[str, bool]) -> None:
    """Refuse flags that would have no effect."""
    given = [flag for flag, is_set in needs.items() if is_set]
    if given and not is_given:
        raise UsageError(f"{', '.join(given)} without {test} would have no effect")


def _planned(request: GraderTestRequest) -> GraderTestPlan:
    from arkdev.cli.streams import keep_results_apart
    from arkdev.flows.test_grader import plan_grader_test

    # what graders write while they are imported, or past sys.stdout, is no part of the result
    keep_results_apart()
    with redirect_stdout(sys.stderr):
        return plan_grader_test(request)


def _attack(
    request: GraderTestRequest, *, show: str | None, junit: Path | None, as_json: bool
) -> int:
    from arkdev.cli.attack_report import check_row_name, render_attack, render_example
    from arkdev.cli.grader_test_display import GraderTestDisplay
    from arkdev.cli.interrupts import run_interruptible
    from arkdev.cli.junit import write_junit
    from arkdev.cli.output import console
    from arkdev.flows.attack_graders import run_attack

    if show is not None:
        check_row_name(show)
    plan = _planned(request)
    display = GraderTestDisplay(plan, unit="sample")
    with display, redirect_stdout(sys.stderr):
        outcome = run_interruptible(
            run_attack(plan, display),
            on_give_up=display.give_up,
            on_programs_ended=display.on_programs_ended,
        )
    if junit is not None:
        write_junit(junit, outcome.graders)
    if as_json:
        _print_attack(plan, outcome)
    else:
        target = console()
        render_attack(outcome, target)
        if show is not None:
            render_example(outcome, target, name=show)
    display.say_judge(outcome.judge_calls, is_attack=True)
    return int(outcome.exit_code)


def _repeat(request: GraderTestRequest, *, as_json: bool) -> int:
    from arkdev.cli.grader_test_display import GraderTestDisplay
    from arkdev.cli.interrupts import run_interruptible
    from arkdev.cli.output import console
    from arkdev.cli.repeat_report import render_repeat
    from arkdev.flows.repeat_graders import run_repeat

    plan = _planned(request)
    display = GraderTestDisplay(plan, unit="group")
    with display, redirect_stdout(sys.stderr):
        outcome = run_interruptible(
            run_repeat(plan, display),
            on_give_up=display.give_up,
            on_programs_ended=display.on_programs_ended,
        )
    if as_json:
        _print_repeat(plan, outcome)
    else:
        render_repeat(outcome, console())
    display.say_judge(outcome.judge_calls, is_attack=False)
    return int(outcome.exit_code)


def _print_attack(plan: GraderTestPlan, outcome: AttackOutcome) -> None:
    from dataclasses import asdict

    document: dict[str, Any] = {
        **_head(plan),
        "exit_code": int(outcome.exit_code),
        "num_samples": outcome.num_samples,
        "num_without_reference": outcome.num_without_reference,
        "reference_key": outcome.reference_key,
        "graders": [asdict(grader) for grader in outcome.graders],
        "judge_calls": outcome.judge_calls,
        "warnings": list(plan.notes),
    }
    _print(plan, document)


def _print_repeat(plan: GraderTestPlan, outcome: RepeatOutcome) -> None:
    from dataclasses import asdict

    document: dict[str, Any] = {
        **_head(plan),
        "exit_code": int(outcome.exit_code),
        "num_groups": outcome.num_groups,
        "num_gradings": outcome.num_gradings,
        "num_small_groups": outcome.num_small_groups,
        "graders": [asdict(grader) for grader in outcome.graders],
        "agreement": asdict(outcome.agreement) if outcome.agreement else None,
        "judge_calls": outcome.judge_calls,
        "warnings": list(plan.notes),
    }
    _print(plan, document)


def _head(plan: GraderTestPlan) -> dict[str, Any]:
    return {
        "run": plan.source.manifest.run_id if plan.source else None,
        "data": [str(path) for path in plan.files],
    }


def _print(plan: GraderTestPlan, document: dict[str, Any]) -> None:
    from arkdev.cli.output import print_json
    from arkdev.runs.masking import masked_value

    print_json(masked_value(document, secrets=plan.secrets))
