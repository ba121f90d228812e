"""What a person sees of a replay while it runs, and at its end."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from rich.text import Text

from arkdev.cli.output import console
from arkdev.cli.progress import counting_bar
from arkdev.cli.replay_report import render_replay
from arkdev.cli.streams import results
from arkdev.cli.terminal import plural, printable
from arkdev.flows.grader_versions import RECORDED
from arkdev.flows.regrading import ReplayOutcome
from arkdev.flows.regrading_plan import ReplayPlan
from arkdev.runs.records import GroupRecord

_LINE_EVERY_S = 10.0


class ReplayDisplay:
    """Progress on stderr (a bar on a terminal, a line now and then elsewhere), then the report."""

    def __init__(self, plan: ReplayPlan) -> None:
        self._plan = plan
        self._err, self._out = console(is_stderr=True), console()
        # on their streams: while graders run, sys.stdout stands for their own output
        self._err.file, self._out.file = sys.stderr, results()
        self._progress = counting_bar(self._err)
        self._is_on_terminal = self._err.is_terminal  # asked once, not for each group
        self._total = plan.groups.num_groups
        self._task = self._progress.add_task("groups", total=self._total)
        self._num_done = 0
        self._next_line = time.monotonic() + _LINE_EVERY_S
        self._folder: Path | None = None

    def __enter__(self) -> ReplayDisplay:
        for note in self._plan.notes:
            self._say(f"note: {note}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._progress.live.is_started:  # else it would print an empty line
            self._progress.stop()
        if isinstance(error, KeyboardInterrupt):
            self._say_interrupted()

    def on_start(self, plan: ReplayPlan, folder: Path) -> None:
        """Say what runs."""
        self._folder = folder
        self._say(_what_runs(plan))
        if self._is_on_terminal:
            self._progress.start()

    def on_group(self, record: GroupRecord) -> None:
        """Count it."""
        self._num_done += 1
        if self._is_on_terminal:
            self._progress.update(self._task, completed=self._num_done)
        elif time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + _LINE_EVERY_S
            self._say(f"{self._num_done}/{self._total} groups")

    def give_up(self) -> None:
        """Say that the process ends although a grader blocks it."""
        with suppress(Exception):
            self._say("a grader blocks the event loop; ending without it")
            self._say_interrupted()

    def on_programs_ended(self, num_ended: int) -> None:
        """Say that the end of the run ended what graders had started."""
        with suppress(Exception):
            self._say(f"ended {plural(num_ended, 'program')} that graders had started")

    def report(self, outcome: ReplayOutcome) -> None:
        """Print what changed, and the comparison of ``--diff``."""
        is_listed = outcome.folder.parent == self._plan.workspace.root / "runs"
        name = outcome.folder.name if is_listed else str(outcome.folder)
        render_replay(outcome, self._out, name=name)
        if outcome.num_left_out:
            groups = plural(outcome.num_left_out, "group")
            self._say(f"note: {groups} left out: a line of them is missing or was cut short")
        if outcome.num_not_whole:
            self._say(
                f"note: {outcome.num_not_whole} of the trajectories hold values that a run cannot "
                "keep as they were (warnings not_json, text_replaced); graders got what it kept"
            )
        if outcome.judge_calls:
            self._say(
                f"note: {plural(outcome.judge_calls, 'model call')} of graders went to the "
                "scripted model; set ARK_BASE_URL and ARK_API_KEY to judge with another"
            )

    def _say(self, text: str) -> None:
        # paths stay whole where the output is not for a person
        is_for_person = self._err.is_terminal
        self._err.print(Text(printable(text), style="dim"), soft_wrap=not is_for_person)

    def _say_interrupted(self) -> None:
        where = f"; what was graded is in {self._folder}" if self._folder else ""
        self._say(f"interrupted after {self._num_done} of {self._total} groups{where}")


def _what_runs(plan: ReplayPlan) -> str:
    run = plan.source.manifest.run_id
    groups = plural(plan.groups.num_groups, "group")
    if plan.diff_names:
        first, second = (
            "the recorded rewards" if name == RECORDED else name for name in plan.diff_names
        )
        return f"{groups} of run {run}: {first} against {second}"
    graders = " + ".join(
        grader.name if grader.weight == 1 else f"{grader.weight:g}·{grader.name}"
        for grader in plan.graders
    )
    return f"{groups} of run {run}, graded again by {graders}"
