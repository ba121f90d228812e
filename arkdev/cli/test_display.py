"""What a person sees of a test while it runs, and at its end."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import TextColumn
from rich.text import Text

from arkdev.cli.conversation import ConversationPrinter, render_turns
from arkdev.cli.output import console
from arkdev.cli.progress import counting_bar
from arkdev.cli.report import headline, render_summary
from arkdev.cli.report_stalls import advice, sentence
from arkdev.cli.runs import runs_here
from arkdev.cli.streams import messages, results
from arkdev.cli.terminal import plural, printable, symbols
from arkdev.flows.named_plugins import DEFAULT_ROLLOUT
from arkdev.flows.test_plan import PluginTestPlan
from arkdev.flows.test_plugin import PluginTestOutcome
from arkdev.harness.attempts import MAX_ATTEMPTS, Outcome
from arkdev.harness.rollouts import FinishedRollout
from arkdev.harness.stalls import StallRecord
from arkdev.harness.warnings import describe_warning
from arkdev.observe.log_lines import LogLine
from arkdev.plugin.decorators import PluginKind
from arkdev.runs.masking import masked_text, masked_value
from arkdev.runs.records import GroupRecord, Verdict
from arkdev.sessions.identity import AttemptIdentity
from arkdev.sessions.session import Session

_LINE_EVERY_S = 10.0
_MAX_WARNINGS = 5
_MAX_REASONS = 100
_MAX_STALLS = 3
_WIDTH_OF_PROGRESS = 90
"""The bar, the counts, the time and the mean reward."""


def display_for(plan: PluginTestPlan, *, as_json: bool) -> Display:
    """Return the display that fits: turn by turn for one sample, progress for many."""
    if plan.line is not None and not as_json:
        return ConversationDisplay(plan)
    return Display(plan)


class Display:
    """Progress on stderr (a bar on a terminal, a line now and then elsewhere), then the report."""

    command = "arkdev test plugin"

    def __init__(self, plan: PluginTestPlan) -> None:
        self._plan = plan
        self._err = _fixed(console(is_stderr=True), messages())
        self._out = _fixed(console(), results())
        self._progress = counting_bar(self._err, TextColumn("{task.fields[note]}"))
        self._task = self._progress.add_task("rollouts", total=plan.num_rollouts, note="")
        self._num_done = self._num_failed = self._num_stalls = 0
        self._reasons: Counter[str] = Counter()
        self._reward_sum, self._num_rewards = 0.0, 0
        self._next_line = time.monotonic() + _LINE_EVERY_S
        self.folder: Path | None = None

    def __enter__(self) -> Display:
        for note in self._plan.notes:
            self._say(f"note: {note}")
        for warning in self._plan.warnings[:_MAX_WARNINGS]:
            self._say(f"warning: {warning}")
        hidden = len(self._plan.warnings) - _MAX_WARNINGS
        if hidden > 0:
            self._say(f"warning: {hidden} more about the data")
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

    def give_up(self) -> None:
        """Say that the process ends although a plugin blocks it."""
        with suppress(Exception):
            self._say("a plugin blocks the event loop; ending without it")
            self._say_interrupted()

    def on_programs_ended(self, num_ended: int) -> None:
        """Say that the end of the run ended what plugins had started."""
        with suppress(Exception):
            self._say(f"ended {plural(num_ended, 'program')} that plugins had started")

    def on_start(self, plan: PluginTestPlan, folder: Path) -> None:
        """Say what runs."""
        self.folder = folder
        self._say(_what_runs(plan))
        if self._err.is_terminal:
            self._progress.start()

    def on_turn(self, session: Session) -> None:
        """Many samples show no turns."""

    def on_log(self, line: LogLine) -> None:
        """The report says where the lines are."""

    def on_stall(self, record: StallRecord) -> None:
        """Name the first few pieces of code that hold others up; the report names them all."""
        self._num_stalls += 1
        if self._num_stalls <= _MAX_STALLS:
            with suppress(Exception):  # the watch goes on, whatever became of the terminal
                self._say(f"warning: {sentence(record)}\n  {advice(record)}")

    def on_warning(self, text: str) -> None:
        """Say it."""
        with suppress(Exception):  # as above
            self._say(f"warning: {text}")

    def on_progress(self, text: str) -> None:
        """Say it: it may take minutes."""
        with suppress(Exception):  # as above
            self._err.print(Text(printable(text), style="dim"), soft_wrap=True)

    def on_attempt(self, identity: AttemptIdentity, outcome: Outcome[Any]) -> None:
        """Many samples show no attempts."""

    def on_rollout(self, finished: FinishedRollout) -> None:
        """Count it."""
        num_trajectories = finished.record.num_trajectories
        self._num_done += num_trajectories
        if finished.record.verdict is Verdict.FAILURE:
            self._num_failed += num_trajectories
            reason = finished.record.attempts[-1].error or "no error text"
            if len(self._reasons) < _MAX_REASONS or reason in self._reasons:
                self._reasons[reason] += num_trajectories
        self._update()

    def on_group(self, record: GroupRecord) -> None:
        """Follow the mean reward."""
        for reward in record.rewards:
            if reward is not None:
                self._reward_sum += reward
                self._num_rewards += 1
        self._update()

    def report_in_a_line(self, outcome: PluginTestOutcome) -> None:
        """Say the outcome on stderr, where stdout holds a document."""
        self._say(headline(outcome.summary, signs=symbols(self._err)).plain)
        self._say_traces(outcome)
        self._say_thresholds(outcome)

    def _say_thresholds(self, outcome: PluginTestOutcome) -> None:
        for threshold in outcome.thresholds:
            word, style = ("met", "green") if threshold.is_met else ("missed", "bold red")
            line = Text.assemble((f"threshold {word}: ", style), str(threshold))
            self._err.print(line, soft_wrap=True)

    def report(self, outcome: PluginTestOutcome) -> None:
        """Print the report."""
        render_summary(outcome.summary, self._out, folder=outcome.folder, name=self._name(outcome))
        run = self._name(outcome) or outcome.folder.name
        self._print_capacity(outcome.folder, run=run)
        self._say_notes(outcome)
        self._say_traces(outcome)
        self._say_thresholds(outcome)
        if outcome.clients_built:
            cost_ms = outcome.client_cost_s * 1000
            self._out.print(
                f"\n{outcome.clients_built} model clients were built by plugins, "
                f"{cost_ms:.0f} ms of CPU each; proxy.rollout_client() costs under 1 ms.",
                soft_wrap=True,
            )

    def _print_capacity(self, folder: Path, *, run: str) -> None:
        """Say which settings the functions of the job need."""
        if self._plan.faas is not None:
            from arkdev.cli.faas_plan_display import print_capacity

            print_capacity(folder, self._plan.job, self._out, run=run)

    def _say_notes(self, outcome: PluginTestOutcome) -> None:
        for note in outcome.notes:
            self._say(f"note: {note}")
        if outcome.judge_calls:
            self._say(
                f"note: {plural(outcome.judge_calls, 'model call')} that plugins made past their "
                "proxy went to the scripted model; set ARK_BASE_URL and ARK_API_KEY to ask another"
            )

    def _say_traces(self, outcome: PluginTestOutcome) -> None:
        if outcome.tracing is None:
            return
        for warning in outcome.tracing.warnings:
            self._say(f"warning: {warning}")
        if self._plan.request.trace:
            spans = plural(outcome.tracing.num_recorded, "span")
            name = self._name(outcome) or outcome.folder.name
            self._say(f"{spans} recorded; see them: arkdev show {name} TRAJECTORY --trace")

    def _name(self, outcome: PluginTestOutcome) -> str | None:
        return None if self._is_listed(outcome.folder) else str(outcome.folder)

    def _is_listed(self, folder: Path) -> bool:
        """Whether the run's id is enough to find it from the current directory."""
        return folder.parent == runs_here()

    def _update(self) -> None:
        note = ""
        if self._num_rewards:
            note = f"mean reward {self._reward_sum / self._num_rewards:.3f}"
        if self._num_failed:
            note += f"  {self._num_failed} failed{self._most_frequent_reason()}"
        self._progress.update(self._task, completed=self._num_done, note=note)
        now = time.monotonic()
        if not self._err.is_terminal and now >= self._next_line:
            self._next_line = now + _LINE_EVERY_S
            self._say(f"{self._num_done}/{self._plan.num_rollouts} rollouts  {note}")

    def _most_frequent_reason(self) -> str:
        """The reason of most failures, in what a line of the terminal has left for it."""
        room = max(0, self._err.width - _WIDTH_OF_PROGRESS)
        [(reason, _)] = self._reasons.most_common(1)
        text = printable(" ".join(reason.split()))
        return f": {text if len(text) <= room else text[:room] + '...'}" if room else ""

    def _say(self, text: str) -> None:
        # paths stay whole where the output is not for a person
        is_for_person = self._err.is_terminal
        self._err.print(Text(printable(text), style="dim"), soft_wrap=not is_for_person)

    def _say_interrupted(self) -> None:
        total = self._plan.num_rollouts
        where = f"; what finished is in {self.folder}" if self.folder else ""
        self._say(f"interrupted after {self._num_done} of {total} rollouts{where}")
        if self._plan.tape is not None:
            self._say("the tape is good for the samples that came to their end; it does not go on")
        if self.folder and self._plan.can_be_resumed:
            name = self.folder.name if self._is_listed(self.folder) else self.folder
            self._say(f"go on with it: {self.command} --resume {name}")


class ConversationDisplay(Display):
    """One sample: the conversation as it happens, then what each grader says."""

    def __init__(self, plan: PluginTestPlan) -> None:
        super().__init__(plan)
        self._secrets = plan.secrets
        self._printer = ConversationPrinter(self._out)
        self._lock = threading.Lock()
        self._makes_groups = plan.rollout.plugin.kind is PluginKind.GROUP_ROLLOUT
        self._session: Session | None = None
        self._num_shown = 0
        self._records: dict[str, FinishedRollout] = {}

    def on_start(self, plan: PluginTestPlan, folder: Path) -> None:
        """Say what runs; there is no bar."""
        self.folder = folder
        self._say(_what_runs(plan))
        if plan.line is not None:
            extra = masked_value(plan.line.sample.extra, secrets=self._secrets)
            self._printer.sample_extra(extra)

    def on_log(self, line: LogLine) -> None:
        """Print it between the messages."""
        with self._lock:
            self._printer.log_line(masked_text(str(line), secrets=self._secrets))

    def on_attempt(self, identity: AttemptIdentity, outcome: Outcome[Any]) -> None:
        """Print why it failed, if it did."""
        if outcome.verdict is Verdict.SUCCESS:
            return
        error = masked_value(outcome.error, secrets=self._secrets)
        with self._lock:
            number = identity.attempt + 1
            self._printer.failed_attempt(number, replace(outcome, error=error))
            is_tried_again = outcome.verdict is not Verdict.DISCARD and number < MAX_ATTEMPTS
            if is_tried_again and self._plan.num_generations == 1:
                self._printer.begin_attempt(f"attempt {number + 1}")

    def on_turn(self, session: Session) -> None:
        """Print what is new in the conversation; a group's branches are printed when it is done."""
        if self._makes_groups:
            return
        with self._lock:
            if session is not self._session:
                self._session, self._num_shown = session, 0
                self._head(session)
            turns = session.turns
            messages = masked_value(session.conversation.plain_messages, secrets=self._secrets)
            caller = turns[-2] if len(turns) > 1 else None
            for message in messages[self._num_shown :]:
                is_answer, is_tool = message is messages[-1], message.get("role") == "tool"
                self._printer.message(
                    message,
                    turn=turns[-1] if is_answer else None,
                    tools_of=caller if is_tool else None,
                )
                caller = None if is_tool else caller
            self._num_shown = len(messages)

    def on_rollout(self, finished: FinishedRollout) -> None:
        """Print what went wrong, if anything did."""
        super().on_rollout(finished)
        record = masked_value(finished.record, secrets=self._secrets)
        finished = replace(finished, record=record)
        self._records[finished.record.trajectory_id] = finished
        self._printer.traceback(finished.record.attempts)

    def on_group(self, record: GroupRecord) -> None:
        """Print the rewards of each trajectory, for a group rollout after its conversation."""
        super().on_group(record)
        record = masked_value(record, secrets=self._secrets)
        for index, (name, reward) in enumerate(
            zip(record.trajectory_ids, record.rewards, strict=True)
        ):
            if len(record.trajectory_ids) > 1:
                self._out.print(Text(f"trajectory {name}", style="bold"))
            if self._makes_groups:
                rollout = self._records[name].record
                render_turns(self._out, messages=rollout.messages, turns=rollout.turns)
            self._printer.grades(record.graders, index=index, reward=reward)

    def report(self, outcome: PluginTestOutcome) -> None:
        """Say where the record is; the conversation was the report."""
        for warning in outcome.summary.warnings:
            text = describe_warning(warning.code)
            detail = f": {warning.detail}" if warning.detail else ""
            self._say(f"warning: {text.meaning}{detail}\n  {text.advice}")
        self._say_notes(outcome)
        self._say_traces(outcome)
        self._say_thresholds(outcome)
        self._say(f"recorded in {outcome.folder}")

    def _head(self, session: Session) -> None:
        identity = session.identity
        title = ""  # of one rollout: said when the attempt before it failed
        if self._plan.num_generations > 1:
            title = f"rollout {identity.trajectory_id}, attempt {identity.attempt + 1}"
        self._printer.begin_attempt(title)


def _what_runs(plan: PluginTestPlan) -> str:
    samples = f"{plan.num_samples} sample{'s' if plan.num_samples != 1 else ''}"
    each = f" × {plan.num_generations}" if plan.num_generations > 1 else ""
    graders = " + ".join(
        grader.name if grader.weight == 1 else f"{grader.weight:g}·{grader.name}"
        for grader in plan.graders
    )
    makes_groups = plan.rollout.plugin.kind is PluginKind.GROUP_ROLLOUT
    num_slots = min(plan.concurrency, plan.num_samples if makes_groups else plan.num_rollouts)
    slots = f", {num_slots} at once" if num_slots > 1 else ""
    is_told = plan.endpoint.model in (None, plan.endpoint.name)
    model = "" if is_told else f" ({plan.endpoint.model})"
    is_built_in = plan.rollout.reference == DEFAULT_ROLLOUT
    rollout = "the built-in single turn" if is_built_in else plan.rollout.reference
    job = f"{plan.job.source.name}: " if plan.job else ""
    return (
        f"{job}{rollout} on {samples}{each}{slots}, "
        f"graded by {graders}, model: {plan.endpoint.name}{model}"
    )


def _fixed(target: Console, stream: Any) -> Console:
    """Keep a console on its stream: while plugins run, sys.stdout stands for their own output."""
    target.file = stream
    return target
