"""``arkdev runs`` and ``arkdev show RUN [TRAJECTORY]``."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arkdev.cli.output import console, print_json
from arkdev.errors import UsageError

if TYPE_CHECKING:
    from rich.text import Text

    from arkdev.harness.summary import Summary
    from arkdev.runs.reader import RunReader, RunSummary
    from arkdev.runs.records import Attempt, GraderRecord, TrajectoryRecord

_TRAJECTORY_ID = re.compile(r"((test)?\d+/)?\d+\.\d+")
_MAX_NAME = 20
_TROUBLE_STYLES = {"retried": "yellow", "ungraded": "red"}

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]


def runs_here() -> Path:
    """Return the folder of runs of the workspace around the current directory."""
    from arkdev.job.workspace import find_workspace

    return find_workspace(Path.cwd()).root / "runs"


def _run_names() -> list[str]:
    """For shell completion."""
    from arkdev.runs.reader import list_runs

    return ["latest", *(run.run_id for run in list_runs(runs_here()))]


def register(app: typer.Typer, *, runs_root: Callable[[], Path] = runs_here) -> None:
    """Add the commands `runs` and `show` to `app`; `runs_root` says where runs are kept."""

    @app.command("runs", epilog="Example: arkdev runs --json")
    def runs_command(as_json: JsonFlag = False) -> None:
        """List the runs, the newest first."""
        list_command(runs_root(), as_json=as_json)

    @app.command(
        "show",
        epilog="Examples: arkdev show latest 7.1; arkdev show --failed; arkdev show 7.1 --trace",
    )
    def show_command(
        run: Annotated[
            str,
            typer.Argument(
                help="Id, its unique beginning or end, a path, or latest; a trajectory's id alone "
                "is one of the latest run.",
                autocompletion=_run_names,
            ),
        ] = "latest",
        trajectory: Annotated[
            str | None,
            typer.Argument(
                help="SAMPLE.GENERATION, as in 7.1; of a job's run with its step, as in 3/7.1."
            ),
        ] = None,
        step: Annotated[
            int | None,
            typer.Option(
                "--step", metavar="N", min=0, help="Of a debug run or a training: one step of it."
            ),
        ] = None,
        failed: Annotated[
            bool,
            typer.Option(
                "--failed",
                help="List what failed or was retried: rollouts, and gradings of groups.",
            ),
        ] = False,
        logs: Annotated[
            bool, typer.Option("--logs", help="List what plugins logged and printed.")
        ] = False,
        level: Annotated[
            str | None,
            typer.Option("--level", metavar="LEVEL", help="Of --logs: from this level up."),
        ] = None,
        trace: Annotated[
            bool, typer.Option("--trace", help="Of one trajectory: what happened when.")
        ] = False,
        as_json: JsonFlag = False,
    ) -> None:
        """Show the report of a run, or one trajectory of it."""
        from arkdev.runs.reader import RunReader, find_run

        root = runs_root()
        if trajectory is None and _TRAJECTORY_ID.fullmatch(run):
            run, trajectory = "latest", run
        if step is not None and (trajectory is not None or failed or logs or trace):
            raise UsageError("--step shows a step alone; it does not go with what else there is")
        _check_view(trajectory, failed=failed, logs=logs, level=level, trace=trace)
        reader = RunReader(find_run(root, run))
        if step is not None:
            from arkdev.cli.debug_steps import show_step

            show_step(reader, step, as_json=as_json)
        elif logs:
            from arkdev.cli.logs import show_logs

            show_logs(reader, level=level or "DEBUG", as_json=as_json)
        elif trajectory is not None and trace:
            from arkdev.cli.traces import show_trace

            show_trace(reader, trajectory, as_json=as_json)
        elif trajectory is not None:
            from arkdev.cli.trajectory import show_trajectory

            show_trajectory(reader, trajectory, as_json=as_json)
        elif failed:
            show_failed(reader, as_json=as_json)
        else:
            show_run(reader, root=root, as_json=as_json)


def _check_view(
    trajectory: str | None, *, failed: bool, logs: bool, level: str | None, trace: bool
) -> None:
    """Refuse flags that have no effect together."""
    if trajectory is not None and (failed or logs):
        flag, what = ("--failed", "trajectories") if failed else ("--logs", "all log lines")
        raise UsageError(f"{flag} lists {what}; it does not go with one trajectory")
    if failed and logs:
        raise UsageError("--failed and --logs are two lists; ask for one")
    if level is not None and not logs:
        raise UsageError("--level is for --logs", hint="add --logs")
    if trace and trajectory is None:
        raise UsageError(
            "--trace is of one trajectory", hint="name it: arkdev show RUN 7.1 --trace"
        )


def list_command(root: Path, *, as_json: bool) -> None:
    """Print the table of runs in `root`."""
    from arkdev.runs.reader import list_runs

    found = list_runs(root)
    if as_json:
        print_json({"runs": [_run_json(run) for run in found]})
        return
    if not found:
        console().print(f"no runs in {root}; `arkdev test plugin` makes one", soft_wrap=True)
        return
    from rich.text import Text

    from arkdev.cli.terminal import duration, number, number_table, symbols

    out = console()
    dash = symbols(out).dash
    rows = []
    for run in found:
        summary = run.summary or {}
        reward = summary.get("reward") or {}
        mean = reward.get("mean")
        rows.append(
            (
                run.run_id,
                _status(run),
                *_what_ran(run),
                duration(run.worked_s) if run.worked_s is not None else dash,
                str(summary.get("num_rollouts", dash)),
                number(mean, unknown=dash),
                str(_num_failed(summary)) if summary else dash,
            )
        )
    headers = ("run", "status", "rollout", "endpoint", "took", "rollouts", "mean reward", "failed")
    # a run's id alone takes 27 columns
    table = number_table(headers, rows, without=() if out.width >= 110 else headers[2:4])
    table.columns[0].no_wrap = True  # an id is there to be copied
    for column in table.columns[1:4]:
        column.justify = "left" if column.header in headers[1:4] else "right"
    out.print(table)
    for run in found:
        if run.problem:
            out.print(Text(f"{run.run_id}: {run.problem}", style="dim"), soft_wrap=True)


def _what_ran(run: RunSummary) -> tuple[str, str]:
    """The rollout's function and the endpoint's name, both as short as a table wants them."""
    endpoint = run.settings.get("endpoint")
    name = str(endpoint.get("name") or "") if isinstance(endpoint, dict) else ""
    rollout = str(run.settings.get("rollout") or "").partition(":")[2]
    return rollout[-_MAX_NAME:], name.partition("://")[2][:_MAX_NAME] or name[:_MAX_NAME]


def _num_failed(summary: dict[str, Any]) -> int:
    """Rollouts that failed, and those that a grader left ungraded."""
    verdicts = summary.get("verdicts") or {}
    return int(verdicts.get("failure", 0)) + int(summary.get("num_ungraded") or 0)


def _status(run: RunSummary) -> Text:
    from rich.text import Text

    styles = {"finished": "green", "running": "cyan"}
    text = Text(run.status, style=styles.get(run.status, "red"))
    if run.num_resumed:
        text.append(f", resumed {run.num_resumed}×", style="dim")
    return text


def _run_json(run: RunSummary) -> dict[str, Any]:
    return {**dataclasses.asdict(run), "folder": str(run.folder)}


def recomputed_summary(reader: RunReader, *, phase: str = "train") -> Summary:
    """Compute the statistics of a phase of a run from its records."""
    from arkdev.harness.functions_report import functions_of
    from arkdev.harness.limits_report import LimitsReport
    from arkdev.harness.services import ServiceSummary
    from arkdev.harness.stalls import stalls_of_summary
    from arkdev.harness.statistics import RunStatistics
    from arkdev.runs.records import TEST

    settings = reader.manifest.settings
    is_validation = phase == TEST
    size = settings.get("test_num_generations" if is_validation else "num_generations")
    if not isinstance(size, int):
        size = max((len(group.trajectory_ids) for group in reader.groups()), default=1)
    threshold = settings.get("success_threshold")
    measured = (reader.manifest.summary or {}).get("services", ())  # no record has them
    statistics = RunStatistics(
        size,
        success_threshold=1.0 if threshold is None else float(threshold),
        services=lambda: tuple(ServiceSummary.from_json(service) for service in measured),
        grader_places={
            str(each.get("name")): str(each.get("place", ""))
            for each in settings.get("graders") or ()
            if isinstance(each, dict)
        },
    )
    statistics.take_stalls(lambda: stalls_of_summary(reader.manifest.summary))
    for trajectory in reader.trajectories():
        if (trajectory.phase == TEST) == is_validation:
            statistics.add_trajectory(trajectory)
    for group in reader.groups():
        if (group.phase == TEST) == is_validation:
            statistics.add_group(group)
    summary = statistics.summary()
    events = [event for event in reader.events() if event.get("kind") == "limits"]
    limits = LimitsReport.from_json(events[-1]) if events else LimitsReport()
    functions = () if is_validation else functions_of(reader)  # of all phases together
    return dataclasses.replace(
        summary, limits=None if limits.is_empty else limits, functions=functions
    )


def show_run(reader: RunReader, *, root: Path, as_json: bool) -> None:
    """Print the report of a run, computed anew from its records."""
    summary = recomputed_summary(reader)
    if as_json:
        run = {**dataclasses.asdict(reader.manifest), "status": reader.status}
        run["summary"] = summary.to_json()
        torn = [dataclasses.asdict(line) for line in reader.torn]
        from arkdev.cli.debug_runs import debug_json
        from arkdev.cli.train_runs import training_json

        document = {"run": run, "torn": torn, "debug": debug_json(reader)}
        print_json({**document, "training": training_json(reader)})
        return
    from arkdev.cli.report import render_summary

    is_listed = reader.folder.parent == root
    name = reader.folder.name if is_listed else str(reader.folder)
    _say_unfinished(reader, name)
    _say_replay(reader)
    render_summary(summary, console(), folder=reader.folder, name=name)
    if reader.manifest.kind == "debug":
        from arkdev.cli.debug_runs import print_debug

        print_debug(reader)
    elif reader.manifest.kind == "train":
        from arkdev.cli.train_runs import print_training

        print_training(reader)
    _report_torn(reader)


def _say_unfinished(reader: RunReader, name: str) -> None:
    """Say on stderr that a run was cut short, or goes on."""
    if reader.status != "finished":
        note = f"the run is {reader.status}: this covers what it had written"
        command = {"test": "test plugin", "debug": "debug", "train": "train"}.get(
            reader.manifest.kind
        )
        if reader.status != "running" and command:
            note += f"; `arkdev {command} --resume {name}` goes on with it"
        console(is_stderr=True).print(note, soft_wrap=True)


def _say_replay(reader: RunReader) -> None:
    """Say on stderr that only the grading is the run's own."""
    source = reader.manifest.settings.get("regraded")
    if isinstance(source, dict):
        note = f"a replay: the rollouts of run {source.get('run')}, graded again"
        console(is_stderr=True).print(note, soft_wrap=True)


def show_failed(reader: RunReader, *, as_json: bool) -> None:
    """List what failed or needed more than one attempt: rollouts first, then gradings."""
    from arkdev.runs.records import Verdict

    troubled = (
        t for t in reader.trajectories() if t.verdict is not Verdict.SUCCESS or len(t.attempts) > 1
    )
    groups = (
        group
        for group in reader.groups()
        if any(g.verdict is not Verdict.SUCCESS or g.attempts > 1 for g in group.graders)
    )
    if as_json:
        trajectories = [_trajectory_json(trajectory) for trajectory in troubled]
        graded = [dataclasses.asdict(group) for group in groups]
        print_json({"trajectories": trajectories, "groups": graded})
        return
    lines = 0
    for trajectory in troubled:
        lines += 1
        is_good = trajectory.verdict is Verdict.SUCCESS
        # of a rollout made good, the last attempt that was not
        attempts = trajectory.attempts[:-1] if is_good else trajectory.attempts
        _print_trouble(
            trajectory.trajectory_id,
            "retried" if is_good else trajectory.verdict,
            num_attempts=len(trajectory.attempts),
            trouble=attempts[-1] if attempts else None,
        )
    for group in groups:
        for grader in group.graders:
            if grader.verdict is Verdict.SUCCESS and grader.attempts == 1:
                continue
            lines += 1
            word = "retried" if grader.verdict is Verdict.SUCCESS else "ungraded"
            name = group.trajectory_ids[0] if group.trajectory_ids else str(group.sample_index)
            _print_trouble(
                name, word, num_attempts=grader.attempts, trouble=grader, by=f"{grader.name}: "
            )
    if not lines:
        console().print("every rollout succeeded and was graded, each in one attempt")
    _say_unfinished(reader, reader.folder.name)
    _report_torn(reader)


def _print_trouble(
    name: str,
    word: str,
    *,
    num_attempts: int,
    trouble: Attempt | GraderRecord | None,
    by: str = "",
) -> None:
    from rich.text import Text

    from arkdev.cli.report_sections import VERDICT_STYLES
    from arkdev.cli.terminal import plural, printable

    line = Text(f"{name:>8}  ", style="bold")
    line.append(f"{word:<8}", style=VERDICT_STYLES.get(word, _TROUBLE_STYLES.get(word, "")))
    line.append(f" {plural(num_attempts, 'attempt')}  ", style="dim")
    error = (trouble.error if trouble else None) or ("" if word == "retried" else "no error text")
    line.append(printable(f"{by}{error}".partition("\n")[0]))
    if trouble and trouble.where:
        line.append(f"  {printable(trouble.where)}", style="dim")
    console().print(line, soft_wrap=True)


def _trajectory_json(trajectory: TrajectoryRecord) -> dict[str, Any]:
    return dataclasses.asdict(trajectory)


def _report_torn(reader: RunReader) -> None:
    for torn in reader.torn:
        console(is_stderr=True).print(
            f"{torn.file}:{torn.line} was cut short and is left out", soft_wrap=True
        )
