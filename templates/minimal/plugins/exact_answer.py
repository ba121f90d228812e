"""Grader: is the last number of the reply the right one?

Reward: 1.0 when it is, 0.0 when it is another number or there is none.
"""

import re

from arkdev import (
    ChatCompletionSample,
    PluginContext,
    PluginStatus,
    SingleGraderResult,
    Trajectory,
    single_grader,
)

# a minus sign counts only where no digit stands before it: "3-5" ends in 5, not in -5
NUMBER = re.compile(r"(?<!\d)-?\d+")


def last_number(text: str) -> int | None:
    """Return the last integer in `text`, or None."""
    numbers = NUMBER.findall(text)
    return int(numbers[-1]) if numbers else None


@single_grader
def exact_answer(
    context: PluginContext,
    sample: ChatCompletionSample,
    trajectory: Trajectory,
) -> SingleGraderResult:
    """Score one trajectory against `extra.answer` of its sample."""
    answer = (sample.extra or {}).get("answer")
    if answer is None:
        # without an answer there is nothing to score: drop the sample, do not call it wrong
        return SingleGraderResult(
            status=PluginStatus.DISCARD, error="the sample has no extra.answer"
        )

    number = last_number(trajectory.messages[-1].content or "")
    return SingleGraderResult(
        reward=1.0 if number == int(answer) else 0.0,
        metrics={"has_number": float(number is not None)},
    )
