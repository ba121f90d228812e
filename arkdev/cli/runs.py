"""``arkdev runs`` and ``arkdev show RUN [TRAJECTORY]``."""

from __future__ import annotations

import dataclasses
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
    from arkdev.runs.records import GroupRecord, TrajectoryRecord

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]


def runs_here() -> Path:
    """Return the folder of runs of the workspace around the current directory."""
    from arkdev.job.workspace import find_workspace

    return find_workspace(Path.cwd()).root / "runs"


def register(app: typer.Typer, *, runs_root: Callable[[], Path] = runs_here) -> None:
    """Add the commands `runs` and `show` to `app`; `runs_root` says where runs are kept."""

    @app.command("runs", epilog="Example: arkdev runs --json")
    def runs_command(as_json: JsonFlag = False) -> None:
        """List the runs, the newest first."""
        list_command(runs_root(), as_json=as_json)

    @app.command("show", epilog="Examples: arkdev show latest 7.1; arkdev show --failed")
    def show_command(
        run: Annotated[
            str, typer.Argument(help="Id, its unique beginning or end, a path, or latest.")
        ] = "latest",
        trajectory: Annotated[
            str | None, typer.Argument(help="SAMPLE.GENERATION, as in 7.1.")
        ] = None,
        failed: Annotated[
            bool, typer.Option("--failed", help="List the trajectories that did not succeed.")
        ] = False,
        as_json: JsonFlag = False,
    ) -> None:
        """Show the report of a run, or one of its trajectories turn by turn."""
        from arkdev.runs.reader import RunReader, find_run

        if trajectory is not None and failed:
            raise UsageError("--failed lists trajectories; it does not go with one of them")
        root = runs_root()
        reader = RunReader(find_run(root, run))
        if trajectory is not None:
            show_trajectory(reader, trajectory, as_json=as_json)
        elif failed:
            show_failed(reader, as_json=as_json)
        else:
            show_run(reader, root=root, as_json=as_json)


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
        verdicts = summary.get("verdicts") or {}
        rows.append(
            (
                run.run_id,
                _status(run),
                duration(run.worked_s) if run.worked_s is not None else dash,
                str(summary.get("num_rollouts", dash)),
                number(mean, unknown=dash),
                str(verdicts.get("failure", 0)) if summary else dash,
            )
        )
    table = number_table(("run", "status", "took", "rollouts", "mean reward", "failed"), rows)
    table.columns[1].justify = "left"
    out.print(table)
    for run in found:
        if run.problem:
            out.print(Text(f"{run.run_id}: {run.problem}", style="dim"), soft_wrap=True)


def _status(run: RunSummary) -> Text:
    from rich.text import Text

    styles = {"finished": "green", "running": "cyan"}
    text = Text(run.status, style=styles.get(run.status, "red"))
    if run.num_resumed:
        times = f" {run.num_resumed} times" if run.num_resumed > 1 else ""
        text.append(f", resumed{times}", style="dim")
    return text


def _run_json(run: RunSummary) -> dict[str, Any]:
    return {**dataclasses.asdict(run), "folder": str(run.folder)}


def recomputed_summary(reader: RunReader) -> Summary:
    """Compute the statistics of a run from its records."""
    from arkdev.harness.statistics import RunStatistics

    settings = reader.manifest.settings
    size = settings.get("num_generations")
    if not isinstance(size, int):
        size = max((len(group.trajectory_ids) for group in reader.groups()), default=1)
    threshold = settings.get("success_threshold")
    statistics = RunStatistics(
        size, success_threshold=1.0 if threshold is None else float(threshold)
    )
    for trajectory in reader.trajectories():
        statistics.add_trajectory(trajectory)
    for group in reader.groups():
        statistics.add_group(group)
    return statistics.summary()


def show_run(reader: RunReader, *, root: Path, as_json: bool) -> None:
    """Print the report of a run, computed anew from its records."""
    summary = recomputed_summary(reader)
    if as_json:
        run = {**dataclasses.asdict(reader.manifest), "status": reader.status}
        run["summary"] = summary.to_json()
        torn = [dataclasses.asdict(line) for line in reader.torn]
        print_json({"run": run, "torn": torn})
        return
    from arkdev.cli.report import render_summary

    is_listed = reader.folder.parent == root
    name = reader.folder.name if is_listed else str(reader.folder)
    if reader.status != "finished":
        note = f"the run is {reader.status}: this covers what it had written"
        if reader.status != "running":
            note += f"; `arkdev test plugin --resume {name}` goes on with it"
        console(is_stderr=True).print(note, soft_wrap=True)
    render_summary(summary, console(), folder=reader.folder, name=name)
    _report_torn(reader)


def show_failed(reader: RunReader, *, as_json: bool) -> None:
    """List the rollouts that did not succeed with their last error."""
    from arkdev.runs.records import Verdict

    failed = (t for t in reader.trajectories() if t.verdict is not Verdict.SUCCESS)
    if as_json:
        print_json({"trajectories": [_trajectory_json(trajectory) for trajectory in failed]})
        return
    from rich.text import Text

    from arkdev.cli.report_sections import VERDICT_STYLES
    from arkdev.cli.terminal import printable

    out = console()
    num_failed = 0
    for trajectory in failed:
        num_failed += 1
        last = trajectory.attempts[-1] if trajectory.attempts else None
        line = Text(f"{trajectory.trajectory_id:>8}  ", style="bold")
        line.append(f"{trajectory.verdict:<8}", style=VERDICT_STYLES[trajectory.verdict])
        line.append(f" {len(trajectory.attempts)} attempts  ", style="dim")
        if last is not None:
            line.append(printable((last.error or "no error text").partition("\n")[0]))
            line.append(f"  {printable(last.where or '')}", style="dim")
        out.print(line, soft_wrap=True)
    if not num_failed:
        out.print("every rollout succeeded")
    _report_torn(reader)


def show_trajectory(reader: RunReader, trajectory_id: str, *, as_json: bool) -> None:
    """Print one trajectory turn by turn with its rewards."""
    trajectory = reader.trajectory(trajectory_id)
    group = next((g for g in reader.groups() if trajectory_id in g.trajectory_ids), None)
    index = group.trajectory_ids.index(trajectory_id) if group else 0
    reward = group.rewards[index] if group and index < len(group.rewards) else None
    if as_json:
        graders = [dataclasses.asdict(grader) for grader in group.graders] if group else []
        document = {"trajectory": _trajectory_json(trajectory), "index": index}
        print_json({**document, "reward": reward, "graders": graders})
        return
    from arkdev.cli.conversation import ConversationPrinter, render_turns

    out = console()
    _print_heading(out, trajectory, reward=reward, group=group)
    ConversationPrinter(out).attempts(trajectory.attempts)
    render_turns(
        out,
        messages=trajectory.messages,
        turns=trajectory.turns,
        graders=group.graders if group else (),
        index=index,
        reward=reward,
    )


def _print_heading(
    out: Any, trajectory: TrajectoryRecord, *, reward: float | None, group: GroupRecord | None
) -> None:
    from rich.text import Text

    from arkdev.cli.report_sections import VERDICT_STYLES
    from arkdev.cli.terminal import duration, number, plural, symbols

    dot = symbols(out).dot
    parts = [plural(len(trajectory.attempts), "attempt"), duration(trajectory.duration_s)]
    if trajectory.turns:
        parts.append(plural(len(trajectory.turns), "turn"))
    if reward is not None:
        parts.append(f"reward {number(reward)}")
    elif group is not None:
        parts.append("no reward")
    line = Text(f"{trajectory.trajectory_id} ", style="bold")
    line.append(trajectory.verdict, style=VERDICT_STYLES[trajectory.verdict])
    line.append("".join(f"  {dot}  {part}" for part in parts), style="dim")
    out.print(line)
    if trajectory.warnings:
        out.print(Text(f"warnings: {', '.join(trajectory.warnings)}", style="yellow"))


def _trajectory_json(trajectory: TrajectoryRecord) -> dict[str, Any]:
    return dataclasses.asdict(trajectory)


def _report_torn(reader: RunReader) -> None:
    for torn in reader.torn:
        console(is_stderr=True).print(
            f"{torn.file}:{torn.line} was cut short and is left out", soft_wrap=True
        )
