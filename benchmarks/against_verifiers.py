"""Rollouts per second of arkdev against verifiers, on one server (benchmarks/README.md).

python benchmarks/against_verifiers.py --in-flight 8,32,128

verifiers is installed into .cache/verifiers, an environment of its own, on the first run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import harness

REQUIREMENT = "verifiers==0.4.0"
ENVIRONMENT = harness.HERE.parent / ".cache" / "verifiers"
TIMEOUT_S = 900


def python_with_verifiers() -> Path:
    """Return the interpreter that has verifiers; make its environment when there is none."""
    python = ENVIRONMENT / "bin" / "python"
    mark = ENVIRONMENT / REQUIREMENT
    if not mark.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(ENVIRONMENT)], check=True)
        command = [str(python), "-m", "pip", "install", "--quiet", REQUIREMENT]
        subprocess.run(command, check=True, timeout=TIMEOUT_S)
        mark.touch()
    return python


def measure_verifiers(
    python: Path, *, url: str, in_flight: int, num_rollouts: int
) -> dict[str, Any]:
    """Run verifiers_loop.py in its own environment."""
    options = ["--url", url, "--in-flight", str(in_flight), "--rollouts", str(num_rollouts)]
    done = subprocess.run(
        [str(python), "-c", "import verifiers_loop; verifiers_loop.main()", *options],
        cwd=harness.HERE,
        check=True,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Measure both, one after the other, and print the ratio of rollouts per second."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--in-flight", default="8,32,128")
    parser.add_argument("--latency-ms", type=float, default=50.0)
    parser.add_argument("--rollouts-per-slot", type=int, default=3)
    arguments = parser.parse_args()
    python = python_with_verifiers()
    print(f"{'in flight':>9}{'arkdev':>10}{'verifiers':>11}{'ratio':>7}   ms CPU/call of each")
    with harness.chat_server(latency_ms=arguments.latency_ms) as url:
        for in_flight in map(int, arguments.in_flight.split(",")):
            num_rollouts = max(harness.MIN_ROLLOUTS, in_flight * arguments.rollouts_per_slot)
            work = harness.measure(
                "arkdev", url=url, in_flight=in_flight, num_rollouts=num_rollouts
            )
            ours = harness.run_on_its_loop("arkdev", work)
            theirs = measure_verifiers(
                python, url=url, in_flight=in_flight, num_rollouts=num_rollouts
            )
            ratio = ours.rollouts_per_s / theirs["rollouts_per_s"]
            print(
                f"{in_flight:>9}{ours.rollouts_per_s:>10.1f}{theirs['rollouts_per_s']:>11.1f}"
                f"{ratio:>7.1f}   {ours.cpu_ms_per_call:.2f}, {theirs['cpu_ms_per_call']:.2f}"
            )


if __name__ == "__main__":
    main()
