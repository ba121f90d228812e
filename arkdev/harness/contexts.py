"""What only a critic or a teacher sees: read from a rollout's `config`, checked, rendered.

`qa_index` counts the answers of the policy, from 0 (OPD-20, CRIT-04): the message is put before
that answer, however many messages stand before it. The policy's answers are those that its model
calls gave; assistant messages of the dataset line, or of the plugin's own, do not count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from arkdev.errors import PluginResultError
from arkdev.job.prompts import prompt_size
from arkdev.runs.records import TrajectoryRecord
from arkdev.types import CriticContext, TeacherContext

CRITIC = "critic"
_CRITIC_HINT = "CriticContext(qa_index=0, message=ChatCompletionMessage(role=..., content=TEXT))"
_TEACHER_HINT = 'config={"teachers": {"NAME": {"teacher_context": [...]}}}'


@dataclass(frozen=True)
class InsertedContext:
    """The context of one trajectory for one reader."""

    reader: str
    """``critic``, or the teacher's name."""
    entries: tuple[tuple[int, dict[str, Any]], ...]
    """(`qa_index`, message), in the order of the answers."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The contents."""
        return tuple(message["content"] for _, message in self.entries)

    @property
    def estimated_tokens(self) -> int:
        """Tokens of the entries, estimated without a tokenizer (`arkdev.job.prompts`)."""
        return prompt_size({"messages": [message for _, message in self.entries]}).num_tokens

    def rendered(
        self, messages: Sequence[dict[str, Any]], answers: Sequence[int]
    ) -> list[tuple[dict[str, Any], bool]]:
        """Return the conversation with the entries in it; True marks what was put in.

        `answers` are the places of the policy's answers in `messages`.
        """
        rendered: list[tuple[dict[str, Any], bool]] = []
        for place, message in enumerate(messages):
            if place in answers:
                number = answers.index(place)
                rendered += [(entry, True) for index, entry in self.entries if index == number]
            rendered.append((message, False))
        return rendered

    def prompt_of(
        self, messages: Sequence[dict[str, Any]], answers: Sequence[int], *, number: int
    ) -> list[dict[str, Any]]:
        """Return what the reader sees before answer `number`: earlier contexts too (OPD-22)."""
        rendered = self.rendered(messages[: answers[number] + 1], answers[: number + 1])
        return [message for message, _ in rendered[:-1]]


def policy_answers(trajectory: TrajectoryRecord) -> list[int]:
    """Return the places of the policy's answers among the trajectory's messages.

    Chat calls do not keep their places: their answers are the last assistant messages, as many as
    there were calls.
    """
    known = [turn.answer_index for turn in trajectory.turns]
    if all(place is not None for place in known):
        return [place for place in known if place is not None]
    assistants = [
        place
        for place, message in enumerate(trajectory.messages)
        if message.get("role") == "assistant"
    ]
    return assistants[max(0, len(assistants) - len(known)) :]


def critic_context(trajectory: TrajectoryRecord, *, place: str = "") -> InsertedContext | None:
    """Return what a rollout gave the critic; None when it gave nothing (CRIT-02).

    Raises `PluginResultError`, at `place`, for what cannot be put in.
    """
    given = (trajectory.config or {}).get("critic_context")
    if not given:
        return None
    return InsertedContext(
        CRITIC,
        _entries("critic_context", given, trajectory, kind=CriticContext, place=place),
    )


def teacher_context(trajectory: TrajectoryRecord, *, place: str = "") -> InsertedContext | None:
    """Return which teacher a rollout named, and what it gave it; None when it named none.

    Raises `PluginResultError` as `critic_context` does, and for more than one teacher (OPD-04).
    """
    given = (trajectory.config or {}).get("teachers")
    if given is None or given == {}:
        return None
    if not isinstance(given, Mapping) or len(given) > 1:
        what = f"{len(given)} teachers" if isinstance(given, Mapping) else type(given).__name__
        raise _problem(
            f"config['teachers'] is {what}", trajectory, place, "name one teacher: " + _TEACHER_HINT
        )
    [(name, settings)] = given.items()
    where = f"teachers[{name!r}]"
    if not isinstance(settings, Mapping):
        raise _problem(f"{where} is no dict", trajectory, place, _TEACHER_HINT)
    unknown = [key for key in settings if key != "teacher_context"]
    if unknown:
        raise _problem(f"{where} has the unknown key {unknown[0]!r}", trajectory, place, "")
    entries = _entries(
        f"{where}['teacher_context']",
        settings.get("teacher_context") or [],
        trajectory,
        kind=TeacherContext,
        place=place,
    )
    num_turns = len(policy_answers(trajectory))
    if len(entries) > num_turns:
        raise _problem(
            f"{where} has {len(entries)} contexts for {num_turns} turns of the policy",
            trajectory,
            place,
            "there may be as many as turns (OPD-21)",
        )
    return InsertedContext(str(name), entries)


def _entries(
    name: str,
    given: Any,
    trajectory: TrajectoryRecord,
    *,
    kind: type[CriticContext] | type[TeacherContext],
    place: str,
) -> tuple[tuple[int, dict[str, Any]], ...]:
    if not isinstance(given, list | tuple):
        raise _problem(f"{name} is {type(given).__name__}, no list", trajectory, place, "")
    num_turns = len(policy_answers(trajectory))
    entries = []
    for number, item in enumerate(given):
        entry = _entry(f"{name}[{number}]", item, trajectory, kind=kind, place=place)
        if not 0 <= entry.qa_index < num_turns:
            raise _problem(
                f"{name}[{number}].qa_index is {entry.qa_index}; the policy answered {num_turns} "
                f"times",
                trajectory,
                place,
                "it counts the policy's answers from 0, not the messages",
            )
        entries.append((entry.qa_index, entry.message.model_dump(exclude_none=True)))
    return tuple(sorted(entries, key=lambda entry: entry[0]))


def _entry(
    name: str,
    item: Any,
    trajectory: TrajectoryRecord,
    *,
    kind: type[CriticContext] | type[TeacherContext],
    place: str,
) -> CriticContext | TeacherContext:
    try:
        entry = kind.model_validate(item)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(str(part) for part in problem["loc"])
        raise _problem(f"{name}.{key}: {problem['msg']}", trajectory, place, _CRITIC_HINT) from None
    content = entry.message.content
    if not isinstance(content, str):
        raise _problem(
            f"{name}.message.content is {type(content).__name__}; only text can be put in",
            trajectory,
            place,
            "no images, and no list of parts",
        )
    if not content.strip():
        raise _problem(
            f"{name}.message.content is empty",
            trajectory,
            place,
            "check the sample's extra before it is used; without it, give no context",
        )
    return entry


def _problem(text: str, trajectory: TrajectoryRecord, place: str, hint: str) -> PluginResultError:
    return PluginResultError(f"{trajectory.trajectory_id}: {text}", where=place, hint=hint)
