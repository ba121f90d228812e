"""A teacher's endpoint is shown what the teacher would see, and its replies are kept (OPD-24).

This is for a person to read: whether the added context makes the teacher behave as it is meant to.
Where both endpoints give token ids and log probabilities, the documented advantage is computed of
the same trajectories (`arkdev.flows.distilling`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Any

from arkdev.endpoints.endpoint import Endpoint, ModelRequest
from arkdev.endpoints.spec import EndpointSpec
from arkdev.errors import EndpointError
from arkdev.flows.debug_checks import Lesson
from arkdev.flows.distilling import MAX_TURNS, distill
from arkdev.flows.opening import Opening, open_any
from arkdev.harness.advantages import Advantage
from arkdev.harness.contexts import policy_answers

_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Teaching:
    """A teacher's endpoint that is open."""

    endpoint: Endpoint
    max_in_flight: int

    async def ask(
        self,
        lessons: Sequence[Lesson],
        on_event: Callable[..., None],
        *,
        advantages: Mapping[str, Advantage],
        coefs: tuple[float, float] | None,
    ) -> None:
        """Ask for each turn of each lesson; an event ``teacher`` holds each reply or error.

        An event ``distilled`` holds what comes of the student's own tokens. `advantages` are the
        task's, by trajectory; `coefs` those of the formula.
        """
        slots = asyncio.Semaphore(self.max_in_flight)

        async def compare(lesson: Lesson) -> None:
            async with slots:
                found = await distill(
                    lesson,
                    self.endpoint,
                    task_advantage=advantages.get(lesson.record.trajectory_id),
                    coefs=coefs,
                )
            on_event("distilled", **asdict(found))

        async def turn(lesson: Lesson, number: int, prompt: list[dict[str, Any]]) -> None:
            reply, error = "", ""
            async with slots:
                try:
                    reply = await self._reply(prompt)
                except EndpointError as problem:
                    error = problem.message
            on_event(
                "teacher",
                trajectory_id=lesson.record.trajectory_id,
                teacher=lesson.context.reader,
                turn=number,
                reply=reply,
                error=error,
            )

        async with asyncio.TaskGroup() as tasks:
            for lesson in lessons:
                messages = lesson.record.messages
                answers = policy_answers(lesson.record)
                for number in range(min(len(answers), MAX_TURNS)):
                    prompt = lesson.context.prompt_of(messages, answers, number=number)
                    tasks.create_task(turn(lesson, number, prompt))
                tasks.create_task(compare(lesson))

    async def _reply(self, messages: list[dict[str, Any]]) -> str:
        body = {"model": self.endpoint.model, "messages": messages}
        answer = await self.endpoint.complete(ModelRequest(body))
        choices = answer.get("choices") or [{}]
        message = choices[0].get("message") or {}
        return str(message.get("content") or "")


@asynccontextmanager
async def teaching(
    spec: EndpointSpec | None, *, max_in_flight: int
) -> AsyncIterator[Teaching | None]:
    """Open the teacher's endpoint; None where the run has none.

    Raises `EndpointUnreachableError` when nothing listens there.
    """
    if spec is None:
        yield None
        return
    endpoint = await open_any(spec, Opening(max_in_flight=max_in_flight, timeout_s=_TIMEOUT_S))
    try:
        await endpoint.check_reachable()
        yield Teaching(endpoint, max_in_flight)
    finally:
        await endpoint.close()
