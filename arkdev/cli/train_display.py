"""What a person sees of a training while it runs, and at its end."""

from __future__ import annotations

import time
from pathlib import Path

from rich.text import Text

from arkdev.cli.debug_display import step_of, what_is_run
from arkdev.cli.debug_report import metrics_section, print_sections
from arkdev.cli.report import headline, print_next, render_summary
from arkdev.cli.terminal import plural, printable, symbols
from arkdev.cli.test_display import Display
from arkdev.cli.train_report import (
    HEADERS,
    aligned,
    cells,
    curve_section,
    kl_column,
    last_checkpoint,
    learned_told,
    next_after_failure,
    next_for_models,
    outcome_section,
    rewards_told,
    telling,
)
from arkdev.flows.test_plan import PluginTestPlan
from arkdev.flows.train import TrainOutcome
from arkdev.flows.train_plan import TrainPlan
from arkdev.harness.steps import StepRecord
from arkdev.job.batches import Batch
from arkdev.runs.masking import masked_text
from arkdev.runs.records import TEST, TRAIN


def _why_it_ended(outcome: TrainOutcome) -> list[tuple[str, str]]:
    """Return the rows below a failure, or of a stop."""
    if outcome.failure is None:
        return [("stopped", "it was asked to stop, and can go on")] * outcome.was_stopped
    return [("", printable(t)) for t in (outcome.failure.where, outcome.failure.hint) if t]


class TrainDisplay(Display):
    """A row for each step on stderr, with a bar below on a terminal; then the report."""

    command = "arkdev train"

    def __init__(self, plan: TrainPlan) -> None:
        super().__init__(plan)
        self._train = plan
        self._signs = symbols(self._err)
        self._has_header = False
        self._kl, self._kl_told = kl_column(plan.the_job.hyperparameters)
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
        """Name it beside the bar, which shows its own mean reward."""
        self._reward_sum, self._num_rewards = 0.0, 0
        description = step_of(batch, phase, num_steps=len(self._train.steps))
        self._progress.update(self._task, description=description)

    def on_step(self, record: StepRecord) -> None:
        """Add its row."""
        width = self._err.width if self._err.is_terminal else 1_000
        if not self._has_header:
            self._has_header = True
            self._err.print(Text(self._kl_told, style="dim"), soft_wrap=True)
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
        self._say(f"reward {rewards_told(outcome.steps)}")
        if outcome.failure is not None:
            self._say(f"the job failed: {outcome.failure}")
        self._say_rest(outcome)

    def show(self, outcome: TrainOutcome) -> None:
        """Print the report: that of the training steps as of a test, the curve, the models."""
        signs = symbols(self._out)
        name = None if self._is_listed(outcome.folder) else str(outcome.folder)
        run = name or outcome.folder.name
        self._out.print()
        render_summary(outcome.summary, self._out, of="all training steps together")
        sections = [
            metrics_section(list(map(telling, outcome.steps))),
            curve_section(outcome.steps, signs),
            outcome_section(
                outcome.steps,
                job_id=outcome.job_id,
                failure=None if outcome.failure is None else outcome.failure.message,
                more=_why_it_ended(outcome),
                models=outcome.models,
                warnings=outcome.warnings,
            ),
        ]
        print_sections(self._out, sections, signs)
        self._print_capacity(outcome.folder, run=run)
        self._out.print()
        print_next(outcome.summary, self._out, outcome.folder, run, first=self._next(outcome, run))
        self._say_rest(outcome)

    def _say_interrupted(self) -> None:
        """Say what is kept, and how to go on with it."""
        if self.folder is None:
            self._say("interrupted before anything was trained")
            return
        name = self.folder.name if self._is_listed(self.folder) else str(self.folder)
        step = last_checkpoint(self.folder)
        kept = (
            "there is no checkpoint yet, so that it begins anew"
            if step is None
            else f"the last checkpoint is after {plural(step, 'step')}"
        )
        self._say(f"interrupted; {kept}, in {self.folder}")
        self._say(f"go on with it: {self.command} --resume {name}")

    def _next(self, outcome: TrainOutcome, run: str) -> list[str]:
        if outcome.failure is not None:
            return next_after_failure(run, last_checkpoint=last_checkpoint(outcome.folder))
        if outcome.was_stopped:
            return [f"arkdev train --resume {run}   (goes on from the last checkpoint)"]
        learned, is_any = learned_told(outcome.steps)
        if learned and not is_any:
            return [f"arkdev show {run} --step 0   (the models are as they were)"]
        models = {which: str(folder) for which, folder in outcome.models.items()}
        best = models.get("best")
        return next_for_models(run, best=best, last=models["last"]) if models else []

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
