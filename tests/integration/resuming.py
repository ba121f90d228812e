"""A test of plugins in a process of its own, which can be killed at any moment."""

from __future__ import annotations

import asyncio
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from arkdev.flows.test_plan import plan_test
from arkdev.flows.test_plugin import run_test
from arkdev.flows.test_request import PluginTestRequest
from tests.integration.workspace import Silent

SLOW_IMPORTS = (
    __name__,
    "arkdev.endpoints.scripted.endpoint",
    "arkdev.endpoints.scripted.server",
    "arkdev.plugin.clients",
    "arkdev.sessions.gateway",
    "openai.resources.chat.completions",
    "openai.resources.responses",
)
"""Done once, in the server that the processes are forked from, so that each begins at once."""

ROLLOUT = """
    import asyncio
    from arkdev import PluginStatus, RolloutResult, rollout

    @rollout
    async def answer(context, proxy, sample):
        client = proxy.async_rollout_client()
        question = sample.messages[0].content
        for _ in range(2):
            await asyncio.sleep(0.004)
            completion = await client.chat.completions.create(
                model="m", messages=sample.model_dump()["messages"]
            )
        if question.endswith("6?"):
            return RolloutResult(status=PluginStatus.DISCARD, error="not this one")
        if question.endswith("5?"):
            raise ValueError("broken")
        return RolloutResult(extra={"text": completion.choices[0].message.content})
"""
GRADER = """
    import asyncio, re
    from arkdev import single_grader

    @single_grader
    async def one(context, sample, trajectory):
        await asyncio.sleep(0.004)
        a, b = map(int, re.findall(r"[0-9]+", sample.messages[0].content))
        return float(str(a + b) in trajectory.extra["text"])
"""
QUESTIONS = tuple(f"What is 1{number} plus {number}?" for number in range(12))
NUM_GENERATIONS = 3
REQUEST: dict[str, Any] = {
    "num_generations": NUM_GENERATIONS,
    "concurrency": 4,
    "seed": 11,
    "skill": 0.6,
}


def run_here(root: Path, out: Path, begun: Connection, *, is_resumed: bool) -> None:
    """Start a run in `out`, or go on with the one there; tell `begun` when it begins."""
    if is_resumed:
        request = PluginTestRequest(start=root, resume=str(out))
    else:
        request = PluginTestRequest(start=root, out=out, **REQUEST)
    plan = plan_test(request)
    begun.send(None)
    asyncio.run(run_test(plan, Silent()))
