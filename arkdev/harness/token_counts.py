"""How many tokens a trajectory has, by each measure that there is: only token ids are exact.

Lengths are those of the trajectory, also of tokens that are masked (field case 3.4).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from arkdev.harness.contexts import policy_answers
from arkdev.job.prompts import prompt_texts
from arkdev.runs.records import TrajectoryRecord

CountTokens = Callable[[str], int]
"""Of a local tokenizer."""


class CountedBy(StrEnum):
    """Who counted; the better measure first."""

    TOKEN_IDS = "token ids"
    USAGE = "usage"
    """What the endpoint says of its answers and prompts; masks are not known."""
    TOKENIZER = "a local tokenizer"
    """The texts alone: no chat template, no reasoning that the endpoint does not show."""


@dataclass(frozen=True)
class TokenCount:
    """Of one trajectory, by one measure."""

    num_kept: int
    """Tokens that are trained on: with a loss weight that is not 0; else those of the answers."""
    kept_weight: float
    """The sum of their loss weights."""
    num_tokens: int | None
    """All of them, prompt and tools included; None: not known."""

    @property
    def num_masked(self) -> int | None:
        """Tokens that are not trained on."""
        return None if self.num_tokens is None else max(0, self.num_tokens - self.num_kept)


def token_counts(
    trajectory: TrajectoryRecord,
    *,
    loss_weight: Sequence[float] | None = None,
    count: CountTokens | None = None,
) -> Mapping[CountedBy, TokenCount]:
    """Return what is known; `loss_weight` comes with token ids, `count` is a local tokenizer."""
    found: dict[CountedBy, TokenCount] = {}
    if loss_weight is not None:
        num_kept = sum(1 for weight in loss_weight if weight)
        found[CountedBy.TOKEN_IDS] = TokenCount(
            num_kept, math.fsum(loss_weight), num_tokens=len(loss_weight)
        )
    if (of_usage := _of_usage(trajectory)) is not None:
        found[CountedBy.USAGE] = of_usage
    if count is not None:
        messages = trajectory.messages
        answers = [messages[place] for place in policy_answers(trajectory)]
        num_kept = texts_count(answers, count=count)
        found[CountedBy.TOKENIZER] = TokenCount(
            num_kept, float(num_kept), num_tokens=texts_count(messages, count=count)
        )
    return found


def texts_count(messages: Sequence[Mapping[str, object]], *, count: CountTokens) -> int:
    """Return the tokens of the texts of messages and tool calls, without a chat template."""
    return sum(count(text) for text in prompt_texts({"messages": list(messages)}))


def _of_usage(trajectory: TrajectoryRecord) -> TokenCount | None:
    answers = [turn.completion_tokens for turn in trajectory.turns]
    known = [number for number in answers if number is not None]
    if not known or len(known) < len(answers):
        return None
    prompt = trajectory.turns[-1].prompt_tokens
    whole = None if prompt is None else prompt + known[-1]
    num_kept = sum(known)
    # a history that was rewritten, or without its reasoning, is shorter than the answers were
    is_whole = whole is not None and whole >= num_kept
    return TokenCount(num_kept, float(num_kept), num_tokens=whole if is_whole else None)
