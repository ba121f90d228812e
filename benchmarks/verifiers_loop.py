"""The benchmark's rollout as a harness of verifiers; runs in the environment of its own that
against_verifiers.py makes. Prints one JSON object.

verifiers lets a harness run its loop in-process when every model call goes to the endpoint that it
is handed. That is its shortest way: no program is started, and the loop itself is raw aiohttp.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from importlib.metadata import version
from typing import Any

import aiohttp
import verifiers.v1 as vf
from verifiers.v1.runtimes import (
    ProgramResult,
    SubprocessConfig,
)

from clients import PROMPT, TIMEOUT_S, TOOLS, bare_rollout
from server import TURNS

__all__ = ["LoopHarness"]

shared_session: aiohttp.ClientSession | None = None
"""One for all rollouts. verifiers makes the harness, so it cannot be handed one."""


class LoopHarness(vf.Harness[vf.HarnessConfig]):
    """Three model calls with a tool between them, as in the other variants."""

    APPENDS_SYSTEM_PROMPT = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(  # noqa: PLR0913 (verifiers' signature)
        self,
        ctx: Any,
        trace: Any,
        runtime: Any,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: Any,
    ) -> ProgramResult:
        """Run the loop against the rollout's endpoint."""
        assert shared_session is not None
        session = shared_session
        headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}

        async def complete(messages: list[dict[str, Any]]) -> dict[str, Any]:
            body = json.dumps({"model": "bench", "messages": messages, "tools": TOOLS}).encode()
            async with session.post(
                f"{endpoint}/chat/completions", data=body, headers=headers
            ) as response:
                answer = json.loads(await response.read())
            message: dict[str, Any] = answer["choices"][0]["message"]
            return message

        if await bare_rollout(complete) != TURNS:
            return ProgramResult(1, "", "the rollout had the wrong number of turns")
        return ProgramResult(0, "", "")


class BenchTask(vf.Task[vf.TaskData]):
    """The prompt of the other variants, and a constant reward."""

    @vf.reward
    async def one(self, trace: Any) -> float:
        """Give every rollout 1."""
        return 1.0


async def run(agent: Any, *, in_flight: int, num_rollouts: int) -> None:
    """Run the rollouts, `in_flight` at a time; every one must succeed with its three turns."""
    left = iter(range(num_rollouts))

    async def slot() -> None:
        for index in left:
            trace = await agent.run(BenchTask(vf.TaskData(idx=index, prompt=PROMPT)))
            if not trace.ok or trace.num_turns != TURNS:
                raise RuntimeError(f"a rollout failed: {trace.errors}, {trace.num_turns} turns")

    async with asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(slot())


async def measure(url: str, *, in_flight: int, num_rollouts: int) -> None:
    """Warm up, run, and print rollouts per second and CPU time per call."""
    global shared_session
    config = vf.AgentConfig(
        harness={"id": "verifiers_loop"},
        runtime=SubprocessConfig(),
        model="bench",
        client=vf.EvalClientConfig(base_url=url, api_key_var="ARKDEV_BENCH_NO_KEY"),
    )
    async with (
        aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=in_flight),
            timeout=aiohttp.ClientTimeout(total=TIMEOUT_S),
        ) as shared_session,
        vf.make_agent(config) as agent,
    ):
        await run(agent, in_flight=min(8, in_flight), num_rollouts=8)
        cpu, start = time.process_time(), time.perf_counter()
        await run(agent, in_flight=in_flight, num_rollouts=num_rollouts)
        wall_s, cpu_s = time.perf_counter() - start, time.process_time() - cpu
    print(
        json.dumps(
            {
                "version": version("verifiers"),
                "rollouts_per_s": num_rollouts / wall_s,
                "cpu_ms_per_call": cpu_s * 1000 / (num_rollouts * TURNS),
            }
        )
    )


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--in-flight", type=int, required=True)
    parser.add_argument("--rollouts", type=int, required=True)
    given = parser.parse_args()
    asyncio.run(measure(given.url, in_flight=given.in_flight, num_rollouts=given.rollouts))
