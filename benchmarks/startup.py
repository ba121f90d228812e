"""How long `arkdev --version` and `arkdev --help` take, as ratios to a bare interpreter start."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

RUNS = 10
COMMANDS = {
    "python -c pass": (["-c", "pass"], None),
    "arkdev --version": (["-m", "arkdev", "--version"], 4.0),
    "arkdev --help": (["-m", "arkdev", "--help"], 12.0),
}
"""What is run -> (arguments, the largest ratio that is accepted)."""


def median_s(arguments: list[str]) -> float:
    """Median wall time of `RUNS` starts, after one that fills the caches."""
    times = []
    for _ in range(RUNS + 1):
        start = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def main() -> int:
    """Print the table; 1 when a ratio is missed."""
    print(f"{'':<20}{'median ms':>10}{'ratio':>7}{'at most':>9}")
    base_s, is_missed = 0.0, False
    for name, (arguments, at_most) in COMMANDS.items():
        seconds = median_s(arguments)
        base_s = base_s or seconds
        ratio = seconds / base_s
        limit = "" if at_most is None else f"{at_most:g}"
        print(f"{name:<20}{seconds * 1000:>10.1f}{ratio:>7.1f}{limit:>9}")
        is_missed = is_missed or (at_most is not None and ratio > at_most)
    return int(is_missed)


if __name__ == "__main__":
    sys.exit(main())
