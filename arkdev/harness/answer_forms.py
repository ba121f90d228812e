"""The forms in which a reply may give its answer: ``\\boxed{42}``, ``#### 42``, tags, JSON.

Graders expect a form that only their author knows. It is found by trying: the forms that the
prompt shows, then those in common use.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from arkdev.harness.reference_answers import mentions


@dataclass(frozen=True)
class Form:
    """A reply with slots for the answer; between two `parts` stands the answer."""

    parts: tuple[str, ...]
    is_json: bool = False
    """The answer stands in a JSON document."""

    def fill(self, answer: str) -> str:
        """Return the reply that gives `answer`."""
        return (json.dumps(answer, ensure_ascii=False) if self.is_json else answer).join(self.parts)

    @property
    def opening(self) -> str:
        """What is said before the answer."""
        return self.parts[0]

    @property
    def is_plain(self) -> bool:
        """Whether a reply is the answer and nothing else."""
        return not any(self.parts)


BARE = Form(("", ""))
_THOUGHT = "Let me work it out."

COMMON_FORMS = (
    BARE,
    Form(("The answer is ", ".")),
    Form(("Answer: ", "")),
    Form(("ANSWER: ", "")),
    Form(("Final answer: ", "")),
    Form(("Final Answer: ", "")),
    Form(("#### ", "")),
    Form(("\\boxed{", "}")),
    Form(("<answer>", "</answer>")),
    Form((f"<think>{_THOUGHT}</think>", "")),
    Form((f"<think>{_THOUGHT}</think>\n<answer>", "</answer>")),
    Form((f"<think>\n{_THOUGHT}\n</think>\n<answer>\n", "\n</answer>")),
    Form((f"<think>{_THOUGHT}</think>\n\\boxed{{", "}")),
    Form((f"<think>{_THOUGHT}</think>\nThe answer is \\boxed{{", "}.")),
    Form(('{"answer": ', "}"), is_json=True),
    Form(("```json\n", "\n```")),
    Form(("```\n", "\n```")),
    Form(("**", "**")),
    Form(("(", ")")),
    Form(("[[", "]]")),
    Form(("答案：", "")),
    Form(("答案是", "。")),
    Form(("最终答案：", "")),
)

_TAG = re.compile(r"<([A-Za-z_][\w-]*)>")
_QUOTED = re.compile(r"[`'\"“”‘’「『]([^`'\"“”‘’」』\n]{2,80})[`'\"“”‘’」』]")
_PLACEHOLDER = re.compile(
    r"<[^<>\n]{1,40}>|\[[^\[\]\n]{1,40}\]|\{[^{}\n]{0,40}\}|(?:\b[XNY]|\.{3}|…|_{2,})$|[\w'-]+$"
)
_LINE = re.compile(
    r"([A-Z\u4e00-\u9fff][\w \u4e00-\u9fff]{0,24}[:：=]\s*|#{2,4}\s+)"
    r"(?:<[^<>\n]{1,40}>|\[[^\[\]\n]{1,40}\]|\{[^{}\n]{0,40}\}|[XNY]\b|\.{3}|…|_{2,})"
)
_JSON_KEYS = re.compile(r"\"(\w+)\"\s*[:：]")
_ANSWER_KEYS = ("answer", "final_answer", "result", "label", "choice", "output", "response", "答案")


def forms_of_prompt(prompt: str) -> tuple[Form, ...]:
    """Return the forms that a prompt asks for, as far as it shows them."""
    return tuple(dict.fromkeys((*_of_tags(prompt), *_of_json(prompt), *_of_fragments(prompt))))


def forms_to_try(prompt: str) -> tuple[Form, ...]:
    """Return the forms in which a grader may want the answer, the bare answer first."""
    return tuple(dict.fromkeys((BARE, *forms_of_prompt(prompt), *COMMON_FORMS)))


def form_of_reply(reply: str, answer: str) -> Form | None:
    """Return the form of a reply that gives `answer`; None when the answer is not in it."""
    if not answer or not mentions(reply, answer):
        return None
    parts = re.split(re.escape(answer), reply, flags=re.IGNORECASE)
    return Form(tuple(parts)) if len(parts) > 1 else None


def _of_tags(prompt: str) -> Iterator[Form]:
    names = list(dict.fromkeys(_TAG.findall(prompt)))
    closed = [name for name in names if f"</{name}>" in prompt] or names
    for name in closed:
        yield Form((f"<{name}>", f"</{name}>"))
    if len(closed) > 1:
        slot = next((n for n in closed if n.lower() in _ANSWER_KEYS), closed[-1])
        place = closed.index(slot)
        before, after = (
            [f"<{name}>{_THOUGHT}</{name}>" for name in names]
            for names in (closed[:place], closed[place + 1 :])
        )
        yield Form(("\n".join([*before, f"<{slot}>"]), "\n".join([f"</{slot}>", *after])))


def _of_json(prompt: str) -> Iterator[Form]:
    keys = list(dict.fromkeys(_JSON_KEYS.findall(prompt)))
    if not keys:
        return
    slot = next((key for key in keys if key.lower() in _ANSWER_KEYS), keys[-1])
    mark = "\0"
    text = json.dumps({key: mark if key == slot else _THOUGHT for key in keys}, ensure_ascii=False)
    before, _, after = text.partition(json.dumps(mark))
    yield Form((before, after), is_json=True)
    yield Form((f"```json\n{before}", f"{after}\n```"), is_json=True)


def _of_fragments(prompt: str) -> Iterator[Form]:
    fragments = [match[1].strip() for match in _QUOTED.finditer(prompt)]
    for fragment in fragments:
        found = list(_PLACEHOLDER.finditer(fragment))
        if not found or _TAG.fullmatch(fragment):
            continue
        before, after = fragment[: found[-1].start()], fragment[found[-1].end() :]
        if found[-1].group().startswith("{"):  # \boxed{}: the braces stay
            before, after = f"{before}{{", f"}}{after}"
        if before or after:
            yield Form((before, after))
            yield Form((f"{_THOUGHT}\n{before}", after))
    for match in _LINE.finditer(prompt):
        yield Form((match[1], ""))
        yield Form((f"{_THOUGHT}\n{match[1]}", ""))
