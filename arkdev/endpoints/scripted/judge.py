"""Judge a prediction against right answers, as LLM graders ask for it (SURFACE DEMO-24, DEMO-29).

The last user message names its parts by headings: a line of its own (``###正确答案###``,
``【预测答案】``, ``## Reference answer``) or the beginning of one (``Prediction: 42``). What a
prediction holds between delimiters (triple quotes, a fence, a tag and its end) is data, headings
and all; without them it is read like the rest of the prompt, as a model might.
"""

from __future__ import annotations

import ast
import json
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from arkdev.endpoints.scripted.schema import Schema, resolve

_MARKS = r"[#*【\[<>\]】\s\"']"
_KINDS = {
    "prediction": r"预测答案|预测|模型回答|模型答案|模型输出|考生答案|学生答案|待评估?答案|"
    r"predicted(?: answer)?|prediction|candidate(?: answer)?|response|model (?:answer|output)|"
    r"student answer|submission",
    "answers": r"正确答案|标准答案|参考答案|reference(?: answer)?s?|ground[ _-]?truth|"
    r"(?:correct|right|gold|expected) answers?|gold",
    "question": r"问题|题目|question|problem",
}
_HEADING = re.compile(
    rf"^{_MARKS}*(?:the )?(?:{'|'.join(f'(?P<{k}>{v})' for k, v in _KINDS.items())})"
    rf"(?:列表| list)?(?:{_MARKS}*[:：]{_MARKS}*(?P<rest>.*)|{_MARKS}*)$",
    re.IGNORECASE,
)
_BULLET = re.compile(r"^\s*(?:[-*•]|\d+[.)、])\s*")

_TAG = re.compile(r"<([A-Za-z_][\w-]*)>")
_FENCES = {'"""': '"""', "'''": "'''", "<<<": ">>>", "```": "```"}

_DELIMITER = re.compile(r"</?[A-Za-z_][\w-]*>|\"{3}|'{3}|<<<|>>>|```\w*")

_SEPARATOR = re.compile(r"[,，、;；/|\n]|\bor\b|或者?")
_SENTENCE_END = re.compile(r"[\n。!！?？]|\.(?=\s|$)")
_CLAIM = re.compile(r"[是为:：=]|\b(?:is|are|was|were)\b")
_FEWEST_GUESSES = 3
_MAX_GUESS_WORDS, _MAX_GUESS_CHARS = 4, 24

_RIGHT = ("正确", "对", "是", "correct", "right", "true", "yes", "pass", "equivalent")
_WRONG = (
    *("错误", "错", "不正确", "不对", "否", "incorrect", "wrong", "false", "no", "fail"),
    *("not correct", "not_correct", "not equivalent", "not_equivalent"),
)


@dataclass(frozen=True)
class Comparison:
    """What a judge's prompt compares."""

    answers: tuple[str, ...]
    prediction: str

    def matched(self) -> str | None:
        """The first right answer that the prediction contains, whatever its spelling.

        Guesses listed one after the other are no answer.
        """
        prediction = _plain(self.prediction)
        found = next((a for a in self.answers if _contains(prediction, _plain(a))), None)
        return None if found is None or _is_guess(found, self.prediction) else found


def read_comparison(prompt: str) -> Comparison | None:
    """Return the right answers and the prediction of a judge's prompt, None when it has not both.

    >>> read_comparison("【问题】\\n谁？\\n【正确答案】\\n['甲', '乙']\\n【预测答案】\\n是乙。")
    Comparison(answers=('甲', '乙'), prediction='是乙。')
    """
    sections: dict[str, list[str]] = {}
    current: list[str] = []
    lines = prompt.splitlines()
    end_of_data = 0
    for number, line in enumerate(lines):
        heading = _HEADING.match(line) if number >= end_of_data else None
        if number >= end_of_data and current is sections.get("prediction", ()):
            end_of_data = max(end_of_data, _end_of_data(lines, number, "answers" in sections))
        if heading is None:
            current.append(line)
            continue
        kind = next(kind for kind in _KINDS if heading[kind])
        current = sections.setdefault(kind, [])
        current += [heading["rest"]] if heading["rest"] else []
    if "prediction" not in sections or "answers" not in sections:
        return None
    answers = _listed("\n".join(sections["answers"]).strip())
    return Comparison(answers, "\n".join(sections["prediction"]).strip()) if answers else None


def _end_of_data(lines: Sequence[str], start: int, is_last: bool) -> int:
    """Return the number of the line that ends the data that `start` opens; 0 when it opens none.

    Where nothing is to come after it, the last such line counts: one inside is part of the data.
    """
    opening = lines[start].strip()
    tag = _TAG.fullmatch(opening)
    closing = f"</{tag[1]}>" if tag else _FENCES.get(opening[:3])
    rest = [n for n in range(start + 1, len(lines)) if lines[n].strip() == closing]
    return (rest[-1] if is_last else rest[0]) if rest else 0


def _is_guess(answer: str, prediction: str) -> bool:
    """Whether `answer` is one of several guesses: short items in a row, or the same words again."""
    text, plain = _decoded(prediction), _plain(answer)
    return _is_in_a_row(plain, text) or _is_said_of_others(plain, text)


def _is_in_a_row(answer: str, text: str) -> bool:
    """Whether three short items or more stand one after the other, and `answer` is one."""
    run: list[str] = []
    for part in (*_SEPARATOR.split(text), ""):
        item = _BULLET.sub("", part).strip(" .。?？!！*()（）")
        is_short = len(item.split()) <= _MAX_GUESS_WORDS and len(item) <= _MAX_GUESS_CHARS
        if item and is_short and not _CLAIM.search(item):
            run.append(_plain(item))
            continue
        if len(set(run)) >= _FEWEST_GUESSES and any(_contains(i, answer) for i in run):
            return True
        if item:
            run = []
    return False


def _is_said_of_others(answer: str, text: str) -> bool:
    """Whether a line or sentence that gives `answer` gives something else in the same words."""
    sentences = [_plain(sentence) for sentence in _SENTENCE_END.split(text)]
    for before, found, after in (sentence.partition(answer) for sentence in sentences):
        others = [s for s in sentences if answer not in s and len(s) > len(before + after)]
        if found and before and any(s.startswith(before) and s.endswith(after) for s in others):
            return True
    return False


def _decoded(text: str) -> str:
    """The text with its lines that are JSON strings read."""
    return "\n".join(map(_decoded_line, text.splitlines()))


def _decoded_line(line: str) -> str:
    try:
        value = json.loads(line)
    except ValueError:
        return line
    return value if isinstance(value, str) else line


def verdict_members(schema: Schema, root: Schema) -> tuple[str, str] | None:
    """Return the members for "right" and for "wrong" of the first enum property that has both."""
    for part in (schema.get("properties") or {}).values():
        members = [m for m in resolve(part, root).get("enum") or [] if isinstance(m, str)]
        right = next((m for m in members if m.lower() in _RIGHT), None)
        wrong = next((m for m in members if m.lower() in _WRONG), None)
        if right is not None and wrong is not None:
            return right, wrong
    return None


def rationale(verdict: str, matched: str | None, *, is_chinese: bool) -> str:
    """Return a sentence that begins with the verdict and says what it rests on."""
    if is_chinese:
        seen = "没有任何一个标准答案" if matched is None else f"有标准答案 {matched}"
        return f"{verdict}：预测的内容里{seen}"
    seen = "none of the references" if matched is None else f"the reference {matched}"
    return f"{verdict}: the prediction has {seen}"


def _listed(text: str) -> tuple[str, ...]:
    """A list as Python or JSON writes it, or one answer a line."""
    if text.startswith("["):
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            value = None
        if isinstance(value, list):
            return tuple(str(item) for item in value if str(item).strip())
    lines = (_BULLET.sub("", line).strip() for line in text.splitlines())
    return tuple(line for line in lines if line and not _DELIMITER.fullmatch(line))


def _plain(text: str) -> str:
    """Full width to half width, lower case, no white space."""
    return "".join(unicodedata.normalize("NFKC", text).lower().split())


def _contains(text: str, answer: str) -> bool:
    """Whether `answer` is in `text`, 26 not being in 126 nor in 26.5."""
    if not answer:
        return False
    before = r"(?<![\d.])" if answer[0].isdigit() else ""
    after = r"(?![\d]|\.\d)" if answer[-1].isdigit() else ""
    return re.search(before + re.escape(answer) + after, text) is not None
