"""What a teacher gives the student's own tokens, read from an answer with ``prompt_logprobs``.

vLLM, asked for ``prompt_logprobs`` and ``return_token_ids``, says of each token of a prompt how
probable it was. The prompt is the conversation as the teacher sees it, with the student's answer at
its end. The student's tokens are looked for in it by their ids. Where they are not there, one after
the other, the teacher has read other tokens than the student wrote (another vocabulary, or a text
that is tokenised otherwise when it is read), and nothing can be said (decision 8).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from arkdev.errors import PluginResultError
from arkdev.harness.advantages import Advantage
from arkdev.harness.distillation import opd_advantages

REQUEST_FIELDS: Mapping[str, Any] = {
    "prompt_logprobs": 0,
    "return_token_ids": True,
    "add_generation_prompt": False,
}
"""What is asked for beside the messages; 0: of the prompt's own tokens alone."""


@dataclass(frozen=True)
class Spread:
    """Of the tokens of a trajectory."""

    mean: float
    min: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Return that of one value at least."""
        return cls(math.fsum(values) / len(values), min(values), max(values))


@dataclass(frozen=True)
class Distilled:
    """One trajectory beside its teacher; `problem` says why there are no numbers."""

    trajectory_id: str
    num_tokens: int = 0
    gap: Spread | None = None
    """Of student's minus teacher's log probability."""
    advantages: Spread | None = None
    """Of the documented formula; None without its coefficients or without a task advantage."""
    problem: str = ""


def answer_spans(loss_weight: Sequence[float]) -> list[range]:
    """Return where the student's answers stand among the tokens of a trajectory."""
    spans, start = [], 0
    for is_kept, run in groupby(loss_weight, key=bool):
        end = start + len(list(run))
        if is_kept:
            spans.append(range(start, end))
        start = end
    return spans


def logprobs_of(ids: Sequence[int], answer: Mapping[str, Any]) -> list[float]:
    """Return the teacher's log probability of each of the student's tokens, the last time they are
    in its prompt.

    Raises `PluginResultError` when the answer says nothing of them.
    """
    prompt, logprobs = answer.get("prompt_token_ids"), answer.get("prompt_logprobs")
    if not isinstance(prompt, list) or not isinstance(logprobs, list):
        raise PluginResultError("the teacher's endpoint gives no prompt_logprobs with token ids")
    if len(prompt) != len(logprobs):
        raise PluginResultError(f"{len(logprobs)} prompt_logprobs for {len(prompt)} tokens")
    wanted = list(ids)
    for start in range(len(prompt) - len(wanted), -1, -1):
        if prompt[start : start + len(wanted)] == wanted:
            places = range(start, start + len(wanted))
            return [_logprob(logprobs[place], prompt[place]) for place in places]
    raise PluginResultError("the teacher does not read the student's tokens as they were written")


def _logprob(entry: Any, token: int) -> float:
    found = entry.get(str(token)) if isinstance(entry, Mapping) else None
    value = found.get("logprob") if isinstance(found, Mapping) else None
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise PluginResultError(f"the teacher gives token {token} no finite log probability")
    return float(value)


def distilled(
    trajectory_id: str,
    *,
    student: Sequence[float],
    teacher: Sequence[float],
    task_advantage: Advantage | None,
    coefs: tuple[float, float] | None,
) -> Distilled:
    """Return what the formula says; `coefs` are those of the task's reward and of the KL part."""
    gap = Spread.of([s - t for s, t in zip(student, teacher, strict=True)])
    advantages = None
    if coefs is not None and task_advantage is not None:
        values = opd_advantages(
            task_advantage,
            student_logprobs=student,
            teacher_logprobs=teacher,
            task_reward_coef=coefs[0],
            kl_reward_coef=coefs[1],
        )
        advantages = Spread.of(values)
    return Distilled(trajectory_id, len(student), gap, advantages)
