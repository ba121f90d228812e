"""What a person sees of a debug run while it runs, and at its end."""

from __future__ import annotations

from pathlib import Path

from rich.text import Text

from arkdev.cli.debug_loss import loss_section
from arkdev.cli.debug_report import (
    HEADERS,
    aligned,
    cells,
    metrics_section,
    outcome_section,
    print_sections,
    steps_section,
)
from arkdev.cli.forecast_report import print_forecast
from arkdev.cli.report import headline, print_next, render_summary
from arkdev.cli.terminal import plural, symbols
from arkdev.cli.test_display import Display
from arkdev.flows.debug import DebugOutcome
from arkdev.flows.debug_plan import DebugPlan
from arkdev.flows.named_plugins import DEFAULT_ROLLOUT
from arkdev.flows.test_plan import PluginTestPlan
from arkdev.harness.forecast.forecast import Forecast
from arkdev.harness.steps import StepRecord
from arkdev.job.batches import Batch
from arkdev.runs.masking import masked_text
from arkdev.runs.records import TRAIN


class DebugDisplay(Display):
    """A row for each step on stderr, with a bar below on a terminal; then the report."""

    command = "arkdev debug"

    def __init__(self, plan: DebugPlan) -> None:
        super().__init__(plan)
        self._debug = plan
        self._signs = symbols(self._err)
        self._has_header = False

    def on_start(self, plan: PluginTestPlan, folder: Path) -> None:
        """Say what runs."""
        self.folder = folder
        self._say(what_is_run(self._debug))
        if self._err.is_terminal:
            self._progress.start()

    def on_step_begin(self, batch: Batch, phase: str) -> None:
        """Name it beside the bar."""
        description = step_of(batch, phase, num_steps=len(self._debug.steps))
        self._progress.update(self._task, description=description)

    def on_step(self, record: StepRecord) -> None:
        """Add its row."""
        if not self._has_header:
            self._has_header = True
            self._err.print(Text(aligned(HEADERS), style="dim"), soft_wrap=True)
        self._err.print(Text(aligned(cells(record, self._signs))), soft_wrap=True)
        if text := record.failure or record.message:
            style = "red" if record.failure else "yellow"
            shown = masked_text(text, secrets=self._debug.secrets)
            self._err.print(Text(f"  {shown}", style=style), soft_wrap=True)

    def say_end(self, outcome: DebugOutcome) -> None:
        """Say the outcome on stderr, where stdout holds a document."""
        self._say(headline(outcome.summary, signs=self._signs).plain)
        if outcome.failure is not None:
            self._say(f"the job would fail: {outcome.failure}")
        self._say_more(outcome)

    def show(self, outcome: DebugOutcome, *, forecast: Forecast, page: Path) -> None:
        """Print the report: that of the training steps as of a test, the steps, the forecast."""
        signs = symbols(self._out)
        name = None if self._is_listed(outcome.folder) else str(outcome.folder)
        render_summary(outcome.summary, self._out)
        failure = outcome.failure
        sections = [
            metrics_section(outcome.steps),
            loss_section(outcome.steps, signs, mode=self._debug.settings().get("loss_agg_mode")),
            steps_section(outcome.steps, signs),
            outcome_section(
                job_id=outcome.job_id,
                failure=None if failure is None else failure.message,
                failed_at=[
                    failure.where if failure else "",
                    _advice(outcome, is_going_on=self._debug.debug.keep_going),
                ],
                warnings=outcome.warnings,
                steps=outcome.steps,
                validation=headline(outcome.validation, signs=signs)
                if outcome.validation
                else None,
            ),
        ]
        print_sections(self._out, sections, signs)
        print_forecast(forecast, self._out)
        self._print_capacity(outcome.folder, run=name or outcome.folder.name)
        self._out.print()
        print_next(outcome.summary, self._out, outcome.folder, name or outcome.folder.name)
        if outcome.steps:
            of_step = f"arkdev show {name or outcome.folder.name} --step {outcome.steps[-1].step}"
            self._out.print(Text(f" step  {of_step}   (each trajectory of it)"), soft_wrap=True)
        self._out.print(Text(f" page  {page}"), soft_wrap=True)
        self._say_more(outcome)

    def _say_more(self, outcome: DebugOutcome) -> None:
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
        for threshold in outcome.thresholds:
            word = "met" if threshold.is_met else "missed"
            self._say(f"threshold {word}: {threshold}")


def step_of(batch: Batch, phase: str, *, num_steps: int) -> str:
    """``step 3 (4 of 20)``, or the round of validation after it."""
    name = f"step {batch.step}" if phase == TRAIN else f"validation after step {batch.step}"
    return f"{name} ({batch.step + 1} of {num_steps})"


def _advice(outcome: DebugOutcome, *, is_going_on: bool) -> str:
    if outcome.failure is None:
        return ""
    if outcome.failure.hint:
        return outcome.failure.hint
    return "" if is_going_on else "--keep-going goes on all the same, to see what else there is"


def what_is_run(plan: DebugPlan) -> str:
    """Say in a sentence what a job's run consists of."""
    job, steps = plan.the_job, plan.steps
    is_built_in = plan.rollout.reference == DEFAULT_ROLLOUT
    rollout = "the built-in single turn" if is_built_in else plan.rollout.reference
    graders = " + ".join(
        grader.name if grader.weight == 1 else f"{grader.weight:g}·{grader.name}"
        for grader in plan.graders
    )
    rounds = ""
    if plan.num_rounds:
        rounds = f", {plural(plan.num_rounds, 'round')} of {plan.num_validation} for validation"
    model = plan.endpoint.model
    shown = "" if model in (None, plan.endpoint.name) else f" ({model})"
    return (
        f"{job.source.name}, {job.customization_type}: {plural(len(steps), 'step')} of "
        f"{steps.batch_size} samples x {plan.num_generations}, {steps.num_samples} samples in all"
        f"{rounds}; {rollout}, graded by {graders}, model: {plan.endpoint.name}{shown}"
    )
