"""What it costs that plugins' own HTTP calls are measured (benchmarks/README.md).

python benchmarks/traffic.py                     the whole table
python benchmarks/traffic.py --calls 200 --rounds 2 --json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from arkdev.harness.services import ServiceMeter  # noqa: E402
from arkdev.observe.attempt import current_attempt  # noqa: E402
from arkdev.plugin.traffic.patches import traffic_through  # noqa: E402

BODY = {"query": "weather in Oslo", "limit": 5}


class _Attempt:
    """An attempt that keeps nothing."""

    name = "0.0"
    number = 1

    def note(self, code: str, detail: str = "") -> None:
        """Nothing."""

    def fault(self, *_: Any, **__: Any) -> None:
        """Nothing."""


async def _httpx(url: str, num_calls: int) -> None:
    import httpx

    async with httpx.AsyncClient() as client:
        for _ in range(num_calls):
            (await client.post(url, json=BODY)).json()


async def _httpx_sync(url: str, num_calls: int) -> None:
    import httpx

    with httpx.Client() as client:
        for _ in range(num_calls):
            client.post(url, json=BODY).json()  # noqa: ASYNC212 (a synchronous plugin does)


async def _aiohttp(url: str, num_calls: int) -> None:
    import aiohttp

    async with aiohttp.ClientSession() as session:
        for _ in range(num_calls):
            async with session.post(url, json=BODY) as response:
                await response.json()


async def _requests(url: str, num_calls: int) -> None:
    import requests

    with requests.Session() as session:
        for _ in range(num_calls):
            session.post(url, json=BODY).json()


LOOPS: dict[str, Callable[[str, int], Awaitable[None]]] = {
    "httpx, async": _httpx,
    "httpx, sync": _httpx_sync,
    "aiohttp": _aiohttp,
    "requests": _requests,
}


@dataclass(frozen=True)
class Row:
    """One library: the best of the rounds, which other work disturbed least."""

    library: str
    calls_per_s: float
    calls_per_s_measured: float
    ratio: float
    """Of the second to the first."""
    extra_us_per_call: float
    """CPU time."""


def measure(library: str, url: str, *, num_calls: int, num_rounds: int) -> Row:
    """Measure with and without in turns, so that a busy machine is fair to both."""
    walls: dict[bool, list[float]] = {False: [], True: []}
    cpus: dict[bool, list[float]] = {False: [], True: []}
    for round_ in range(num_rounds + 1):
        for is_measured in (False, True):
            with ExitStack() as stack:
                stack.enter_context(traffic_through([ServiceMeter()] if is_measured else []))
                token = current_attempt.set(_Attempt())
                stack.callback(current_attempt.reset, token)
                wall, cpu = time.perf_counter(), time.process_time()
                asyncio.run(_run(library, url, num_calls))
                if round_:  # the first one warms up
                    walls[is_measured].append(time.perf_counter() - wall)
                    cpus[is_measured].append(time.process_time() - cpu)
    without, measured = (num_calls / min(walls[each]) for each in (False, True))
    extra_s = min(cpus[True]) - min(cpus[False])
    return Row(library, without, measured, measured / without, extra_s / num_calls * 1e6)


async def _run(library: str, url: str, num_calls: int) -> None:
    await LOOPS[library](url, num_calls)


@contextmanager
def server() -> Iterator[str]:
    """Run the server of the other benchmarks, without its latency."""
    command = [sys.executable, str(HERE / "server.py"), "--latency-ms", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with server() as url:
        rows = [
            measure(library, url, num_calls=options.calls, num_rounds=options.rounds)
            for library in LOOPS
        ]
    if options.json:
        print(json.dumps([asdict(row) for row in rows]))
        return
    print(f"{'':14} {'calls/s':>9} {'measured':>9} {'ratio':>6} {'µs CPU more per call':>21}")
    for row in rows:
        print(
            f"{row.library:14} {row.calls_per_s:9.0f} {row.calls_per_s_measured:9.0f} "
            f"{row.ratio:6.2f} {row.extra_us_per_call:21.0f}"
        )


if __name__ == "__main__":
    main()
