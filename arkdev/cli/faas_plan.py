"""``arkdev faas plan``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from arkdev.cli.options import JsonOption

if TYPE_CHECKING:
    from arkdev.flows.faas_capacity import CapacityRequest, JobNumbers
    from arkdev.plugin.runtime import PluginInstance

PLAN_EXAMPLES = """\b
Examples:
  arkdev faas plan                                 the job's batch, from the latest run
  arkdev faas plan latest --batch-size 32 --num-generations 8 --target-p99 60
  arkdev faas plan --target-makespan 300 --price-core-hour 0.2
  arkdev faas plan --rate 2.5 --fn grade --json

\b
Exit codes: 0, 2 the run measured no functions, 3 no setting meets the target."""


def plan(
    run: Annotated[
        str, typer.Argument(help="A run with --faas: its id, a part of it, a path, or latest.")
    ] = "latest",
    batch_size: Annotated[
        int | None, typer.Option("--batch-size", min=1, help="Samples of a batch.")
    ] = None,
    num_generations: Annotated[
        int | None, typer.Option("--num-generations", min=1, help="Rollouts of each sample.")
    ] = None,
    in_flight: Annotated[
        int | None,
        typer.Option(
            "--in-flight", min=1, help="Rollouts at once; the batch size where it is not given."
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate", help="In place of a batch: calls per second that come at random to each."
        ),
    ] = None,
    target_p99: Annotated[
        float | None,
        typer.Option("--target-p99", metavar="S", help="Seconds of a call, its wait included."),
    ] = None,
    target_makespan: Annotated[
        float | None,
        typer.Option("--target-makespan", metavar="S", help="Seconds of a batch, graded."),
    ] = None,
    instance: Annotated[
        str | None,
        typer.Option("--instance", metavar="SIZE", help="Try this size alone, as CPU2MEM4."),
    ] = None,
    fn: Annotated[
        str, typer.Option("--fn", metavar="NAME", help="Only this function.", show_default=False)
    ] = "",
    price_core_hour: Annotated[
        float | None,
        typer.Option("--price-core-hour", metavar="N", help="Shows costs in money as well."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say which Runtime a job's functions need, from what a run with --faas measured.

    The pool's own rules are simulated on the measured service times; nothing is started.
    """
    from arkdev.cli.faas_plan_display import document_of, print_answer
    from arkdev.cli.output import console, print_json
    from arkdev.cli.runs import runs_here
    from arkdev.errors import ExitCode
    from arkdev.faas_emulator.capacity.search import Target
    from arkdev.flows.faas_capacity import CapacityRequest, plan_capacity
    from arkdev.runs.reader import RunReader, find_run
    from arkdev.runs.writer import INSTANCES

    request = CapacityRequest(
        batch_size=batch_size,
        num_generations=num_generations,
        in_flight=in_flight,
        rate=rate,
        target=Target(target_p99, target_makespan),
        instance=_size(instance) if instance else None,
        function=fn,
    )
    _check(request, price_core_hour)
    found = find_run(runs_here(), run, is_wanted=lambda each: (each.folder / INSTANCES).is_file())
    reader = RunReader(found)
    answer = plan_capacity(reader, request, job=_job_numbers(request))
    if as_json:
        print_json(document_of(answer, reader.folder, price=price_core_hour))
    else:
        print_answer(answer, console(), run=reader.manifest.run_id, price=price_core_hour)
    has_target = request.target != Target()
    is_missed = any(each.chosen is None for each in answer.plans.values())
    raise typer.Exit(int(ExitCode.THRESHOLD_MISSED if has_target and is_missed else ExitCode.OK))


def _size(name: str) -> PluginInstance:
    from arkdev.errors import UsageError
    from arkdev.job.spelling import unknown_name
    from arkdev.plugin.runtime import PluginInstance

    names = [size.name for size in PluginInstance]
    if name.upper() not in names:
        raise UsageError(unknown_name("size", name, known=names))
    return PluginInstance[name.upper()]


def _check(request: CapacityRequest, price: float | None) -> None:
    from arkdev.errors import UsageError

    target = request.target
    if target.p99_s is not None and target.makespan_s is not None:
        raise UsageError("--target-p99 and --target-makespan: give one of them")
    numbers = {
        "--rate": request.rate,
        "--target-p99": target.p99_s,
        "--target-makespan": target.makespan_s,
        "--price-core-hour": price,
    }
    for flag, value in numbers.items():
        if value is not None and not 0 < value < float("inf"):
            raise UsageError(f"{flag} must be over 0")
    if request.rate is None:
        return
    of_batch = {
        "--batch-size": request.batch_size,
        "--num-generations": request.num_generations,
        "--in-flight": request.in_flight,
        "--target-makespan": target.makespan_s,
    }
    for flag, given in of_batch.items():
        if given is not None:
            raise UsageError(f"{flag} is of a batch; it has no effect with --rate")


def _job_numbers(request: CapacityRequest) -> JobNumbers | None:
    """Read the job, where flags leave something of the batch open."""
    import sys
    from contextlib import redirect_stdout

    from arkdev.flows.faas_capacity import JobNumbers
    from arkdev.job.paths import shown_path
    from arkdev.job.reader import read_job
    from arkdev.job.workspace import find_workspace

    is_given = request.batch_size is not None and request.num_generations is not None
    if request.rate is not None or is_given:
        return None
    with redirect_stdout(sys.stderr):  # a job.py may print
        job = read_job(find_workspace(Path.cwd()).root)
    if job is None:
        return None
    return JobNumbers(shown_path(job.source), job.batch_size, job.num_generations)
