"""``arkdev show`` of a debug run: its steps, and what critic and teacher see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from arkdev.cli.debug_loss import loss_section
from arkdev.cli.debug_report import outcome_section, print_sections, steps_section
from arkdev.cli.html_report import steps_of
from arkdev.cli.output import console
from arkdev.cli.report import headline
from arkdev.cli.terminal import Section, printable, symbols
from arkdev.errors import PluginResultError
from arkdev.runs.records import TEST

if TYPE_CHECKING:
    from rich.console import Console

    from arkdev.harness.contexts import InsertedContext
    from arkdev.runs.reader import RunReader
    from arkdev.runs.records import TrajectoryRecord


def debug_json(reader: RunReader) -> dict[str, Any] | None:
    """Return what a debug run adds to the document of a run; None for another run."""
    if reader.manifest.kind != "debug":
        return None
    summary = reader.manifest.summary or {}
    return {
        "job_id": summary.get("job_id"),
        "failure": summary.get("failure"),
        "warnings": summary.get("warnings") or [],
        "steps": [step.to_json() for step in steps_of(reader)],
        "validation": summary.get("validation"),
    }


def print_debug(reader: RunReader) -> None:
    """Print the steps of a run, below its report, and what came of the job."""
    from arkdev.cli.runs import recomputed_summary

    out = console()
    signs = symbols(out)
    summary = reader.manifest.summary or {}
    steps = steps_of(reader)
    sections = [
        loss_section(steps, signs, mode=reader.manifest.settings.get("loss_agg_mode")),
        steps_section(steps, signs),
    ]
    validation = recomputed_summary(reader, phase=TEST)
    told = headline(validation, signs=signs) if validation.num_rollouts else None
    if reader.manifest.finished_at is not None and summary.get("job_id"):
        sections.append(
            outcome_section(
                job_id=str(summary["job_id"]),
                failure=summary.get("failure"),
                warnings=[str(text) for text in summary.get("warnings") or ()],
                steps=steps,
                validation=told,
            )
        )
    elif told is not None:
        sections.append(Section("Validation so far", told))
    print_sections(out, sections, signs)


def contexts_json(reader: RunReader, trajectory: TrajectoryRecord) -> dict[str, Any]:
    """Return what critic and teacher see of a trajectory, and what a teacher replied."""
    contexts, problem = _contexts(trajectory)
    from arkdev.harness.contexts import policy_answers

    answers = policy_answers(trajectory)
    return {
        "contexts": [
            {
                "reader": context.reader,
                "estimated_tokens": context.estimated_tokens,
                "messages": [
                    {"message": message, "is_inserted": is_inserted}
                    for message, is_inserted in context.rendered(trajectory.messages, answers)
                ],
                "replies": _replies(reader, trajectory, context.reader),
            }
            for context in contexts
        ],
        "context_problem": problem,
    }


def print_contexts(out: Console, reader: RunReader, trajectory: TrajectoryRecord) -> None:
    """Print the conversation as the critic and the teacher see it; nothing when they see no more.

    Messages of the conversation are cut to a line: they stand above.
    """
    from rich.text import Text

    from arkdev.harness.contexts import policy_answers

    contexts, problem = _contexts(trajectory)
    if problem:
        out.print(Text(f"\n{printable(problem)}", style="red"))
    answers = policy_answers(trajectory)
    for context in contexts:
        what = f"as {context.reader} sees it (about {context.estimated_tokens} tokens more)"
        out.print(Text(f"\n{what}", style="bold"))
        for message, is_inserted in context.rendered(trajectory.messages, answers):
            text = printable(_one_line(message) if not is_inserted else str(message["content"]))
            role = str(message.get("role"))
            line = Text(f"{'+' if is_inserted else ' '} {role:<10} ", style="bold magenta")
            out.print(line.append(text, style="magenta" if is_inserted else "dim"))
        for reply in _replies(reader, trajectory, context.reader):
            line = Text(f"{context.reader} before answer {reply['turn']}: ", style="bold")
            is_error = bool(reply["error"])
            text = printable(str(reply["error"] if is_error else reply["reply"]))
            out.print(line.append(text, style="red" if is_error else ""))


def _contexts(trajectory: TrajectoryRecord) -> tuple[list[InsertedContext], str]:
    from arkdev.harness.contexts import critic_context, teacher_context

    try:
        found = [critic_context(trajectory), teacher_context(trajectory)]
    except PluginResultError as error:
        return [], error.message
    return [context for context in found if context is not None], ""


def _replies(reader: RunReader, trajectory: TrajectoryRecord, by: str) -> list[dict[str, Any]]:
    if reader.manifest.kind != "debug" or not (trajectory.config or {}).get("teachers"):
        return []
    name = trajectory.trajectory_id
    replies = {
        event["turn"]: {key: event[key] for key in ("turn", "reply", "error")}
        for event in reader.events()
        if (event.get("kind"), event.get("trajectory_id"), event.get("teacher"))
        == ("teacher", name, by)
    }
    return [replies[turn] for turn in sorted(replies)]


def _one_line(message: dict[str, Any]) -> str:
    content = message.get("content")
    text = content if isinstance(content, str) else str(content or message.get("tool_calls") or "")
    line = " ".join(text.split())
    return line if len(line) <= 80 else f"{line[:80]}..."
