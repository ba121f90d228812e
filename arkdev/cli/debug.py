"""``arkdev debug``."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arkdev.cli.durations import stall_threshold_s
from arkdev.cli.options import (
    AdaptiveOption,
    ApiKeyEnvOption,
    FaasEngineOption,
    FaasOption,
    InjectOption,
    JsonOption,
    MaxInFlightOption,
    MaxNewTokensOption,
    MinRewardMeanOption,
    MinSuccessRateOption,
    ModelOption,
    NetworkOption,
    OutOption,
    RealArkSdkOption,
    RequestsPerMinuteOption,
    ResumeOption,
    ScriptOption,
    SkillOption,
    StallThresholdOption,
    SuccessThresholdOption,
    TemperatureOption,
    TokensPerMinuteOption,
    TopPOption,
    TraceOption,
)
from arkdev.cli.stopping_instances import give_up_after_s

if TYPE_CHECKING:
    from arkdev.flows.debug import DebugOutcome
    from arkdev.flows.debug_plan import DebugPlan
    from arkdev.flows.debug_request import DebugRequest
    from arkdev.harness.forecast.forecast import Forecast
    from arkdev.job.job import Job

_EXAMPLES = """\b
Examples:
  arkdev debug                                   the whole job, on its debug_config or scripted
  arkdev debug -f job.yaml --steps 3             three of its steps
  arkdev debug --steps 1 --endpoint ark --model doubao-seed-2-0-mini-260428
  arkdev debug --steps 2 --batch-size 4 --n-sample 4
  arkdev debug --keep-going                      see all that would fail the job
  arkdev debug --resume latest                   go on after a kill or Ctrl-C

\b
Exit codes: 0 all good (discards alone are good), 1 a grader or a leak check found fault,
2 usage or configuration, 3 a threshold was missed, 4 endpoint unreachable, 5 the job would
fail, 70 a fault of arkdev, 130 interrupted."""


def register(app: typer.Typer) -> None:
    """Add the command `debug` to `app`."""
    app.command("debug", epilog=_EXAMPLES)(debug)


def debug(
    job: Annotated[
        Path | None,
        typer.Option(
            "--file",
            "-f",
            "--job",
            metavar="FILE",
            help="The job file, in place of job.yaml or job.py.",
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option("--steps", metavar="N", min=1, help="Steps (default: the job's num_steps)."),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option("--batch-size", metavar="N", min=1, help="Samples of a step, over the job's."),
    ] = None,
    n_sample: Annotated[
        int | None,
        typer.Option(
            "--n-sample", metavar="N", min=1, help="Rollouts of each sample, over the job's."
        ),
    ] = None,
    validation_limit: Annotated[
        int | None,
        typer.Option(
            "--validation-limit",
            metavar="N",
            min=0,
            help="Samples of each round of validation; 0: no rounds.",
        ),
    ] = None,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Go on where a job would have failed.")
    ] = False,
    concurrency: Annotated[
        int | None,
        typer.Option(
            "--concurrency", metavar="N", min=1, help="Rollouts at once (default: batch_size)."
        ),
    ] = None,
    requests_per_minute: RequestsPerMinuteOption = None,
    tokens_per_minute: TokensPerMinuteOption = None,
    max_in_flight: MaxInFlightOption = None,
    adaptive: AdaptiveOption = False,
    endpoint: Annotated[
        str | None,
        typer.Option(
            "--endpoint",
            metavar="NAME|URL",
            help="Over the job's debug_config: scripted, ark, a name of yours, or a URL.",
        ),
    ] = None,
    model: ModelOption = None,
    api_key_env: ApiKeyEnvOption = None,
    teacher_endpoint: Annotated[
        str | None,
        typer.Option(
            "--teacher-endpoint",
            metavar="NAME|URL",
            help="Of an OPD job: show it what the teacher would see, and keep its replies.",
        ),
    ] = None,
    teacher_model: Annotated[
        str | None,
        typer.Option("--teacher-model", metavar="MODEL", help="The teacher endpoint's model."),
    ] = None,
    tokenizer: Annotated[
        Path | None,
        typer.Option(
            "--tokenizer",
            metavar="PATH",
            help="A tokenizer.json, or its folder: counts tokens where there are no token ids.",
        ),
    ] = None,
    skill: SkillOption = None,
    script: ScriptOption = None,
    temperature: TemperatureOption = None,
    top_p: TopPOption = None,
    max_new_tokens: MaxNewTokensOption = None,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed", metavar="N", help="Of batches, splits and the scripted model (default 0)."
        ),
    ] = None,
    inject: InjectOption = None,
    success_threshold: SuccessThresholdOption = None,
    min_reward_mean: MinRewardMeanOption = None,
    min_success_rate: MinSuccessRateOption = None,
    stall_threshold: StallThresholdOption = None,
    faas: FaasOption = False,
    faas_engine: FaasEngineOption = None,
    network: NetworkOption = None,
    out: OutOption = None,
    trace: TraceOption = False,
    resume: ResumeOption = None,
    real_ark_sdk: RealArkSdkOption = False,
    as_json: JsonOption = False,
) -> None:
    """Rehearse a training job: all of it but the weights, step by step.

    Batches, rollouts, graders, advantages, validation and metrics are those of the job. It ends
    where the job would fail.
    """
    from arkdev.flows.debug_request import DebugRequest

    sampling = {"temperature": temperature, "top_p": top_p, "max_new_tokens": max_new_tokens}
    request = DebugRequest(
        start=Path.cwd(),
        job=job,
        num_generations=n_sample,
        concurrency=concurrency,
        requests_per_minute=requests_per_minute,
        tokens_per_minute=tokens_per_minute,
        max_in_flight=max_in_flight,
        adaptive=adaptive,
        endpoint=endpoint,
        model=model,
        api_key_env=api_key_env,
        skill=skill,
        script=script,
        sampling={name: value for name, value in sampling.items() if value is not None},
        seed=seed,
        inject=inject,
        success_threshold=success_threshold,
        min_reward_mean=min_reward_mean,
        min_success_rate=min_success_rate,
        stall_threshold_s=stall_threshold_s(stall_threshold),
        faas=faas,
        faas_engine=faas_engine and faas_engine.value,
        network=network and network.value,
        out=out,
        trace=trace,
        uses_real_ark_sdk=real_ark_sdk,
        resume=resume,
        steps=steps,
        batch_size=batch_size,
        validation_limit=validation_limit,
        keep_going=keep_going,
        teacher_endpoint=teacher_endpoint,
        teacher_model=teacher_model,
        tokenizer=tokenizer,
    )
    outcome = run_and_show(request, as_json=as_json)
    raise typer.Exit(int(outcome.exit_code))


def run_and_show(request: DebugRequest, *, job: Job | None = None, as_json: bool) -> DebugOutcome:
    """Rehearse the workspace's job, or `job`, and print what came of it."""
    from arkdev.cli.debug_display import DebugDisplay
    from arkdev.cli.html_report import write_html_report
    from arkdev.cli.interrupts import run_interruptible
    from arkdev.cli.streams import keep_results_apart
    from arkdev.flows.debug import run_debug
    from arkdev.flows.debug_plan import plan_debug
    from arkdev.flows.forecast import forecast_run
    from arkdev.runs.reader import RunReader

    keep_results_apart()
    with redirect_stdout(sys.stderr):
        plan = plan_debug(request, job=job)
    display = DebugDisplay(plan)
    with display, redirect_stdout(sys.stderr):
        outcome = run_interruptible(
            run_debug(plan, display),
            on_give_up=display.give_up,
            give_up_after_s=give_up_after_s(request),
            on_programs_ended=display.on_programs_ended,
        )
    reader = RunReader(outcome.folder)
    forecast = forecast_run(reader, prices=plan.workspace.prices)
    page = write_html_report(reader, forecast)
    if as_json:
        display.say_end(outcome)
        _print_json(plan, outcome, forecast=forecast, page=page)
    else:
        display.show(outcome, forecast=forecast, page=page)
    return outcome


def _print_json(plan: DebugPlan, outcome: DebugOutcome, *, forecast: Forecast, page: Path) -> None:
    import dataclasses

    from arkdev.cli.output import print_json
    from arkdev.runs.masking import masked_value

    failure = outcome.failure
    document: dict[str, Any] = {
        "run": outcome.folder.name,
        "folder": str(outcome.folder),
        "job_id": outcome.job_id,
        "report": str(page),
        "exit_code": int(outcome.exit_code),
        "settings": plan.settings(),
        "steps": [step.to_json() for step in outcome.steps],
        "failure": None if failure is None else str(failure),
        "summary": outcome.summary.to_json(),
        "validation": outcome.validation and outcome.validation.to_json(),
        "forecast": forecast.to_json(),
        "thresholds": [dataclasses.asdict(threshold) for threshold in outcome.thresholds],
        "warnings": [
            *plan.notes,
            *map(str, plan.warnings),
            *outcome.warnings,
            *outcome.notes,
            *(outcome.tracing.warnings if outcome.tracing else ()),
        ],
    }
    print_json(masked_value(document, secrets=plan.secrets))
