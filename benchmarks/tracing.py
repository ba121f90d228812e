"""What tracing costs: rollouts per second with and without it, and whether a span is lost.

python benchmarks/tracing.py                        128 in flight, 50 and 500 ms of latency
python benchmarks/tracing.py --in-flight 32 --latencies-ms 200 --json

The ways are run `--rounds` times in turn. The ratio is the median of those of the rounds, each to
the run without tracing of the same round; the other columns are the best of the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from arkdev.harness.loop import new_event_loop  # noqa: E402
from arkdev_run import run_arkdev_in  # noqa: E402
from harness import chat_server  # noqa: E402
from server import TURNS  # noqa: E402

SPANS_PER_ROLLOUT = 1 + TURNS + 1
"""The attempt, its model calls, its grader."""
WAYS = ("off", "file", "otlp")


@dataclass(frozen=True)
class Measurement:
    """One way at one latency: the best of the rounds."""

    latency_ms: float
    way: str
    in_flight: int
    num_rollouts: int
    rollouts_per_s: float
    ratio: float
    """Of rollouts per second to those without tracing, the median of the rounds."""
    cpu_ms_per_rollout: float
    spans_expected: int
    spans_got: int


@contextmanager
def otlp_collector() -> Iterator[str]:
    """Run the tests' collector, yield its URL."""
    sys.path.insert(0, str(HERE.parent))
    from tests.integration.otlp_server import collector

    with collector() as running:
        yield running.url


def run_once(url: str, *, way: str, in_flight: int, num_rollouts: int) -> tuple[float, float, int]:
    """Return (seconds, CPU seconds, spans that arrived) of one run."""
    with tempfile.TemporaryDirectory() as name:
        work = run_arkdev_in(
            Path(name),
            url,
            in_flight=in_flight,
            num_rollouts=num_rollouts,
            is_async=True,
            trace=way == "file",
        )
        cpu, started = time.process_time(), time.perf_counter()
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            outcome = runner.run(work)
        wall_s, cpu_s = time.perf_counter() - started, time.process_time() - cpu
        traces = outcome.folder / "traces.jsonl"
        num_spans = len(traces.read_bytes().splitlines()) if traces.exists() else 0
        if way == "otlp":
            num_spans = outcome.tracing.counts[0].num_sent
    return wall_s, cpu_s, num_spans


def measure(
    url: str, *, latency_ms: float, in_flight: int, num_rollouts: int, rounds: int
) -> list[Measurement]:
    """Run every way `rounds` times in turn."""
    times: dict[str, list[tuple[float, float, int]]] = {way: [] for way in WAYS}
    with otlp_collector() as collector_url:
        for number in range(rounds + 1):
            for way in WAYS:
                if way == "otlp":
                    os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = collector_url
                count = num_rollouts if number else in_flight  # the first round warms up
                told = run_once(url, way=way, in_flight=in_flight, num_rollouts=count)
                os.environ.pop("OTEL_EXPORTER_OTLP_ENDPOINT", None)
                if number:
                    times[way].append(told)
    return [
        Measurement(
            latency_ms=latency_ms,
            way=way,
            in_flight=in_flight,
            num_rollouts=num_rollouts,
            rollouts_per_s=num_rollouts / min(wall for wall, _, _ in each),
            ratio=statistics.median(
                off / wall for (off, _, _), (wall, _, _) in zip(times["off"], each, strict=True)
            ),
            cpu_ms_per_rollout=min(cpu for _, cpu, _ in each) * 1e3 / num_rollouts,
            spans_expected=0 if way == "off" else num_rollouts * SPANS_PER_ROLLOUT,
            spans_got=min(got for _, _, got in each),
        )
        for way, each in times.items()
    ]


def print_table(measurements: list[Measurement]) -> None:
    """One block for each latency; the ratio is of rollouts per second to those without tracing."""
    for latency_ms in dict.fromkeys(m.latency_ms for m in measurements):
        rows = [m for m in measurements if m.latency_ms == latency_ms]
        print(f"\n{rows[0].in_flight} in flight, a model call takes {latency_ms:g} ms")
        print(f"{'':<8}{'rollouts/s':>11}{'ratio':>8}{'ms CPU':>9}{'expected':>10}{'got':>8}")
        for m in rows:
            print(
                f"{m.way:<8}{m.rollouts_per_s:>11.1f}{m.ratio:>8.3f}{m.cpu_ms_per_rollout:>9.2f}"
                f"{m.spans_expected:>10}{m.spans_got:>8}"
            )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--in-flight", type=int, default=128)
    parser.add_argument("--latencies-ms", default="50,500")
    parser.add_argument("--rollouts-per-slot", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    measurements: list[Measurement] = []
    for latency_ms in map(float, given.latencies_ms.split(",")):
        with chat_server(latency_ms=latency_ms) as url:
            measurements += measure(
                url,
                latency_ms=latency_ms,
                in_flight=given.in_flight,
                num_rollouts=given.in_flight * given.rollouts_per_slot,
                rounds=given.rounds,
            )
    document: list[dict[str, Any]] = [asdict(m) for m in measurements]
    print(json.dumps(document)) if given.json else print_table(measurements)


if __name__ == "__main__":
    main()
