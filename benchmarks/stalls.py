"""What it costs to watch a run that does not stall (benchmarks/README.md).

python benchmarks/stalls.py
python benchmarks/stalls.py --in-flight 512 --pairs 8
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import statistics
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from arkdev.harness.stall_watch import StallWatch  # noqa: E402
from arkdev.sessions.background import BackgroundLoop  # noqa: E402
from arkdev_run import run_arkdev  # noqa: E402
from harness import chat_server, run_on_its_loop  # noqa: E402
from server import TURNS  # noqa: E402

THRESHOLDS_S = {"off": 0.0, "on": None}
"""None is the default."""


def measure(
    url: str, *, in_flight: int, num_rollouts: int, threshold_s: float | None
) -> dict[str, float]:
    """Run arkdev's harness once; rollouts per second and CPU time per model call."""
    gc.collect()
    cpu_s, started = time.process_time(), time.perf_counter()
    run_on_its_loop(
        "arkdev",
        run_arkdev(
            url,
            in_flight=in_flight,
            num_rollouts=num_rollouts,
            is_async=True,
            stall_threshold_s=threshold_s,
        ),
    )
    wall_s = time.perf_counter() - started
    cpu_ms = (time.process_time() - cpu_s) * 1000 / (num_rollouts * TURNS)
    return {"rollouts_per_s": num_rollouts / wall_s, "cpu_ms_per_call": cpu_ms}


async def idle_cpu_s(seconds: float, *, is_watched: bool) -> float:
    """CPU seconds of the process in each second in which its loops have nothing to do."""
    background = BackgroundLoop()
    background.start()
    watch = StallWatch(0.1)
    if is_watched:
        watch.start(background.loop)
    before_s = time.process_time()
    await asyncio.sleep(seconds)
    used_s = time.process_time() - before_s
    if is_watched:
        watch.stop()
    background.stop()
    return used_s / seconds


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--in-flight", type=int, default=128)
    parser.add_argument("--rollouts-per-slot", type=int, default=6)
    parser.add_argument("--pairs", type=int, default=6, help="runs of each, in turn")
    parser.add_argument("--idle-s", type=float, default=5.0)
    parser.add_argument("--latency-ms", type=float, default=50.0)
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")
    return parser.parse_args()


def main() -> None:
    """Run both in turn; medians, and the ratio of each pair."""
    arguments = parse_arguments()
    num_rollouts = arguments.in_flight * arguments.rollouts_per_slot
    found: dict[str, list[dict[str, float]]] = {name: [] for name in THRESHOLDS_S}
    with chat_server(latency_ms=arguments.latency_ms) as url:
        measure(url, in_flight=8, num_rollouts=16, threshold_s=None)  # imports, caches
        for number in range(arguments.pairs):
            names = list(THRESHOLDS_S) if number % 2 else list(THRESHOLDS_S)[::-1]
            for name in names:
                found[name].append(
                    measure(
                        url,
                        in_flight=arguments.in_flight,
                        num_rollouts=num_rollouts,
                        threshold_s=THRESHOLDS_S[name],
                    )
                )
    medians = {
        name: {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        for name, runs in found.items()
    }
    ratio = statistics.median(
        on["cpu_ms_per_call"] / off["cpu_ms_per_call"]
        for on, off in zip(found["on"], found["off"], strict=True)
    )
    idle_ms = {}
    for name in THRESHOLDS_S:
        idle = idle_cpu_s(arguments.idle_s, is_watched=name == "on")
        idle_ms[name] = 1000 * run_on_its_loop("arkdev", idle)
    if arguments.json:
        document = {**medians, "cpu_ratio": ratio, "idle_ms_per_s": idle_ms}
        print(json.dumps(document, indent=2))
        return
    runs = f"{arguments.pairs} runs of {num_rollouts} rollouts each"
    print(f"{arguments.in_flight} in flight, {runs}")
    print(f"{'watch':<8}{'rollouts/s':>12}{'ms CPU/call':>14}")
    for name, row in medians.items():
        print(f"{name:<8}{row['rollouts_per_s']:>12.1f}{row['cpu_ms_per_call']:>14.3f}")
    print(f"CPU on / off, median of the pairs: {ratio:.3f}")
    print(f"idle, ms of CPU per second: off {idle_ms['off']:.1f}, on {idle_ms['on']:.1f}")


if __name__ == "__main__":
    main()
