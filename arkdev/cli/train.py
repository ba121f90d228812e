"""``arkdev train``."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arkdev.cli.options import (
    FaasEngineOption,
    FaasOption,
    InjectOption,
    JsonOption,
    NetworkOption,
    OutOption,
    RealArkSdkOption,
    ResumeOption,
    TraceOption,
)
from arkdev.cli.stopping_instances import give_up_after_s

if TYPE_CHECKING:
    from arkdev.flows.train import TrainOutcome
    from arkdev.flows.train_plan import TrainPlan
    from arkdev.flows.train_request import TrainRequest

_EXAMPLES = """\b
Examples:
  arkdev train                                   the embedded model, here, by [train.local]
  arkdev train --steps 10 --set max_new_tokens=48
  arkdev train --model ./Qwen3-0.6B --lr 1e-5    a Hugging Face folder
  arkdev train --seed 1 --policy-lag 1           rollouts go on while the policy is updated
  arkdev train --resume latest                   go on after a kill or Ctrl-C

\b
Exit codes: those of `arkdev debug`; 4 also when what samples from the model fails, 130 also when
it was stopped."""


class Backend(StrEnum):
    """Who trains."""

    LOCAL = "local"
    REMOTE = "remote"


class MetricSink(StrEnum):
    """Where metrics can go besides the run folder."""

    TENSORBOARD = "tensorboard"
    WANDB = "wandb"
    MLFLOW = "mlflow"
    TRACKIO = "trackio"


class Engine(StrEnum):
    """What samples from the policy."""

    TORCH = "torch"
    VLLM = "vllm"


def register(app: typer.Typer) -> None:
    """Add the command `train` to `app`."""
    app.command("train", epilog=_EXAMPLES)(train)


def train(
    ctx: typer.Context,
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
    backend: Annotated[
        Backend, typer.Option("--backend", help="Who trains: this machine, or the platform.")
    ] = Backend.LOCAL,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="NAME|PATH",
            help="What is trained: tiny (the embedded model, the default), a Hugging Face folder, "
            "or a training run, from its model on.",
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option("--steps", metavar="N", min=1, help="Steps, in place of num_steps."),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            "--batch-size", metavar="N", min=1, help="Samples of a step, in place of the job's."
        ),
    ] = None,
    num_generations: Annotated[
        int | None,
        typer.Option(
            "--num-generations",
            "--n-sample",
            metavar="N",
            min=1,
            help="Rollouts of each sample, in place of the job's.",
        ),
    ] = None,
    lr: Annotated[
        float | None,
        typer.Option("--lr", metavar="X", help="Learning rate, in place of the job's."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Any other hyperparameter, or setting of [train.local]; may be repeated.",
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
    concurrency: Annotated[
        int | None,
        typer.Option("--concurrency", metavar="N", min=1, help="Rollouts at once."),
    ] = None,
    engine: Annotated[
        Engine | None,
        typer.Option("--engine", help="What samples from the policy (default torch)."),
    ] = None,
    vllm_python: Annotated[
        Path | None,
        typer.Option(
            "--vllm-python",
            metavar="PATH",
            help="The Python that has vLLM, with --engine vllm (default: $ARKDEV_VLLM_PYTHON, "
            "else this one).",
        ),
    ] = None,
    policy_lag: Annotated[
        int | None,
        typer.Option(
            "--policy-lag",
            metavar="K",
            min=0,
            help="Let weights that are up to K updates old answer, so that rollouts go on "
            "while the policy is updated (default 0).",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            metavar="N",
            help="Of batches, splits and sampling (default 0); given, it repeats a run on a CPU.",
        ),
    ] = None,
    deterministic: Annotated[
        bool,
        typer.Option(
            "--deterministic",
            help="The same answers whatever runs beside them; --seed brings it.",
        ),
    ] = False,
    log_to: Annotated[
        list[MetricSink] | None,
        typer.Option(
            "--log-to",
            metavar="TRACKER",
            help="Send the metrics there too: tensorboard, wandb, mlflow or trackio; may be "
            "repeated.",
        ),
    ] = None,
    detach: Annotated[
        bool,
        typer.Option("--detach", help="Train in the background; `arkdev watch` follows."),
    ] = False,
    inject: InjectOption = None,
    faas: FaasOption = False,
    faas_engine: FaasEngineOption = None,
    network: NetworkOption = None,
    out: OutOption = None,
    trace: TraceOption = False,
    resume: ResumeOption = None,
    real_ark_sdk: RealArkSdkOption = False,
    as_json: JsonOption = False,
    output: Annotated[Path | None, typer.Option("--detached-output", hidden=True)] = None,
) -> None:
    """Train the workspace's job with GRPO, on this machine.

    Rollouts and graders are those that `arkdev test plugin` and `arkdev debug` run; a model of
    this machine stands for the job's. Hyperparameters of [train.local] in arkworkspace.toml stand
    for the job's, and flags for both: `arkdev plan --backend local` shows them all.
    """
    from arkdev.errors import ComesLaterError
    from arkdev.flows.train_request import TrainRequest

    if backend is Backend.REMOTE:
        raise ComesLaterError(
            "`arkdev train --backend remote` is not built yet: it comes with remote job management",
            hint="arkdev plan --backend remote says what the platform would do",
        )
    if detach:
        from arkdev.cli.runs import runs_here
        from arkdev.cli.train_detached import train_in_background

        train_in_background(ctx, runs=runs_here(), as_json=as_json)
        return
    request = TrainRequest(
        start=Path.cwd(),
        job=job,
        num_generations=num_generations,
        concurrency=concurrency,
        model=model,
        seed=seed,
        inject=inject,
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
        lr=lr,
        settings=_settings(settings or []),
        engine=engine and engine.value,
        vllm_python=vllm_python,
        policy_lag=policy_lag,
        deterministic=deterministic,
        log_to=tuple(sink.value for sink in log_to or ()),
        output=output,
    )
    outcome = run_and_show(request, as_json=as_json)
    raise typer.Exit(int(outcome.exit_code))


def run_and_show(request: TrainRequest, *, as_json: bool) -> TrainOutcome:
    """Train the workspace's job, and print what came of it."""
    from arkdev.cli.interrupts import run_interruptible
    from arkdev.cli.streams import keep_results_apart
    from arkdev.cli.train_display import TrainDisplay
    from arkdev.flows.train import run_train
    from arkdev.flows.train_plan import plan_train

    keep_results_apart()
    with redirect_stdout(sys.stderr):
        plan = plan_train(request)
    display = TrainDisplay(plan)
    with display, redirect_stdout(sys.stderr):
        outcome = run_interruptible(
            run_train(plan, display),
            on_give_up=display.give_up,
            give_up_after_s=give_up_after_s(request),
            on_programs_ended=display.on_programs_ended,
        )
    if as_json:
        display.say_end(outcome)
        _print_json(plan, outcome)
    else:
        display.show(outcome)
    return outcome


def _settings(given: list[str]) -> dict[str, str]:
    from arkdev.errors import UsageError

    settings: dict[str, str] = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not sign or not name or not value:
            raise UsageError(
                f"--set {text}: NAME=VALUE is expected", hint="e.g. --set kl_coefficient=0.01"
            )
        if name in settings:
            raise UsageError(f"--set {name} is given twice")
        settings[name] = value
    return settings


def _print_json(plan: TrainPlan, outcome: TrainOutcome) -> None:
    from arkdev.cli.output import print_json
    from arkdev.runs.masking import masked_value

    failure = outcome.failure
    document: dict[str, Any] = {
        "run": outcome.folder.name,
        "folder": str(outcome.folder),
        "job_id": outcome.job_id,
        "exit_code": int(outcome.exit_code),
        "settings": plan.settings(),
        "values": [
            {
                "name": value.name,
                "value": value.value,
                "where": value.place,
                "in_job": value.in_job,
            }
            for value in plan.values.values()
        ],
        "steps": [step.to_json() for step in outcome.steps],
        "failure": None if failure is None else str(failure),
        "was_stopped": outcome.was_stopped,
        "summary": outcome.summary.to_json(),
        "validation": outcome.validation and outcome.validation.to_json(),
        "models": {name: str(folder) for name, folder in outcome.models.items()},
        "warnings": [
            *plan.notes,
            *map(str, plan.warnings),
            *outcome.warnings,
            *outcome.notes,
            *(outcome.tracing.warnings if outcome.tracing else ()),
        ],
    }
    print_json(masked_value(document, secrets=plan.secrets))
