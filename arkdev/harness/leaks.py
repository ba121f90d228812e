"""Whether what only graders, critic or teacher may see stood in a prompt of the policy.

Searched for, with case and white space evened out:

* the texts of the critic's and the teacher's context, in every message that the policy was sent,
  and in what its tools are described with;
* what the sample's `extra` holds under `ANSWER_KEYS`, also inside of lists and objects, in the
  messages and tools that the plugin added.

Not called a leak, because it happens in good plugins:

* short answers (below `MIN_LETTERS` letters and digits, or `MIN_WIDE` of them when they are not
  ASCII): "yes", "3", a city's name are in many a prompt by chance;
* an answer in the dataset line's own messages (options to choose from);
* an answer among the values that a tool's argument may have (`enum`);
* an answer in what a tool returned: finding it is a search agent's work;
* what the policy itself had said before.

Searched are all messages that a call of the attempt sent, also those that the trajectory does not
end with: a message that was taken out again, a branch that was given up, a call without an answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from arkdev.harness.contexts import InsertedContext, policy_answers
from arkdev.runs.records import TrajectoryRecord
from arkdev.sessions.sent import NOTHING, SentBeside

ANSWER_KEYS = (
    "answer",
    "answers",
    "reference_answer",
    "reference",
    "ground_truth",
    "groundtruth",
    "gold",
    "solution",
    "rubric",
    "rubrics",
    "expected",
    "expected_answer",
    "label",
    "target",
)
"""Of `extra`, in any case."""
TOOLS = "tools"
MIN_LETTERS = 12
MIN_WIDE = 6


@dataclass(frozen=True)
class Leak:
    """Something that the policy should not have seen, and where it did."""

    trajectory_id: str
    what: str
    """``extra.answer``, ``critic_context``, ``teacher_context``."""
    message: int | None
    """Place of the message among the trajectory's, from 0; None: it does not end with it."""
    role: str
    """Of the message; `TOOLS` where it is what a tool is described with."""


def find_leaks(
    trajectory: TrajectoryRecord,
    *,
    sample: Mapping[str, Any],
    contexts: Sequence[InsertedContext] = (),
    beside: SentBeside = NOTHING,
) -> list[Leak]:
    """Return what leaked into the prompts of a trajectory, each thing once.

    `beside` is what calls sent that the trajectory does not end with.
    """
    answers = list(_answers(sample.get("extra")))
    hidden = [
        (_name(context), _even(text))
        for context in contexts
        for text in context.texts
        if _is_long_enough(text)
    ]
    if not answers and not hidden:
        return []
    of_policy = set(policy_answers(trajectory))
    line = {_even(text) for message in sample.get("messages") or () for text in _texts(message)}
    line |= {_even(text) for text in _strings(sample.get("tools"))}
    leaks: dict[str, Leak] = {}
    said = ""
    for place, message in _places(trajectory, beside):
        text = " ".join(map(_even, _texts(message)))
        if place in of_policy or any(message is answer for answer in beside.answers):
            said += f" {text}"
            continue
        role = str(message.get("role"))
        searched = list(hidden)
        if role != "tool":
            in_line = any(text == part for part in line)
            searched += [] if in_line else answers
        for what, wanted in searched:
            known = wanted in said or (what.startswith("extra.") and any(wanted in p for p in line))
            if what not in leaks and wanted in text and not known:
                leaks[what] = Leak(trajectory.trajectory_id, what, place, role)
    for text in map(_even, _strings(beside.tools, without="enum")):
        for what, wanted in [] if text in line else [*hidden, *answers]:
            if what not in leaks and wanted in text:
                leaks[what] = Leak(trajectory.trajectory_id, what, None, TOOLS)
    return list(leaks.values())


def _places(
    trajectory: TrajectoryRecord, beside: SentBeside
) -> Iterator[tuple[int | None, Mapping[str, Any]]]:
    """Yield the messages of the trajectory, and then what was sent and answered beside it."""
    yield from enumerate(trajectory.messages)
    for message in (*beside.answers, *beside.messages):
        yield None, message


def _name(context: InsertedContext) -> str:
    return "critic_context" if context.reader == "critic" else "teacher_context"


def _answers(extra: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(extra, Mapping):
        return
    for key, value in extra.items():
        if str(key).lower() not in ANSWER_KEYS:
            continue
        for each in _strings(value):
            text = _even(each)
            if _is_long_enough(text):
                yield f"extra.{key}", text


def _strings(value: Any, *, without: str = "") -> Iterator[str]:
    """Yield the texts and numbers in a JSON value; the keys of objects are left out.

    `without` names one whose value is left out, too.
    """
    if isinstance(value, Mapping):
        value = [each for key, each in value.items() if not without or key != without]
    if isinstance(value, list | tuple):
        for each in value:
            yield from _strings(each, without=without)
    elif isinstance(value, str | int | float):
        yield str(value)


def _is_long_enough(text: str) -> bool:
    letters = [letter for letter in text if letter.isalnum()]
    num_wide = sum(not letter.isascii() for letter in letters)
    return len(letters) >= MIN_LETTERS or num_wide >= MIN_WIDE


def _even(text: str) -> str:
    return " ".join(text.casefold().split())


def _texts(message: Mapping[str, Any]) -> Iterator[str]:
    content = message.get("content")
    if isinstance(thought := message.get("reasoning_content"), str):
        yield thought
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for part in content:
            if isinstance(part, Mapping) and isinstance(part.get("text"), str):
                yield part["text"]
    for call in message.get("tool_calls") or ():
        arguments = (call.get("function") or {}).get("arguments")
        if isinstance(arguments, str):
            yield arguments
