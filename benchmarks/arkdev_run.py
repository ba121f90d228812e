"""arkdev's own harness as a variant of harness.py: `arkdev test plugin` without its display."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from arkdev.flows.test_plan import plan_test
from arkdev.flows.test_plugin import PluginTestOutcome, run_test
from arkdev.flows.test_request import PluginTestRequest
from clients import PROMPT, TOOLS

PLUGINS = """
from arkdev import SingleGraderResult, rollout, single_grader


@rollout
async def with_async(context, proxy, sample):
    client = proxy.async_rollout_client()
    messages, tools = [m.model_dump() for m in sample.messages], sample.tools
    while True:
        completion = await client.chat.completions.create(
            model="bench", messages=messages, tools=tools
        )
        message = completion.choices[0].message
        messages.append(message.model_dump())
        if not message.tool_calls:
            return None
        for call in message.tool_calls:
            messages.append({"role": "tool", "tool_call_id": call.id, "content": "sunny"})


@rollout
def with_sync(context, proxy, sample):
    client = proxy.rollout_client()
    messages, tools = [m.model_dump() for m in sample.messages], sample.tools
    while True:
        completion = client.chat.completions.create(model="bench", messages=messages, tools=tools)
        message = completion.choices[0].message
        messages.append(message.model_dump())
        if not message.tool_calls:
            return None
        for call in message.tool_calls:
            messages.append({"role": "tool", "tool_call_id": call.id, "content": "sunny"})


@single_grader
def grade(context, sample, trajectory):
    return SingleGraderResult(reward=1.0)
"""


class Silent:
    """An observer that shows nothing."""

    def on_start(self, plan: Any, folder: Path) -> None:
        """Nothing."""

    def on_progress(self, text: str) -> None:
        """Nothing."""

    def on_turn(self, session: Any) -> None:
        """Nothing."""

    def on_attempt(self, *_: Any) -> None:
        """Nothing."""

    def on_warning(self, text: str) -> None:
        """Nothing."""

    def on_stall(self, record: Any) -> None:
        """Nothing."""

    def on_log(self, line: Any) -> None:
        """Nothing."""

    def on_rollout(self, finished: Any) -> None:
        """Nothing."""

    def on_group(self, record: Any) -> None:
        """Nothing."""


async def run_arkdev(
    url: str,
    *,
    in_flight: int,
    num_rollouts: int,
    is_async: bool,
    stall_threshold_s: float | None = None,
) -> None:
    """(e), (f) run, grade and write down the rollouts of an async or a sync plugin."""
    with tempfile.TemporaryDirectory() as name:
        await run_arkdev_in(
            Path(name),
            url,
            in_flight=in_flight,
            num_rollouts=num_rollouts,
            is_async=is_async,
            stall_threshold_s=stall_threshold_s,
        )


async def run_arkdev_in(  # noqa: PLR0913 (what a benchmark varies)
    root: Path,
    url: str,
    *,
    in_flight: int,
    num_rollouts: int,
    is_async: bool,
    trace: bool = False,
    stall_threshold_s: float | None = None,
) -> PluginTestOutcome:
    """Do that in a workspace at `root`, which is empty; every rollout must succeed."""
    write_workspace(root, num_samples=num_rollouts)
    request = PluginTestRequest(
        start=root,
        rollout=f"plugins.bench:{'with_async' if is_async else 'with_sync'}",
        graders=("plugins.bench:grade",),
        data=(root / "data.jsonl",),
        concurrency=in_flight,
        endpoint=url,
        model="bench",
        trace=trace,
        stall_threshold_s=stall_threshold_s,
    )
    outcome = await run_test(plan_test(request), Silent())
    if outcome.exit_code != 0 or outcome.summary.num_rollouts != num_rollouts:
        raise RuntimeError(f"not every rollout succeeded: {outcome.summary}")
    return outcome


def write_workspace(root: Path, *, num_samples: int) -> None:
    """A workspace with the plugins above and one line of data for each sample."""
    (root / "plugins").mkdir()
    (root / "plugins" / "bench.py").write_text(PLUGINS, encoding="utf-8")
    line = json.dumps({"messages": PROMPT, "tools": TOOLS}) + "\n"
    (root / "data.jsonl").write_text(line * num_samples, encoding="utf-8")
