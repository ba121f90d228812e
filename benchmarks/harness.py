"""Rollouts per second of arkdev against bare loops over other clients (benchmarks/README.md).

python benchmarks/harness.py                     the whole table
python benchmarks/harness.py --in-flight 512 --variants raw,endpoint
python benchmarks/harness.py --memory            resident memory over 10,000 rollouts
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import clients  # noqa: E402
from arkdev.harness.loop import new_event_loop  # noqa: E402
from server import TURNS  # noqa: E402

HEARTBEAT_S = 0.01
MIN_ROLLOUTS = 16

Run = Callable[..., Awaitable[None]]
"""`run(url, *, in_flight, num_rollouts)`: perform the rollouts, `in_flight` at a time."""


def bare_loop(client: Callable[..., Any]) -> Run:
    """A run that drives `client` with one task per slot and nothing else."""

    async def run(url: str, *, in_flight: int, num_rollouts: int) -> None:
        left = iter(range(num_rollouts))

        async def slot(complete: clients.Complete) -> None:
            for _ in left:
                if await clients.bare_rollout(complete) != TURNS:
                    raise RuntimeError("a rollout had the wrong number of turns")

        async with client(url, in_flight) as complete, asyncio.TaskGroup() as group:
            for _ in range(in_flight):
                group.create_task(slot(complete))

    return run


def arkdev_harness(*, is_async: bool) -> Run:
    """A run of arkdev's own harness, with grading and the run folder."""

    async def run(url: str, *, in_flight: int, num_rollouts: int) -> None:
        from arkdev_run import run_arkdev

        await run_arkdev(url, in_flight=in_flight, num_rollouts=num_rollouts, is_async=is_async)

    return run


VARIANTS: dict[str, tuple[str, Run]] = {
    "openai": ("(b) bare loop, AsyncOpenAI", bare_loop(clients.openai_default)),
    "openai-aiohttp": ("(c) bare loop, AsyncOpenAI + aiohttp", bare_loop(clients.openai_aiohttp)),
    "raw": ("(d) bare loop, raw aiohttp", bare_loop(clients.raw_aiohttp)),
    "endpoint": ("(d') bare loop, arkdev endpoint", bare_loop(clients.remote_endpoint)),
    "arkdev": ("(e) arkdev, async plugin", arkdev_harness(is_async=True)),
    "arkdev-sync": ("(f) arkdev, sync plugin", arkdev_harness(is_async=False)),
}


@dataclass(frozen=True)
class Measurement:
    """One variant at one number in flight."""

    variant: str
    in_flight: int
    num_rollouts: int
    wall_s: float
    cpu_ms_per_call: float
    lag_p99_ms: float

    @property
    def rollouts_per_s(self) -> float:
        """Rollouts finished per second of wall time."""
        return self.num_rollouts / self.wall_s


@asynccontextmanager
async def loop_lag() -> AsyncIterator[list[float]]:
    """Yield a list that fills with how late each heartbeat of the running loop was, in ms."""
    lags: list[float] = []

    async def beat() -> None:
        while True:
            due = time.perf_counter() + HEARTBEAT_S
            await asyncio.sleep(HEARTBEAT_S)
            lags.append((time.perf_counter() - due) * 1000)

    task = asyncio.create_task(beat())
    try:
        yield lags
    finally:
        task.cancel()


async def measure(variant: str, *, url: str, in_flight: int, num_rollouts: int) -> Measurement:
    """Run one variant once, after a short warm-up."""
    run = VARIANTS[variant][1]
    await run(url, in_flight=min(in_flight, 8), num_rollouts=8)
    gc.collect()
    cpu, start = time.process_time(), time.perf_counter()
    async with loop_lag() as lags:
        await run(url, in_flight=in_flight, num_rollouts=num_rollouts)
    wall_s = time.perf_counter() - start
    cpu_s = time.process_time() - cpu
    return Measurement(
        variant=variant,
        in_flight=in_flight,
        num_rollouts=num_rollouts,
        wall_s=wall_s,
        cpu_ms_per_call=cpu_s * 1000 / (num_rollouts * TURNS),
        lag_p99_ms=statistics.quantiles(lags, n=100)[98] if len(lags) > 1 else 0.0,
    )


def run_on_its_loop(variant: str, work: Coroutine[Any, Any, Any]) -> Any:
    """Run `work` on the loop that `arkdev` makes for itself, or on the standard one."""
    factory = new_event_loop if variant.startswith("arkdev") else None
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(work)


@contextmanager
def chat_server(*, latency_ms: float) -> Iterator[str]:
    """Start server.py in another process, yield its URL, end it."""
    process = subprocess.Popen(
        [sys.executable, str(HERE / "server.py"), "--latency-ms", str(latency_ms)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait(10)
        if process.stdout is not None:
            process.stdout.close()


def print_table(measurements: list[Measurement], *, latency_ms: float) -> None:
    """One block for each number in flight; ratios are of rollouts per second."""
    heading = f"{'':<38}{'rollouts/s':>11}{'calls/s':>9}{'× (b)':>7}{'× (c)':>7}"
    for in_flight in sorted({m.in_flight for m in measurements}):
        ideal = in_flight / (TURNS * latency_ms / 1000)
        print(f"\n{in_flight} in flight\n{heading}{'ms CPU/call':>13}{'lag p99 ms':>12}")
        print(f"{'(a) ideal':<38}{ideal:>11.1f}{ideal * TURNS:>9.0f}")
        row = {m.variant: m for m in measurements if m.in_flight == in_flight}
        for name, m in row.items():
            ratios = "".join(
                f"{m.rollouts_per_s / row[base].rollouts_per_s:>7.2f}"
                if base in row
                else f"{'':>7}"
                for base in ("openai", "openai-aiohttp")
            )
            speed = f"{m.rollouts_per_s:>11.1f}{m.rollouts_per_s * TURNS:>9.0f}"
            rest = f"{m.cpu_ms_per_call:>13.2f}{m.lag_p99_ms:>12.1f}"
            print(f"{VARIANTS[name][0]:<38}{speed}{ratios}{rest}")


def resident_mb() -> float:
    """Resident memory of this process, in MiB."""
    pages = Path("/proc/self/statm")
    if pages.exists():
        return int(pages.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20
    shown = subprocess.run(
        ["ps", "-o", "rss=", "-p", str(os.getpid())], capture_output=True, text=True, check=True
    )
    return int(shown.stdout) / 1024


def measure_memory(variant: str, *, url: str, num_rollouts: int) -> list[tuple[int, float]]:
    """Resident memory after each tenth of the rollouts (each a run of its own), 128 in flight."""
    run = VARIANTS[variant][1]
    points = []
    for tenth in range(1, 11):
        run_on_its_loop(variant, run(url, in_flight=128, num_rollouts=num_rollouts // 10))
        gc.collect()
        points.append((tenth * num_rollouts // 10, resident_mb()))
    return points


def print_memory(variant: str, points: list[tuple[int, float]]) -> None:
    """The growth from the first tenth on: caches are full by then."""
    print(f"\nresident memory, {VARIANTS[variant][0]}")
    for num_rollouts, megabytes in points:
        print(f"{num_rollouts:>8} rollouts {megabytes:>9.1f} MiB")
    print(f"growth {points[-1][1] - points[0][1]:+.1f} MiB ({points[-1][1] / points[0][1]:.2f} ×)")


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--in-flight", default="1,32,128,512")
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument("--latency-ms", type=float, default=50.0)
    parser.add_argument("--rollouts-per-slot", type=int, default=3)
    parser.add_argument("--memory", action="store_true", help="memory instead of speed")
    parser.add_argument("--memory-rollouts", type=int, default=10_000)
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")
    arguments = parser.parse_args()
    unknown = set(arguments.variants.split(",")) - set(VARIANTS)
    if unknown:
        parser.error(f"unknown variants {sorted(unknown)}; there are {', '.join(VARIANTS)}")
    return arguments


def main() -> None:
    """Run what the command line says and print it."""
    arguments = parse_arguments()
    variants = arguments.variants.split(",")
    latency_ms = 1.0 if arguments.memory else arguments.latency_ms
    with chat_server(latency_ms=latency_ms) as url:
        if arguments.memory:
            variant = "arkdev" if "arkdev" in variants else variants[-1]
            points = measure_memory(variant, url=url, num_rollouts=arguments.memory_rollouts)
            print_memory(variant, points)
            return
        measurements = [
            run_on_its_loop(
                variant,
                measure(
                    variant,
                    url=url,
                    in_flight=in_flight,
                    num_rollouts=max(MIN_ROLLOUTS, in_flight * arguments.rollouts_per_slot),
                ),
            )
            for in_flight in map(int, arguments.in_flight.split(","))
            for variant in variants
        ]
    if arguments.json:
        print(json.dumps([asdict(m) for m in measurements], indent=2))
    else:
        print_table(measurements, latency_ms=latency_ms)


if __name__ == "__main__":
    main()
