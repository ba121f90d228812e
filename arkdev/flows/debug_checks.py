"""What a debug run looks at in each trajectory: contexts of critic and teacher, leaks, tokens."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from arkdev.errors import PluginResultError
from arkdev.flows.debug_plan import DebugPlan
from arkdev.flows.debug_tokens import TokenChecks
from arkdev.harness.advantages import has_own_advantages
from arkdev.harness.contexts import InsertedContext, critic_context, teacher_context
from arkdev.harness.leaks import TOOLS, Leak, find_leaks
from arkdev.harness.rollouts import FinishedRollout, SampleToRun
from arkdev.harness.steps import Counted
from arkdev.job.methods import CustomizationType
from arkdev.plugin.evidence import TokenEvidence
from arkdev.runs.records import TRAIN, GroupRecord, TrajectoryRecord


@dataclass(frozen=True)
class Lesson:
    """A trajectory whose prompts a teacher is to be shown, as the teacher sees them."""

    record: TrajectoryRecord
    context: InsertedContext
    evidence: TokenEvidence | None = None


class TrajectoryChecks:
    """Checks what finishes; `on_event` writes down what was found. See `warnings`."""

    def __init__(self, plan: DebugPlan, on_event: Callable[..., None]) -> None:
        self._plan = plan
        self._on_event = on_event
        self._place = plan.rollout.plugin.place
        self._lines: dict[int, dict[str, Any]] = {}
        """Samples that are under way."""
        self._counts: dict[str, int] = {}
        self._examples: dict[str, str] = {}
        self._lessons: list[Lesson] = []
        self._tokens = TokenChecks(plan, self._warn)
        self._leaks: set[tuple[str, str]] = set()

    @property
    def _method(self) -> CustomizationType:
        return self._plan.the_job.customization_type

    def begin(self, sample: SampleToRun) -> None:
        """A sample begins."""
        self._lines[sample.index] = json.loads(sample.line)
        self._tokens.begin(sample)

    def end(self, group: GroupRecord) -> None:
        """Its group is done."""
        self._lines.pop(group.sample_index, None)
        first = group.trajectory_ids[0] if group.trajectory_ids else str(group.sample_index)
        own = [grader for grader in group.graders if has_own_advantages(grader)]
        if own and self._method.has_critic:
            self._warn(f"advantages of {own[0].name} have no effect in a PPO job", first)
        self._tokens.end(group)

    def critic_tokens(self, record: TrajectoryRecord) -> int:
        """Return how many tokens a critic is given; 0 for what cannot be put in."""
        if not self._method.has_critic:
            return 0
        try:
            context = critic_context(record)
        except PluginResultError:
            return 0
        return self._tokens.inserted(context) if context is not None else 0

    def counted(self, finished: FinishedRollout) -> Counted:
        """Return what is known of a trajectory's tokens."""
        return self._tokens.counted(finished)

    def check(self, finished: FinishedRollout) -> PluginResultError | None:
        """Look at a trajectory; return what a job would end with."""
        record = finished.record
        try:
            contexts = self._contexts(finished)
        except PluginResultError as error:
            return error
        sample = self._lines.get(record.sample_index, {})
        leaks = find_leaks(record, sample=sample, contexts=contexts, beside=finished.beside)
        for leak in leaks:
            self._on_event("leak", **asdict(leak))
            self._note_leak(leak)
        return None

    def recall(self, event: Mapping[str, Any]) -> None:
        """Count a leak that an earlier part of the run found."""
        names = [each.name for each in fields(Leak)]
        if event.get("kind") == "leak" and all(name in event for name in names):
            self._note_leak(Leak(**{name: event[name] for name in names}))

    def _note_leak(self, leak: Leak) -> None:
        if (leak.trajectory_id, leak.what) in self._leaks:  # its group ran again
            return
        self._leaks.add((leak.trajectory_id, leak.what))
        which = (
            f"message {leak.message} ({leak.role})"
            if leak.message is not None
            else "what a tool is described with"
            if leak.role == TOOLS
            else f"a message ({leak.role}) that a call sent and the trajectory does not end with"
        )
        self._warn(
            f"{leak.what} is in a prompt of the policy: {which}, {self._place}",
            leak.trajectory_id,
        )

    @property
    def num_leaks(self) -> int:
        """Trajectories (and things) that the policy should not have seen."""
        return len(self._leaks)

    def _contexts(self, finished: FinishedRollout) -> list[InsertedContext]:
        record = finished.record
        critic = critic_context(record, place=self._place)
        teacher = teacher_context(record, place=self._place)
        if critic is not None and not self._method.has_critic:
            self._warn(
                f"critic_context has no effect in a {self._method} job", record.trajectory_id
            )
        if critic is None and self._method.has_critic:
            self._warn(
                "no critic_context: the critic sees what the policy saw", record.trajectory_id
            )
        if self._method.has_teachers:
            self._check_teacher(teacher, finished)
        elif teacher is not None:
            self._warn(f"teachers have no effect in a {self._method} job", record.trajectory_id)
        return [context for context in (critic, teacher) if context is not None]

    def _check_teacher(self, teacher: InsertedContext | None, finished: FinishedRollout) -> None:
        record = finished.record
        known = sorted(self._plan.teachers)
        if teacher is None:
            raise PluginResultError(
                f"{record.trajectory_id} names no teacher; the job has {', '.join(known)}",
                where=self._place,
                hint='a rollout returns config={"teachers": {NAME: {}}} with one of them',
            )
        if teacher.reader not in self._plan.teachers:
            raise PluginResultError(
                f"{record.trajectory_id} names the teacher {teacher.reader!r}; the job has "
                f"{', '.join(known)}",
                where=self._place,
                hint="name it in the job's teachers, or correct the rollout's config",
            )
        if self._plan.teacher is not None and record.phase == TRAIN and record.generation == 0:
            self._lessons.append(Lesson(record, teacher, finished.evidence))

    def take_lessons(self) -> list[Lesson]:
        """Return what a teacher is to be shown of the step, one trajectory of each group."""
        lessons, self._lessons = self._lessons, []
        return lessons

    def _warn(self, text: str, example: str) -> None:
        self._counts[text] = self._counts.get(text, 0) + 1
        self._examples.setdefault(text, example)

    def warnings(self) -> tuple[str, ...]:
        """Return what a person should know, each with its number and an example."""
        return tuple(
            f"{text} ({count:,} times, e.g. {self._examples[text]})"
            for text, count in self._counts.items()
        )
