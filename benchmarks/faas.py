"""What functions in instances cost (benchmarks/README.md).

python benchmarks/faas.py
python benchmarks/faas.py --parts overhead,scale --json

functions-framework is installed into .cache/functions-framework, an environment of its own, on the
first run. The parts cold and rebuild need a container engine, and are skipped without one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from arkdev.errors import EngineError, MissingExtraError  # noqa: E402
from arkdev.faas_emulator.gateway import FunctionGateway  # noqa: E402
from arkdev.faas_emulator.instance_client import HttpInstanceClient  # noqa: E402
from benchmarks.faas_containers import measure_cold, measure_rebuild  # noqa: E402
from benchmarks.faas_forecast import measure_forecasts  # noqa: E402
from benchmarks.faas_workspace import (  # noqa: E402
    BODY,
    DATA,
    WORK,
    opened,
    timed,
    wait_until_it_answers,
    write_workspace,
)

PARTS = ("overhead", "cold", "rebuild", "throughput", "scale", "forecast")
REQUIREMENT = "functions-framework==3.8.2"
ENVIRONMENT = ROOT / ".cache" / "functions-framework"
_SLOW_S = 4.0


async def measure_overhead(root: Path, options: argparse.Namespace) -> dict[str, Any]:
    """One warm call after the other, three ways in turns: bare, through the pool, by its door."""
    write_workspace(root)
    async with opened(root) as (pool, client):
        await pool.invoke(BODY, request_id="first")
        (live,) = pool._live.values()
        gateway = FunctionGateway({"grade": pool})
        url = await gateway.start(host="127.0.0.1", port=0)
        ways: dict[str, Callable[[], Awaitable[Any]]] = {
            "bare": lambda: client.post(live.instance.url, DATA, request_id="r"),
            "pool": lambda: pool.invoke(BODY, request_id="r"),
            "front door": lambda: client.post(f"{url}/grade", DATA, request_id="r"),
        }
        taken: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(options.calls):
            for way, call in ways.items():
                taken[way].append(await timed(call))
        await gateway.stop()
    p50 = {way: statistics.median(values) * 1000 for way, values in taken.items()}
    return {
        "bare_ms": p50["bare"],
        "pool_over_bare_ms": p50["pool"] - p50["bare"],
        "front_door_over_bare_ms": p50["front door"] - p50["bare"],
        "ratio": p50["front door"] / p50["bare"],
        "aim": "front door at most 5 ms over bare",
        "is_met": p50["front door"] - p50["bare"] <= 5,
    }


async def measure_throughput(root: Path, options: argparse.Namespace) -> dict[str, Any]:
    """One instance and functions-framework with the same work, in turns; the best of each."""
    python = await asyncio.to_thread(python_with_functions_framework)
    write_workspace(root)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    served = await asyncio.to_thread(_serve_with_functions_framework, python, root, port)
    url = f"http://127.0.0.1:{port}/"
    best = {"instance": 0.0, "functions-framework": 0.0}
    try:
        await asyncio.to_thread(wait_until_it_answers, url, within_s=30)
        async with opened(root) as (pool, client):
            first = await pool.invoke(BODY, request_id="first")
            (live,) = pool._live.values()
            other = await client.post(url, DATA, request_id="r")
            ours = first.document["result"]["reward"]
            if ours != other.document["result"]:
                raise RuntimeError(f"two functions: {ours} and {other.document}")
            targets = {"instance": live.instance.url, "functions-framework": url}
            for _ in range(options.rounds):
                for name, target in targets.items():
                    rate = await _rate(client, target, options)
                    best[name] = max(best[name], rate)
    finally:
        os.killpg(served.pid, 9)
        served.wait()
    ratio = best["instance"] / best["functions-framework"]
    return {
        "instance_per_s": best["instance"],
        "functions_framework_per_s": best["functions-framework"],
        "ratio": ratio,
        "aim": "at least as many",
        "is_met": ratio >= 1,
    }


def _serve_with_functions_framework(python: Path, root: Path, port: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [
            *(str(python), "-m", "functions_framework", "--target", "grade"),
            *("--host", "127.0.0.1", "--port", str(port)),
        ],
        cwd=root,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


async def _rate(client: HttpInstanceClient, url: str, options: argparse.Namespace) -> float:
    async def calls() -> None:
        for _ in range(options.calls // options.in_flight):
            answer = await client.post(url, DATA, request_id="r")
            assert answer.status == 200, answer

    took_s = await timed(lambda: asyncio.gather(*(calls() for _ in range(options.in_flight))))
    return options.calls // options.in_flight * options.in_flight / took_s


def python_with_functions_framework() -> Path:
    """Return the interpreter that has functions-framework; make its environment when none has."""
    python = ENVIRONMENT / "bin" / "python"
    mark = ENVIRONMENT / REQUIREMENT
    if not mark.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(ENVIRONMENT)], check=True)
        command = [str(python), "-m", "pip", "install", "--quiet", REQUIREMENT]
        subprocess.run(command, check=True, timeout=300)
        mark.touch()
    return python


async def measure_scale(root: Path, options: argparse.Namespace) -> dict[str, Any]:
    """From no instance to k: k calls at once, each of which needs one; until all answer."""
    write_workspace(root, max_concurrency=1, max_replicas=options.replicas)
    async with opened(root) as (pool, _):
        one_s = await timed(lambda: pool.invoke(BODY, request_id="first"))
    # so slow that the first instance cannot take the calls of the others
    slow = WORK.replace("    text", f"    time.sleep({_SLOW_S})\n    text", 1)
    (root / "plugins" / "work.py").write_text(f"import time\n{slow}", encoding="utf-8")
    async with opened(root) as (pool, _):
        answered_s: list[float] = []
        started = time.perf_counter()

        async def call(number: int) -> None:
            await pool.invoke(BODY, request_id=f"r{number}")
            answered_s.append(time.perf_counter() - started)

        await asyncio.gather(*(call(number) for number in range(options.replicas)))
        starts = sorted(record.ready_s for record in pool.instances)
    return {
        "replicas": options.replicas,
        "instances": len(starts),
        "one_s": one_s,
        "first_ready_s": starts[0],
        "all_answer_s": max(answered_s) - _SLOW_S,
        "ratio": (max(answered_s) - _SLOW_S) / one_s,
        "aim": "as many instances as calls",
        "is_met": len(starts) == options.replicas,
    }


async def measure_forecast(root: Path, options: argparse.Namespace) -> dict[str, Any]:
    """p99 as forecast from one run, and as measured at settings that were not used for it."""
    rows = await measure_forecasts(root, num_calls=options.forecast_calls)
    worst = max(abs(row["ratio"] - 1) for row in rows)
    return {
        "rows": rows,
        "ratio": max((row["ratio"] for row in rows), key=lambda ratio: abs(ratio - 1)),
        "aim": "p99 within 15 %",
        "is_met": worst <= 0.15,
    }


MEASURES = {
    "overhead": measure_overhead,
    "cold": measure_cold,
    "rebuild": measure_rebuild,
    "throughput": measure_throughput,
    "scale": measure_scale,
    "forecast": measure_forecast,
}


def measured(part: str, options: argparse.Namespace) -> dict[str, Any]:
    """Measure one part in a workspace of its own; say why where it cannot be."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = asyncio.run(MEASURES[part](Path(folder), options))
        except (EngineError, MissingExtraError) as error:
            return {"skipped": error.message.splitlines()[0]}
    return {**found, "load_average": os.getloadavg()[0]}


def measured_apart(part: str) -> dict[str, Any]:
    """Measure one part in a process of its own: a plugin is imported once."""
    done = subprocess.run(
        [sys.executable, *sys.argv, "--part", part], stdout=subprocess.PIPE, text=True, check=True
    )
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", default=",".join(PARTS), help="some of them, by commas")
    parser.add_argument("--calls", type=int, default=600)
    parser.add_argument("--in-flight", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--forecast-calls", type=int, default=240)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        print(json.dumps(measured(options.part, options)))
        return 0
    rows = {part: measured_apart(part) for part in options.parts.split(",")}
    if options.json:
        print(json.dumps(rows))
        return 0
    print(f"{'part':<12}{'ratio':>7}  {'aim':<52}{'load':>6}")
    for part, row in rows.items():
        if "skipped" in row:
            print(f"{part:<12}{'-':>7}  skipped: {row['skipped']}")
            continue
        aim = f"{row['aim']}: {'met' if row['is_met'] else 'missed'}"
        print(f"{part:<12}{row['ratio']:>7.2f}  {aim:<52}{row['load_average']:>6.1f}")
        numbers = {
            name: round(value, 3)
            for name, value in row.items()
            if isinstance(value, float | int) and name not in ("ratio", "is_met", "load_average")
        }
        if numbers:
            print("            ", numbers)
        for each in row.get("rows", ()):
            print(
                f"             {each['plugin']:<8}{each['setting']:<24}"
                f"forecast {each['forecast_s']:.3f} s, measured {each['measured_s']:.3f} s, "
                f"ratio {each['ratio']:.2f}"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
