"""What a person sees of a training while it runs, and at its end."""

from __future__ import annotations

import time
from pathlib import Path

from rich.text import Text

from arkdev.cli.debug_display import step_of, what_is_run
from arkdev.cli.debug_report import metrics_section, print_sections, what_is_learned
from arkdev.cli.report import headline, print_next, render_summary
from arkdev.cli.terminal import Section, facts, number, plural, printable, symbols
from arkdev.cli.test_display import Display
from arkdev.cli.train_report import HEADERS, aligned, cells, curve_section, telling
from arkdev.flows.test_plan import PluginTestPlan
from arkdev.flows.train import TrainOutcome
from arkdev.flows.train_plan import TrainPlan
from arkdev.harness.steps import StepRecord
from arkdev.job.batches import Batch
from arkdev.runs.masking import masked_text
from arkdev.runs.records import TEST, TRAIN

_KL = {
    "kl": "kl: from the model that training began with",
    "rollout_off_policy_kl": "kl: between what samples and what is trained",
}


class TrainDisplay(Display):
    """A row for each step on stderr, with a bar below on a terminal; then the report."""

    command = "arkdev train"

    def __init__(self, plan: TrainPlan) -> None:
        super().__init__(plan)
        self._train = plan
        self._signs = symbols(self._err)
        self._has_header = False
        has_reference = plan.update.kl_coefficient > 0
        self._kl = "kl" if has_reference else "rollout_off_policy_kl"
        self._num_steps_done = 0
        self._began = time.perf_counter()

    def on_start(self, plan: PluginTestPlan, folder: Path) -> None:
        """Say what runs."""
        self.folder = folder
        for note in plan.notes[len(self._train.notes) :]:  # what a resumed run found
            self._say(f"note: {note}")
        self._say(what_is_run(self._train))
        if self._err.is_terminal:
            self._progress.start()
        self._began = time.perf_counter()

    def on_step_begin(self, batch: Batch, phase: str) -> None:
        """Name it beside the bar."""
        description = step_of(batch, phase, num_steps=len(self._train.steps))
        self._progress.update(self._task, description=description)

    def on_step(self, record: StepRecord) -> None:
        """Add its row."""
        width = self._err.width if self._err.is_terminal else 1_000
        if not self._has_header:
            self._has_header = True
            self._err.print(Text(_KL[self._kl], style="dim"), soft_wrap=True)
            self._err.print(Text(aligned(HEADERS, width=width), style="dim"), soft_wrap=True)
        row = cells(record, self._signs, kl=self._kl, left_s=self._left_s(record))
        style = "cyan" if record.phase == TEST else ""
        self._err.print(Text(aligned(row, width=width), style=style), soft_wrap=True)
        if text := record.failure or record.message:
            style = "red" if record.failure else "yellow"
            shown = masked_text(text, secrets=self._train.secrets)
            self._err.print(Text(f"  {shown}", style=style), soft_wrap=True)

    def _left_s(self, record: StepRecord) -> float | None:
        """Steps to come take what those took that this process has done."""
        if record.phase != TRAIN:
            return None
        self._num_steps_done += 1
        left = len(self._train.steps) - 1 - record.step
        return (time.perf_counter() - self._began) / self._num_steps_done * left

    def say_end(self, outcome: TrainOutcome) -> None:
        """Say the outcome on stderr, where stdout holds a document."""
        self._say(headline(outcome.summary, signs=self._signs).plain)
        if outcome.failure is not None:
            self._say(f"the job failed: {outcome.failure}")
        self._say_rest(outcome)

    def show(self, outcome: TrainOutcome) -> None:
        """Print the report: that of the training steps as of a test, the curve, the models."""
        signs = symbols(self._out)
        name = None if self._is_listed(outcome.folder) else str(outcome.folder)
        run = name or outcome.folder.name
        render_summary(outcome.summary, self._out)
        sections = [
            metrics_section(list(map(telling, outcome.steps))),
            curve_section(outcome.steps, signs),
            self._outcome_section(outcome, run=run),
        ]
        print_sections(self._out, sections, signs)
        self._print_capacity(outcome.folder, run=run)
        self._out.print()
        print_next(outcome.summary, self._out, outcome.folder, run)
        for text in self._next(outcome, run):
            self._out.print(Text(f" next  {text}"), soft_wrap=True)
        self._say_rest(outcome)

    def _outcome_section(self, outcome: TrainOutcome, *, run: str) -> Section:
        rows: list[tuple[str, Text | str]] = [("job", outcome.job_id), ("reward", _reward(outcome))]
        if outcome.failure is not None:
            text = Text(printable(outcome.failure.message), style="bold red")
            rows.append(("failed", text))
            rows += [("", printable(t)) for t in (outcome.failure.where, outcome.failure.hint) if t]
        elif outcome.was_stopped:
            rows.append(("stopped", "as it was asked to; it can go on"))
        learned, is_any = what_is_learned(outcome.steps)
        if learned:
            rows.append(("learned", Text(learned, style="" if is_any else "bold red")))
        rows += [(f"{which} model", str(folder)) for which, folder in outcome.models.items()]
        rows += [("warning", Text(printable(text), style="yellow")) for text in outcome.warnings]
        return Section("Training", facts(rows))

    def _next(self, outcome: TrainOutcome, run: str) -> list[str]:
        if outcome.failure is not None or outcome.was_stopped:
            return [f"arkdev train --resume {run}   (goes on from the last checkpoint)"]
        if not outcome.models:
            return []
        model = next(iter(outcome.models.values()))
        return [
            f"arkdev test plugin --endpoint local --model {model}",
            f"arkdev export {run} --to DIR",
        ]

    def _say_rest(self, outcome: TrainOutcome) -> None:
        for note in outcome.notes:
            self._say(f"note: {note}")
        if outcome.judge_calls:
            self._say(
                f"note: {plural(outcome.judge_calls, 'model call')} of graders went to the "
                "scripted model; set ARK_BASE_URL and ARK_API_KEY to judge with another"
            )
        if outcome.tracing is not None:
            for warning in outcome.tracing.warnings:
                self._say(f"warning: {warning}")


def _reward(outcome: TrainOutcome) -> str:
    """From the first to the last step, and in validation."""
    parts = []
    for phase, what in ((TRAIN, "in training"), (TEST, "in validation")):
        means = [s.reward_mean for s in outcome.steps if s.phase == phase]
        known = [mean for mean in means if mean is not None]
        if known:
            parts.append(f"{number(known[0])} to {number(known[-1])} {what}")
    return ", ".join(parts) or "none"
