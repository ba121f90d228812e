"""``arkdev test plugin``."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arkdev.cli.durations import stall_threshold_s
from arkdev.cli.later import LaterGroup
from arkdev.cli.options import (
    AdaptiveOption,
    ApiKeyEnvOption,
    FaasEngineOption,
    FaasOption,
    InjectOption,
    JobOption,
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
from arkdev.errors import UsageError

if TYPE_CHECKING:
    from arkdev.flows.test_plan import PluginTestPlan
    from arkdev.flows.test_plugin import PluginTestOutcome
    from arkdev.flows.test_request import PluginTestRequest

app = typer.Typer(
    name="test", cls=LaterGroup, help="Test plugins on this machine.", no_args_is_help=True
)

_EXAMPLES = """\b
Examples:
  arkdev test plugin                                  everything from job.yaml, scripted model
  arkdev test plugin --limit 16 --n-sample 8          16 samples, groups of 8
  arkdev test plugin --sample 3                       one sample, turn by turn
  arkdev test plugin --endpoint ark --model doubao-seed-2-0-mini-260428
  arkdev test plugin --endpoint http://127.0.0.1:8000/v1 --model qwen3
  arkdev test plugin --resume latest                  go on after a kill or Ctrl-C
  arkdev test plugin --record tape.jsonl              keep all that the plugins got from outside
  arkdev test plugin --replay tape.jsonl              run their code again on it, offline
  arkdev test plugin --faas                           the plugins as cloud functions

\b
Exit codes: 0 all good (discards alone are good), 1 some rollouts or graders failed,
2 usage or configuration, 3 a threshold was missed, 4 endpoint unreachable, 70 a fault of arkdev,
130 interrupted."""


@app.callback()
def _group() -> None:
    """Test plugins on this machine."""


@app.command("plugin", epilog=_EXAMPLES)
def plugin(
    rollout: Annotated[
        list[str] | None,
        typer.Option("--rollout", metavar="MODULE:FUNCTION", help="The rollout, only one."),
    ] = None,
    grader: Annotated[
        list[str] | None,
        typer.Option("--grader", metavar="MODULE:FUNCTION[=WEIGHT]", help="A grader; repeatable."),
    ] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option("--data", metavar="FILE", help="A JSONL file of samples; repeatable."),
    ] = None,
    job: JobOption = None,
    sample: Annotated[
        str | None,
        typer.Option(
            "--sample", metavar="N|JSON|-", help="One sample, shown turn by turn; - reads stdin."
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, help="At most so many samples.")
    ] = None,
    n_sample: Annotated[
        int | None,
        typer.Option(
            "--n-sample",
            metavar="N",
            min=1,
            help="Rollouts of each sample (default 1; of a group rollout the job's "
            "num_generations).",
        ),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            "--concurrency",
            metavar="N",
            min=1,
            help="Rollouts at once (default: the job's batch_size, or 32).",
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
            help="scripted (default), ark, a name of yours, or a URL.",
        ),
    ] = None,
    model: ModelOption = None,
    api_key_env: ApiKeyEnvOption = None,
    skill: SkillOption = None,
    script: ScriptOption = None,
    temperature: TemperatureOption = None,
    top_p: TopPOption = None,
    max_new_tokens: MaxNewTokensOption = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", metavar="N", help="Of the scripted model (default 0)."),
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
    record: Annotated[
        Path | None,
        typer.Option(
            "--record", metavar="TAPE", help="Write what the plugins get from outside to a file."
        ),
    ] = None,
    replay: Annotated[
        Path | None,
        typer.Option(
            "--replay", metavar="TAPE", help="Run the plugins' code again from a tape, offline."
        ),
    ] = None,
    real_ark_sdk: RealArkSdkOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run a rollout and its graders on samples, and report.

    They run as in a training job: many at once, with retries, time limits and verdicts.
    """
    from arkdev.flows.test_request import PluginTestRequest

    sampling = {"temperature": temperature, "top_p": top_p, "max_new_tokens": max_new_tokens}
    request = PluginTestRequest(
        start=Path.cwd(),
        job=job,
        rollout=_one_rollout(rollout or []),
        graders=tuple(grader or ()),
        data=tuple(data or ()),
        sample=_sample_text(sample),
        limit=limit,
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
        record=record,
        replay=replay,
    )
    raise typer.Exit(_run(request, as_json=as_json))


def _one_rollout(references: list[str]) -> str | None:
    if len(references) > 1:
        raise UsageError(
            f"--rollout is there {len(references)} times; a test has one rollout",
            hint="test them one after the other",
        )
    return references[0] if references else None


def _sample_text(sample: str | None) -> str | None:
    if sample != "-":
        return sample
    text = sys.stdin.buffer.read().decode("utf-8", "replace").strip()
    if not text:
        raise UsageError("--sample -: nothing came on standard input")
    return text


def _run(request: PluginTestRequest, *, as_json: bool) -> int:
    from arkdev.cli.interrupts import run_interruptible
    from arkdev.cli.mismatches import show_mismatches
    from arkdev.cli.streams import keep_results_apart
    from arkdev.cli.test_display import display_for
    from arkdev.flows.replay_plan import ReplayPlan, plan_replay
    from arkdev.flows.replaying import run_replay
    from arkdev.flows.test_plan import plan_test
    from arkdev.flows.test_plugin import run_test

    # what plugins write while they are imported, or past sys.stdout, is no part of the result
    keep_results_apart()
    with redirect_stdout(sys.stderr):
        plan = plan_test(request) if request.replay is None else plan_replay(request)
    display = display_for(plan, as_json=as_json)
    with display, redirect_stdout(sys.stderr):
        outcome = run_interruptible(
            run_replay(plan, display) if isinstance(plan, ReplayPlan) else run_test(plan, display),
            on_give_up=display.give_up,
            give_up_after_s=give_up_after_s(request),
            on_programs_ended=display.on_programs_ended,
        )
    if as_json:
        display.report_in_a_line(outcome)
        _print_json(plan, outcome)
    else:
        display.report(outcome)
        if isinstance(plan, ReplayPlan):
            show_mismatches(outcome.folder)
    return int(outcome.exit_code)


def _print_json(plan: PluginTestPlan, outcome: PluginTestOutcome) -> None:
    import dataclasses

    from arkdev.cli.output import print_json
    from arkdev.runs.masking import masked_value
    from arkdev.runs.reader import RunReader

    document: dict[str, Any] = {
        "run": outcome.folder.name,
        "folder": str(outcome.folder),
        "exit_code": int(outcome.exit_code),
        "settings": plan.settings(),
        "summary": outcome.summary.to_json(),
        "clients_built": outcome.clients_built,
        "judge_calls": outcome.judge_calls,
        "client_cost_s": outcome.client_cost_s,
        "thresholds": [dataclasses.asdict(threshold) for threshold in outcome.thresholds],
        "warnings": [*plan.notes, *map(str, plan.warnings), *outcome.notes],
        "trace": None,
    }
    if outcome.tracing is not None:
        document["trace"] = {
            "num_spans": outcome.tracing.num_recorded,
            "receivers": [dataclasses.asdict(count) for count in outcome.tracing.counts],
        }
        document["warnings"] += outcome.tracing.warnings
    if plan.line is not None:
        reader = RunReader(outcome.folder)
        document["trajectories"] = [dataclasses.asdict(r) for r in reader.trajectories()]
        document["groups"] = [dataclasses.asdict(r) for r in reader.groups()]
    print_json(masked_value(document, secrets=plan.secrets))
