"""The student's own tokens beside a teacher's, where both endpoints give log probabilities."""

from __future__ import annotations

from typing import Any

from arkdev.endpoints.endpoint import Endpoint, ModelRequest
from arkdev.errors import EndpointError, PluginResultError
from arkdev.flows.debug_checks import Lesson
from arkdev.harness.advantages import Advantage
from arkdev.harness.contexts import policy_answers
from arkdev.harness.teacher_logprobs import (
    REQUEST_FIELDS,
    Distilled,
    answer_spans,
    distilled,
    logprobs_of,
)
from arkdev.job.job import Job

MAX_TURNS = 8
"""Of a trajectory's turns so many are shown to the teacher, the first ones."""


def coefficients(job: Job) -> tuple[float, float] | None:
    """Return `task_reward_coef` and `kl_reward_coef`; None where the job leaves one open.

    No document gives a default of them.
    """
    task, kl = (job.hyperparameters.get(f"{of}_reward_coef") for of in ("task", "kl"))
    if isinstance(task, int | float) and isinstance(kl, int | float):
        return float(task), float(kl)
    return None


async def distill(
    lesson: Lesson,
    teacher: Endpoint,
    *,
    task_advantage: Advantage | None,
    coefs: tuple[float, float] | None,
) -> Distilled:
    """Ask the teacher for the probabilities of the tokens of a trajectory's first turns."""
    name, evidence = lesson.record.trajectory_id, lesson.evidence
    if evidence is None:
        return Distilled(name, problem="the student's endpoint gives no token ids")
    if not teacher.capabilities.has_token_evidence:
        return Distilled(
            name, problem="the teacher's endpoint is not defined with has_token_evidence = true"
        )
    answers = policy_answers(lesson.record)
    spans = answer_spans(evidence.loss_weight)
    if len(spans) != len(answers):
        return Distilled(name, problem="the answers cannot be told apart among the tokens")
    places: list[int] = []
    found: list[float] = []
    try:
        for number, span in list(enumerate(spans))[:MAX_TURNS]:
            body = _body(lesson, teacher, number=number)
            answer = await teacher.complete(ModelRequest(body, sampling={"max_new_tokens": 1}))
            found += logprobs_of([evidence.token_ids[place] for place in span], answer)
            places += span
        task = task_advantage
        if isinstance(task, tuple):
            task = tuple(task[place] for place in places)
        return distilled(
            name,
            student=[evidence.logprobs[place] for place in places],
            teacher=found,
            task_advantage=task,
            coefs=coefs,
        )
    except (EndpointError, PluginResultError) as problem:
        return Distilled(name, problem=problem.message)


def _body(lesson: Lesson, teacher: Endpoint, *, number: int) -> dict[str, Any]:
    messages, answers = lesson.record.messages, policy_answers(lesson.record)
    prompt = lesson.context.prompt_of(messages, answers, number=number)
    answer = messages[answers[number]]
    return {"model": teacher.model, "messages": [*prompt, answer], **REQUEST_FIELDS}
