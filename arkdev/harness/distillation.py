"""The advantage of on-policy distillation, in plain Python (SURFACE OPD-09..12).

For a trained token with the student's and the teacher's natural log probabilities s and t of it::

    A = task_reward_coef * task_advantage - kl_reward_coef * (s - t)

`topk` of 0 and 1 both mean this path, over the sampled token alone (OPD-27).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from arkdev.errors import PluginResultError


def opd_advantages(
    task_advantage: float | Sequence[float],
    *,
    student_logprobs: Sequence[float],
    teacher_logprobs: Sequence[float],
    task_reward_coef: float,
    kl_reward_coef: float,
) -> list[float]:
    """Return the advantage of each token; the task's is one for all of them, or one for each.

    Raises `PluginResultError` when the lengths differ or a log probability is no finite number: a
    token that the teacher cannot say has no advantage, and none is made up.

    >>> opd_advantages(
    ...     1.0,
    ...     student_logprobs=[-1.0, -1.0],
    ...     teacher_logprobs=[-1.0, -3.0],
    ...     task_reward_coef=1.0,
    ...     kl_reward_coef=0.5,
    ... )
    [1.0, 0.0]
    """
    num_tokens = len(student_logprobs)
    of_task = (
        [task_advantage] * num_tokens if isinstance(task_advantage, int | float) else task_advantage
    )
    for name, values in (("teacher_logprobs", teacher_logprobs), ("task advantages", of_task)):
        if len(values) != num_tokens:
            raise PluginResultError(f"{len(values)} {name} for {num_tokens} student_logprobs")
    for name, values in (("student", student_logprobs), ("teacher", teacher_logprobs)):
        bad = next((i for i, value in enumerate(values) if not math.isfinite(value)), None)
        if bad is not None:
            raise PluginResultError(f"{name}_logprobs[{bad}] is {values[bad]}, no finite number")
    return [
        task_reward_coef * task - kl_reward_coef * (student - teacher)
        for task, student, teacher in zip(of_task, student_logprobs, teacher_logprobs, strict=True)
    ]
