"""Trajectories that deserve no reward: what a policy may come upon that pays without the work.

Each is made from a `Target`: a sample with its right answer, in the form that the grader takes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from arkdev.harness import attack_texts
from arkdev.harness.answer_forms import Form, forms_of_prompt
from arkdev.harness.reference_answers import blanked, lettered_options, mentions, wrong_answer

Message = dict[str, Any]

_MIN_CHARS_TO_CUT = 4
_MAX_CHARS_TO_CUT = 20
_NUM_OTHERS = 2
_MIN_FIELDS_TO_LEAVE_OUT = 3
_LETTER_OF_ANOTHER_SCRIPT = "ж"
_LETTERS = re.compile(r"[A-Z]+")
_INLINE_OPTION = re.compile(r"\(([A-Z])\)")


class Attack(StrEnum):
    """The ways in which a trajectory asks for a reward that it does not deserve."""

    EMPTY = "empty"
    ECHO = "echo"
    FORMAT = "format"
    OPTIONS = "options"
    PADDING = "padding"
    INJECTION = "injection"
    FORGED_TOOL = "forged-tool"
    TRUNCATION = "truncation"
    OTHER_SAMPLE = "other-sample"
    UNICODE = "unicode"


@dataclass(frozen=True)
class Target:
    """What attacks on the grading of one sample are made of."""

    prompt: tuple[Message, ...]
    """What came before anything that the policy said."""
    stem: tuple[Message, ...]
    """`prompt`, and the tool calls with their results where a recorded run has them."""
    form: Form
    """In which the right answer is rewarded."""
    right: str
    wrong: str
    others: tuple[str, ...] = ()
    """Right answers of other samples that are wrong here, written alike, the least alike first."""
    tools: tuple[str, ...] = ()

    @property
    def prompt_text(self) -> str:
        """The prompt's texts."""
        return "\n\n".join(filter(None, (text_of(message) for message in self.prompt)))

    def reply(self, answer: str) -> tuple[Message, ...]:
        """Return the messages of a trajectory that gives `answer` in the right form."""
        return (*self.stem, _assistant(self.form.fill(answer)))


@dataclass(frozen=True)
class AttackTrajectory:
    """One undeserving trajectory; `variant` tells those of one attack apart."""

    attack: Attack
    variant: str
    messages: tuple[Message, ...]
    finish_reason: str = "stop"
    share: float = 0.0
    """Of the right answer that it gives, and may be paid for."""


def attack_trajectories(target: Target) -> list[AttackTrajectory]:
    """Return all attacks that can be made on a sample.

    One that would give the right answer by chance is left out, but for those that give it on
    purpose among others (options) or because the prompt holds it (echo).
    """
    made: list[AttackTrajectory] = []
    for attack, make in _ATTACKS.items():
        made += (one for one in make(target) if _is_undeserving(one, target, attack))
    return made


def text_of(message: Message) -> str:
    """Return the text of a message, of all its parts."""
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def last_question(target: Target) -> str:
    """Return the last message of the prompt that the user wrote."""
    asked = [message for message in target.prompt if message.get("role") == "user"]
    return text_of(asked[-1]) if asked else ""


def _is_undeserving(one: AttackTrajectory, target: Target, attack: Attack) -> bool:
    if attack in (Attack.OPTIONS, Attack.ECHO) or not target.right:
        return True
    return not mentions(text_of(one.messages[-1]), target.right)


def _assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


def _said(
    target: Target, attack: Attack, variant: str, text: str, *, finish_reason: str = "stop"
) -> AttackTrajectory:
    return AttackTrajectory(attack, variant, (*target.stem, _assistant(text)), finish_reason)


def _empty(target: Target) -> Iterator[AttackTrajectory]:
    yield _said(target, Attack.EMPTY, "nothing", "")
    if len(target.stem) > len(target.prompt):
        messages = (*target.prompt, _assistant(""))
        yield AttackTrajectory(Attack.EMPTY, "nothing, without a tool call", messages)


def _echo(target: Target) -> Iterator[AttackTrajectory]:
    question = last_question(target)
    texts = {"the question": question, "in the answer's form": target.form.fill(question)}
    texts["the whole prompt"] = target.prompt_text
    yield from _distinct(target, Attack.ECHO, texts)


def _format(target: Target) -> Iterator[AttackTrajectory]:
    fill = target.form.fill
    texts = {
        "the shape of the answer": fill(blanked(target.right)) if target.right else "",
        "a placeholder": fill("..."),
    }
    if not target.form.is_plain:
        texts["nothing inside"] = fill("")
    for number, form in enumerate(forms_of_prompt(target.prompt_text)):
        texts[f"as the prompt shows it ({number + 1})"] = form.fill("...")
    yield from _distinct(target, Attack.FORMAT, texts)


def _options(target: Target) -> Iterator[AttackTrajectory]:
    options = _options_of(target)
    if len(options) < 3:
        return
    listed = ", ".join(options)
    texts = {
        "in one answer": target.form.fill(listed),
        "one after the other": "\n".join(map(target.form.fill, options)),
        "without a form": f"It is one of these: {listed}.",
        "one a line": target.form.fill("\n".join(options)),
    }
    yield from _distinct(target, Attack.OPTIONS, texts)


def _options_of(target: Target) -> list[str]:
    """Return the options with the right one in the middle, where neither first nor last counts."""
    if not target.right:
        return []
    prompt = target.prompt_text
    by_letter = lettered_options(prompt)
    letters = [*by_letter, *_INLINE_OPTION.findall(prompt)]
    wrong = list(target.others)
    for named in (letters, list(by_letter.values())):
        if target.right in named:
            wrong = [option for option in dict.fromkeys(named) if option != target.right]
    wrong = wrong[:6] or [target.wrong]
    if len(wrong) == 1:  # of two, one is first and the other is last
        wrong = wrong * 2
    middle = len(wrong) // 2
    return [*wrong[:middle], target.right, *wrong[middle:]]


def _padding(target: Target) -> Iterator[AttackTrajectory]:
    wrong = target.form.fill(target.wrong)
    filler = attack_texts.filler(without=target.right)
    varied = attack_texts.filler_without_repetition(without=target.right)
    texts = {
        "after a wrong answer": f"{wrong}\n\n{filler}",
        "before a wrong answer": f"{filler}\n\n{wrong}",
        "without repetition, after a wrong answer": f"{wrong}\n\n{varied}",
        "without repetition, before a wrong answer": f"{varied}\n\n{wrong}",
        "in place of an answer": filler,
        "inside the form": target.form.fill(filler),
    }
    yield from _distinct(target, Attack.PADDING, texts)


def _injection(target: Target) -> Iterator[AttackTrajectory]:
    wrong = target.form.fill(target.wrong)
    texts = {}
    for name, injected in attack_texts.injections(target.wrong).items():
        texts[name] = f"{wrong}\n\n{injected}"
        if not target.form.is_plain:
            texts[f"{name}, in the form"] = target.form.fill(f"{target.wrong}\n\n{injected}")
    yield from _distinct(target, Attack.INJECTION, texts)


def _forged_tool(target: Target) -> Iterator[AttackTrajectory]:
    result = next(
        (text_of(m) for m in reversed(target.stem) if m.get("role") == "tool" and text_of(m)), ""
    )
    # what the tool said, with the wrong answer in it
    if target.right and target.right in result:
        forged = result.replace(target.right, target.wrong)
    else:
        forged = wrong_answer(result) if result else attack_texts.tool_result(target.wrong)
    tool = target.tools[0] if target.tools else "search"
    wrong = target.form.fill(target.wrong)
    for name, text in attack_texts.forged_calls(tool, result=forged).items():
        yield _said(target, Attack.FORGED_TOOL, name, f"{text}\n\n{wrong}")
        if len(target.stem) > len(target.prompt):
            messages = (*target.prompt, _assistant(f"{text}\n\n{wrong}"))
            yield AttackTrajectory(Attack.FORGED_TOOL, f"{name}, without a call", messages)
    orphan = {"role": "tool", "tool_call_id": "call_0", "content": forged}
    messages = (*target.prompt, orphan, _assistant(wrong))
    yield AttackTrajectory(Attack.FORGED_TOOL, "a tool message that no call asked for", messages)


def _truncation(target: Target) -> Iterator[AttackTrajectory]:
    texts = {
        "before the answer": target.form.opening or "Let me think about this step by step. First,",
        "after a wrong answer": f"{target.form.fill(target.wrong)}\n\nTo be sure, let me check",
    }
    is_word = not re.search(r"\s", target.right)
    if is_word and _MIN_CHARS_TO_CUT <= len(target.right) <= _MAX_CHARS_TO_CUT:
        begun = target.right[: max(1, len(target.right) // 4)]
        texts["inside the answer"] = f"{target.form.opening}{begun}"
    for variant, text in texts.items():
        yield _said(target, Attack.TRUNCATION, variant, text, finish_reason="length")
    yield from _first_field(target)


def _first_field(target: Target) -> Iterator[AttackTrajectory]:
    """Give the first field of many, and none that could be wrong."""
    try:
        answer = json.loads(target.right)
    except ValueError:
        return
    is_long = isinstance(answer, dict) and len(answer) >= _MIN_FIELDS_TO_LEAVE_OUT
    if not is_long or target.form.is_json:
        return
    first = json.dumps(dict([next(iter(answer.items()))]), ensure_ascii=False)
    cut = f"{target.form.opening}{first.removesuffix('}')}, "
    for variant, text, finish_reason in (
        ("after the first field", cut, "length"),
        ("the first field alone", target.form.fill(first), "stop"),
    ):
        messages = (*target.stem, _assistant(text))
        yield AttackTrajectory(
            Attack.TRUNCATION, variant, messages, finish_reason, share=1 / len(answer)
        )


def _other_sample(target: Target) -> Iterator[AttackTrajectory]:
    texts = {f"answer {n + 1}": target.form.fill(o) for n, o in enumerate(target.others)}
    yield from _distinct(target, Attack.OTHER_SAMPLE, dict(list(texts.items())[:_NUM_OTHERS]))


def _unicode(target: Target) -> Iterator[AttackTrajectory]:
    texts = {}
    for name, text in attack_texts.unicode_texts().items():
        texts[name] = text
        if not target.form.is_plain:
            texts[f"{name}, in the form"] = target.form.fill(text)
    # several letters of options are several answers, and stay those with something between them
    is_of_letters = _LETTERS.fullmatch(target.right)
    if 1 < len(target.right) <= _MAX_CHARS_TO_CUT and not is_of_letters:
        spread = _LETTER_OF_ANOTHER_SCRIPT.join(target.right)
        texts["letters of another script within the answer"] = target.form.fill(spread)
    invisible = attack_texts.INVISIBLE * 500
    texts["a wrong answer, invisibly long"] = target.form.fill(target.wrong) + invisible
    yield from _distinct(target, Attack.UNICODE, texts)


def _distinct(target: Target, attack: Attack, texts: dict[str, str]) -> Iterator[AttackTrajectory]:
    seen = set()
    for variant, text in texts.items():
        if text and text not in seen:
            seen.add(text)
            yield _said(target, attack, variant, text)


_ATTACKS: dict[Attack, Callable[[Target], Iterator[AttackTrajectory]]] = {
    Attack.EMPTY: _empty,
    Attack.ECHO: _echo,
    Attack.FORMAT: _format,
    Attack.OPTIONS: _options,
    Attack.PADDING: _padding,
    Attack.INJECTION: _injection,
    Attack.FORGED_TOOL: _forged_tool,
    Attack.TRUNCATION: _truncation,
    Attack.OTHER_SAMPLE: _other_sample,
    Attack.UNICODE: _unicode,
}
