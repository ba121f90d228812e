"""What a person sees of a test of graders while it runs: what runs, a bar, notes. All on stderr."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from types import TracebackType

from rich.text import Text

from arkdev.cli.output import console
from arkdev.cli.progress import counting_bar
from arkdev.cli.terminal import plural, printable
from arkdev.flows.test_grader import GraderTestPlan

_LINE_EVERY_S = 10.0


class GraderTestDisplay:
    """Progress: a bar on a terminal, a line now and then elsewhere."""

    def __init__(self, plan: GraderTestPlan, *, unit: str) -> None:
        self._plan = plan
        self._unit = unit
        self._err = console(is_stderr=True)
        self._err.file = sys.stderr  # while graders run, sys.stdout stands for their own output
        self._progress = counting_bar(self._err)
        self._task = self._progress.add_task(f"{unit}s", total=None)
        self._num_done = self._total = 0
        self._next_line = time.monotonic() + _LINE_EVERY_S

    def __enter__(self) -> GraderTestDisplay:
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
            total = plural(self._total or 0, self._unit)
            self._say(f"interrupted after {self._num_done} of {total}")

    def on_start(self, total: int) -> None:
        """Say what runs."""
        self._total = total
        self._progress.update(self._task, total=total)
        names = ", ".join(grader.name for grader in self._plan.graders)
        if self._plan.source is not None:
            place = f"run {self._plan.source.manifest.run_id}"
        else:
            place = ", ".join(str(path) for path in self._plan.files)
        self._say(f"{names} on {plural(total, self._unit)} of {place}")
        if self._err.is_terminal:
            self._progress.start()

    def on_step(self) -> None:
        """Count it."""
        self._num_done += 1
        self._progress.update(self._task, completed=self._num_done)
        if not self._err.is_terminal and time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + _LINE_EVERY_S
            self._say(f"{self._num_done}/{self._total} {self._unit}s")

    def give_up(self) -> None:
        """Say that the process ends although a grader blocks it."""
        with suppress(Exception):
            self._say("a grader blocks the event loop; ending without it")

    def on_programs_ended(self, num_ended: int) -> None:
        """Say that the end of the run ended what graders had started."""
        with suppress(Exception):
            self._say(f"ended {plural(num_ended, 'program')} that graders had started")

    def say_judge(self, num_calls: int, *, is_attack: bool) -> None:
        """Say what the scripted judge can and cannot show."""
        if not num_calls:
            return
        what = (
            "it compares texts and follows no instructions, so only injected headings can move it"
            if is_attack
            else "it always says the same, so this says nothing of the noise of a real judge"
        )
        self._say(
            f"note: {plural(num_calls, 'model call')} of graders went to the scripted model; "
            f"{what}. Set ARK_BASE_URL and ARK_API_KEY to judge with another"
        )

    def _say(self, text: str) -> None:
        # paths stay whole where the output is not for a person
        is_for_person = self._err.is_terminal
        self._err.print(Text(printable(text), style="dim"), soft_wrap=not is_for_person)
