"""One trajectory turn by turn: for ``arkdev show RUN TRAJECTORY`` and for a test of one sample."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from arkdev.cli.terminal import (
    Section,
    duration,
    number,
    number_table,
    plural,
    printable,
    symbols,
    titled,
)
from arkdev.runs.records import Attempt, GraderRecord, TurnRecord, Verdict

_ROLE_STYLES = {
    "system": "magenta",
    "developer": "magenta",
    "user": "cyan",
    "assistant": "green",
    "tool": "yellow",
}
_MAX_URL_CHARS = 80
_MAX_EXTRA_CHARS = 200


class FailedAttempt(Protocol):
    """What is shown of an attempt that failed: a record, or an outcome that is not one yet."""

    @property
    def verdict(self) -> Verdict:
        """What became of it."""
        ...

    @property
    def error(self) -> str | None:
        """Why."""
        ...

    @property
    def where(self) -> str | None:
        """file:line of the user's code."""
        ...


class ConversationPrinter:
    """Prints messages as they come; `console` is where they go.

    Messages are plain dicts in the Chat Completions form.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._signs = symbols(console)
        self._num_turns = 0
        self._tool_names: dict[str, str] = {}

    def message(
        self,
        message: Mapping[str, Any],
        *,
        turn: TurnRecord | None = None,
        tools_of: TurnRecord | None = None,
    ) -> None:
        """Print one message: `turn` is the model call that made it.

        With the first result of the tools that `tools_of` called goes the time that they took:
        several run side by side, so it is the time of all of them.
        """
        role = str(message.get("role") or "?")
        header = Text(role, style=f"bold {_ROLE_STYLES.get(role, 'default')}")
        name = self._tool_names.get(str(message.get("tool_call_id")))
        notes = [printable(name)] if role == "tool" and name else []
        if turn is not None:
            self._num_turns += 1
            notes += self._turn_notes(turn)
        if tools_of is not None and tools_of.tool_duration_s is not None:
            num_calls = len(tools_of.tool_calls)
            shared = f" for {num_calls} calls" if num_calls > 1 else ""
            notes.append(f"{duration(tools_of.tool_duration_s)}{shared}")
        header.append("".join(f"  {self._signs.dot}  {note}" for note in notes), style="dim")
        self._console.print(Text(), header, sep="\n")
        self._body(message, is_tool=role == "tool")

    def sample_extra(self, extra: Mapping[str, Any] | None) -> None:
        """Print what the dataset says of the sample beside its messages."""
        if extra:
            shown = ", ".join(f"{key}={_short_json(value)}" for key, value in extra.items())
            text = Text(f"sample extra: {printable(shown)}", style="dim", overflow="fold")
            self._console.print(text)

    def log_line(self, line: str) -> None:
        """Print what a plugin logged or printed."""
        self._print_indented(Text(printable(line), style="dim"), by=2)

    def begin_attempt(self, title: str) -> None:
        """Begin another conversation: its turns count from 1. An empty title is not shown."""
        self._num_turns = 0
        if title:
            self._console.print(Text(), Text(title, style="bold"), sep="\n")

    def attempts(self, attempts: Sequence[Attempt]) -> None:
        """Print the attempts that did not succeed, with their errors; nothing when none failed."""
        for index, attempt in enumerate(attempts, start=1):
            if attempt.verdict is not Verdict.SUCCESS:
                self.failed_attempt(index, attempt, took_s=attempt.duration_s)
                if attempt.traceback and index == len(attempts):
                    self._indent(attempt.traceback.rstrip(), style="dim")

    def failed_attempt(
        self, number: int, failed: FailedAttempt, *, took_s: float | None = None
    ) -> None:
        """Print what became of attempt `number`, from 1, and why."""
        line = Text(f"attempt {number}: {failed.verdict}", style="bold red")
        if took_s is not None:
            line.append(f"  {self._signs.dot}  {duration(took_s)}", style="dim")
        self._console.print(line)
        self._indent(failed.error or "no error text", style="red")
        if failed.where:
            self._indent(failed.where, style="dim")

    def traceback(self, attempts: Sequence[Attempt]) -> None:
        """Print the traceback of the last attempt, when it has one."""
        trace = attempts[-1].traceback if attempts else None
        if trace:
            self._indent(trace.rstrip(), style="dim")

    def grades(
        self, graders: Sequence[GraderRecord], *, index: int = 0, reward: float | None = None
    ) -> None:
        """Print each grader's reward and metrics for member `index` of a group, then the sum."""
        signs = self._signs
        rows: list[tuple[str | Text, ...]] = []
        for grader in graders:
            value = grader.rewards[index] if index < len(grader.rewards) else None
            metrics = "  ".join(f"{printable(k)} {number(v)}" for k, v in grader.metrics.items())
            shown = Text("ungraded", style="red") if value is None else Text(number(value))
            weight = f"{signs.times}{grader.weight:g}"
            time = duration(grader.duration_s)
            rows.append((printable(grader.name), weight, shown, time, metrics))
        total = Text("ungraded", style="bold red")
        if reward is not None:
            total = Text(number(reward), style="bold")
        rows.append((Text("weighted", style="bold"), "", total, "", ""))
        table = number_table(("grader", "weight", "reward", "time", "metrics of the group"), rows)
        table.columns[-1].justify = "left"
        table.columns[-1].no_wrap = False
        self._console.print(titled(Section("Rewards", table), signs=signs))
        for grader in graders:
            if grader.verdict is not Verdict.SUCCESS:
                attempts = plural(grader.attempts, "attempt")
                error = f"{grader.name}: {grader.verdict} in {attempts}"
                self._indent(f"{error}: {grader.error or 'no error text'}", style="red")
                if grader.where:
                    self._indent(grader.where, style="dim")
                if grader.traceback:
                    self._indent(grader.traceback.rstrip(), style="dim")

    def _turn_notes(self, turn: TurnRecord) -> list[str]:
        notes = [f"turn {self._num_turns}", duration(turn.duration_s)]
        if turn.prompt_tokens is not None or turn.completion_tokens is not None:
            counts = (turn.prompt_tokens, turn.completion_tokens)
            prompt, completion = ("?" if count is None else str(count) for count in counts)
            notes.append(f"{prompt} {self._signs.arrow} {completion} tokens")
        if turn.finish_reason:
            notes.append(printable(turn.finish_reason))
        if turn.num_retries:
            notes.append(f"sent again {turn.num_retries} {self._signs.times}")
        return notes

    def _body(self, message: Mapping[str, Any], *, is_tool: bool) -> None:
        reasoning = message.get("reasoning_content")
        if reasoning:
            self._indent(str(reasoning), style="dim italic")
        content = _content_text(message.get("content"))
        if content:
            self._indent(_pretty_json(content) if is_tool else content)
        for call in message.get("tool_calls") or ():
            self._tool_call(call)

    def _tool_call(self, call: Mapping[str, Any]) -> None:
        function = call.get("function") or {}
        name = str(function.get("name") or "?")
        self._tool_names[str(call.get("id"))] = name
        line = Text(f"{self._signs.arrow} ", style="dim")
        line.append(printable(name), style="bold")
        room = self._console.width - 8 - len(name)
        arguments, problem = pretty_arguments(function.get("arguments"), width=room)
        if "\n" in arguments:
            self._print_indented(line)
            self._indent(arguments, by=6)
        else:
            self._print_indented(line.append(f" {printable(arguments)}"))
        if problem:
            self._indent(problem, style="red", by=6)

    def _indent(self, text: str, *, style: str = "", by: int = 4) -> None:
        self._print_indented(Text(printable(text), style=style), by=by)

    def _print_indented(self, text: Text, *, by: int = 4) -> None:
        text.overflow = "fold"
        self._console.print(Padding(text, (0, 0, 0, by), expand=False))


def render_turns(
    console: Console,
    *,
    messages: Sequence[Mapping[str, Any]],
    turns: Sequence[TurnRecord] = (),
    graders: Sequence[GraderRecord] = (),
    index: int = 0,
    reward: float | None = None,
) -> None:
    """Print a whole trajectory, then its rewards when there are `graders`.

    `index` is the trajectory's place in its group.
    """
    printer = ConversationPrinter(console)
    answers = _turns_by_message(messages, turns)
    caller: TurnRecord | None = None
    for place, message in enumerate(messages):
        if message.get("role") == "assistant":
            caller = answers.get(place)
            printer.message(message, turn=caller)
        else:
            is_tool = message.get("role") == "tool"
            printer.message(message, tools_of=caller if is_tool else None)
            caller = None
    if graders:
        printer.grades(graders, index=index, reward=reward)


def _turns_by_message(
    messages: Sequence[Mapping[str, Any]], turns: Sequence[TurnRecord]
) -> dict[int, TurnRecord]:
    """Map the place of each answer to its turn.

    Where the turns do not say, the last ``len(turns)`` assistant messages are their answers;
    earlier ones belong to the prompt.
    """
    if any(turn.answer_index is not None for turn in turns):
        return {turn.answer_index: turn for turn in turns if turn.answer_index is not None}
    places = [i for i, message in enumerate(messages) if message.get("role") == "assistant"]
    num_answers = min(len(places), len(turns))
    return dict(
        zip(places[len(places) - num_answers :], turns[len(turns) - num_answers :], strict=True)
    )


def pretty_arguments(arguments: object, *, width: int) -> tuple[str, str]:
    """Return a call's arguments, on one line if they fit into `width`, and what is wrong with them.

    >>> pretty_arguments('{"city": "Paris"}', width=40)
    ('(city="Paris")', '')
    """
    if not isinstance(arguments, str):
        return str(arguments), "the arguments are not a string"
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments, "the arguments are not JSON"
    if not isinstance(value, dict):
        is_double = isinstance(value, str) and value.lstrip().startswith("{")
        problem = "are JSON inside a JSON string" if is_double else "are not a JSON object"
        return arguments, f"the arguments {problem}"
    parts = (f"{key}={json.dumps(item, ensure_ascii=False)}" for key, item in value.items())
    line = f"({', '.join(parts)})"
    fits = len(line) <= width and "\n" not in line
    return line if fits else json.dumps(value, ensure_ascii=False, indent=2), ""


def _short_json(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_EXTRA_CHARS else f"{text[:_MAX_EXTRA_CHARS]}..."


def _pretty_json(text: str) -> str:
    """Indent a JSON object or list that is longer than a line; leave all other text alone."""
    if len(text) < _MAX_URL_CHARS or text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        return json.dumps(json.loads(text), ensure_ascii=False, indent=2)
    except (ValueError, RecursionError):
        return text


def _content_text(content: object) -> str:
    """Join the parts of a message; parts that are not text are named."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, (list, tuple)):
        return str(content)
    return "\n".join(_part_text(part) for part in content)


def _part_text(part: object) -> str:
    if not isinstance(part, Mapping):
        return str(part)
    kind = str(part.get("type") or "?")
    if kind == "text":
        return str(part.get("text") or "")
    detail = json.dumps(part.get(kind, ""), ensure_ascii=False)
    if len(detail) > _MAX_URL_CHARS:
        detail = f"{detail[:_MAX_URL_CHARS]}... ({len(detail)} characters)"
    return f"[{kind}: {detail}]"
