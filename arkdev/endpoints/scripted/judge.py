"""Judge a prediction against right answers, as LLM graders ask for it (SURFACE DEMO-24, DEMO-29).

The last user message names its parts by headings: a line of its own (``###正确答案###``,
``【预测答案】``, ``## Reference answer``) or the beginning of one (``Prediction: 42``).
"""

from __future__ import annotations

import ast
import re
import unicodedata
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
        """The first right answer that the prediction contains, whatever its spelling."""
        prediction = _plain(self.prediction)
        return next((a for a in self.answers if _contains(prediction, _plain(a))), None)


def read_comparison(prompt: str) -> Comparison | None:
    """Return the right answers and the prediction of a judge's prompt, None when it has not both.

    >>> read_comparison("【问题】\\n谁？\\n【正确答案】\\n['甲', '乙']\\n【预测答案】\\n是乙。")
    Comparison(answers=('甲', '乙'), prediction='是乙。')
    """
    sections: dict[str, list[str]] = {}
    current: list[str] = []
    for line in prompt.splitlines():
        heading = _HEADING.match(line)
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
    return tuple(line for line in lines if line)


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
