"""A grader as a function, for `faas.py`: its workspace, its pool, and calls that are timed."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from arkdev.faas_emulator.choices import InstanceKind
from arkdev.faas_emulator.instance_client import HttpInstanceClient
from arkdev.faas_emulator.pool import Pool, PoolEvents
from arkdev.flows.faas_instances import instance_source
from arkdev.flows.faas_plan import FaasPlan
from arkdev.flows.faas_up import UpRequest, plan_up

WORK = """
def reward_of(document):
    text = document["trajectory"]["messages"][-1]["content"]
    return float(sum(map(ord, text)) % 7) / 6
"""
PLUGIN = """
from arkdev import PluginInstance, Runtime, single_grader
from plugins.work import reward_of


@single_grader(runtime=Runtime(max_concurrency=%d, max_replicas=%d))
async def grade(context, sample, trajectory):
    return reward_of({"trajectory": {"messages": [{"content": trajectory.messages[-1].content}]}})
"""
SERVED = """
import functions_framework
from plugins.work import reward_of


@functions_framework.http
def grade(request):
    return {"result": reward_of(request.get_json())}
"""
BODY = {
    "context": {},
    "sample": {"messages": [{"role": "user", "content": "12 + 7 = ?"}]},
    "trajectory": {
        "messages": [
            {"role": "user", "content": "12 + 7 = ?"},
            {"role": "assistant", "content": "nineteen"},
        ]
    },
}
DATA = json.dumps(BODY).encode()


def write_workspace(root: Path, *, max_concurrency: int = 100, max_replicas: int = 1) -> None:
    """A workspace with one grader."""
    (root / "plugins").mkdir()
    (root / "plugins" / "__init__.py").write_text("", encoding="utf-8")
    (root / "plugins" / "work.py").write_text(WORK, encoding="utf-8")
    (root / "plugins" / "bench.py").write_text(
        PLUGIN % (max_concurrency, max_replicas), encoding="utf-8"
    )
    (root / "main.py").write_text(SERVED, encoding="utf-8")
    (root / "requirements.txt").write_text("", encoding="utf-8")
    (root / "arkworkspace.toml").write_text("", encoding="utf-8")


def planned(root: Path, kind: InstanceKind) -> FaasPlan:
    """The grader as a function."""
    return plan_up(UpRequest(start=root, functions=("plugins.bench:grade",), kind=kind))


@asynccontextmanager
async def opened(root: Path) -> AsyncIterator[tuple[Pool, HttpInstanceClient]]:
    """A pool of the grader in child processes."""
    plan = planned(root, InstanceKind.PROCESS)
    async with instance_source(plan, say=lambda _: None) as source:
        assert source is not None
        (function,) = plan.functions
        launcher = (await source.launcher_for([function.spec])).launcher
        client = HttpInstanceClient()
        pool = Pool(function.spec, launcher, client, PoolEvents())
        try:
            yield pool, client
        finally:
            await pool.close()
            await client.close()
            await launcher.close()


async def timed(call: Callable[[], Awaitable[Any]]) -> float:
    """Return the seconds of one call."""
    started = time.perf_counter()
    await call()
    return time.perf_counter() - started


def wait_until_it_answers(url: str, *, within_s: float) -> None:
    """Ask until an answer comes."""
    until = time.monotonic() + within_s
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while True:
        try:
            opener.open(url, timeout=1).close()
            return
        except urllib.error.HTTPError:
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)
