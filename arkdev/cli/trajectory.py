"""``arkdev show RUN TRAJECTORY``."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from arkdev.cli.output import console, print_json

if TYPE_CHECKING:
    from arkdev.runs.reader import RunReader
    from arkdev.runs.records import GroupRecord, TrajectoryRecord


def show_trajectory(reader: RunReader, trajectory_id: str, *, as_json: bool) -> None:
    """Print one trajectory turn by turn with its rewards, then what its plugins logged."""
    from arkdev.cli.debug_runs import contexts_json, print_contexts
    from arkdev.cli.logs import logs_of, print_logs

    trajectory = reader.trajectory(trajectory_id)
    group = next((g for g in reader.groups() if trajectory_id in g.trajectory_ids), None)
    index = group.trajectory_ids.index(trajectory_id) if group else 0
    reward = group.rewards[index] if group and index < len(group.rewards) else None
    if as_json:
        from arkdev.cli.report_failures import trajectory_failures_json

        graders = [dataclasses.asdict(grader) for grader in group.graders] if group else []
        document = {
            "trajectory": dataclasses.asdict(trajectory),
            "index": index,
            **trajectory_failures_json(trajectory, group),
            "reward": reward,
            "graders": graders,
            **contexts_json(reader, trajectory),
            "logs": [dataclasses.asdict(line) for line in logs_of(reader, trajectory)],
        }
        print_json(document)
        return
    from arkdev.cli.conversation import ConversationPrinter, render_turns
    from arkdev.cli.report_failures import print_trajectory_failures

    out = console()
    _print_heading(out, trajectory, reward=reward, group=group)
    printer = ConversationPrinter(out)
    printer.sample_extra(group.sample_extra if group else None)
    printer.attempts(trajectory.attempts)
    print_trajectory_failures(out, trajectory, group)
    render_turns(
        out,
        messages=trajectory.messages,
        turns=trajectory.turns,
        graders=group.graders if group else (),
        index=index,
        reward=reward,
    )
    print_contexts(out, reader, trajectory)
    print_logs(out, logs_of(reader, trajectory))


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
