"""How fast data is checked, and in how much memory, against `json.loads` of each line alone.

Times are CPU time of this process; memory is the growth of its peak resident set.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from arkdev.flows.check_data import CheckProgress, DataCheckRequest, check_data  # noqa: E402
from arkdev.job.batches import BatchPlan  # noqa: E402
from arkdev.job.dataset import read_files  # noqa: E402
from arkdev.job.indexed_dataset import IndexedDataset  # noqa: E402

TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Weather of a city today.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def write(path: Path, num_bytes: int) -> int:
    """Write lines of about 600 bytes: a system prompt, a question, a tool, an answer."""
    draw = random.Random(1)
    num_lines = size = 0
    system = {"role": "system", "content": "You are a careful assistant. " * 6}
    with path.open("w", encoding="utf-8") as file:
        while size < num_bytes:
            question = f"问题 {num_lines}：{draw.randrange(10**6)} 号城市 what is the weather? " * 2
            sample = {
                "messages": [system, {"role": "user", "content": question}],
                "tools": [TOOL],
                "temperature": 0.8,
                "extra": {"answer": str(draw.randrange(40)), "prompt_id": f"train-{num_lines}"},
            }
            size += file.write(json.dumps(sample, ensure_ascii=False) + "\n")
            num_lines += 1
    return num_lines


def json_alone(path: Path) -> None:
    """The floor: each line parsed by the standard library, nothing checked."""
    with path.open("rb") as file:
        for line in file:
            json.loads(line)


def read(path: Path) -> None:
    """What every command does with its data before it runs."""
    for _ in read_files([path]):
        pass


def index(path: Path) -> None:
    """The same, and where each line begins is kept."""
    IndexedDataset(read_files([path]))


def check(path: Path) -> None:
    """`arkdev data check`: the same, statistics and duplicates."""
    check_data(DataCheckRequest(path.parent, files=(path,)), progress=CheckProgress())


def peak_mb() -> float:
    """Peak resident memory of this process."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e3)


def measured(work: Callable[[Path], None], path: Path) -> dict[str, float]:
    """CPU seconds and growth of the peak."""
    before = peak_mb()
    start = time.process_time()
    work(path)
    return {"cpu_s": time.process_time() - start, "grown_mb": peak_mb() - before}


def by_number(path: Path, *, num_samples: int) -> dict[str, float]:
    """Microseconds for one sample of a shuffled batch, and seconds to shuffle a million."""
    dataset = IndexedDataset(read_files([path], num_samples))
    plan = BatchPlan(len(dataset), 32, num_steps=32)
    start = time.process_time()
    count = sum(1 for batch in plan.batches() for index in batch.indices if dataset[index])
    each_us = (time.process_time() - start) / count * 1e6
    start = time.process_time()
    BatchPlan(1_000_000, 32, num_epochs=1).batch(0)
    return {"sample_us": each_us, "shuffle_million_s": time.process_time() - start}


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=float, default=100, help="size of the file")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--dir", type=Path, help="where to write it (default: a temporary folder)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        path = Path(folder) / "data.jsonl"
        num_lines = write(path, int(options.mb * 1e6))
        size_mb = path.stat().st_size / 1e6
        works = {"json.loads alone": json_alone, "read_files": read, "indexed": index}
        rows: dict[str, dict[str, Any]] = {
            name: measured(work, path) for name, work in {**works, "data check": check}.items()
        }
        access = by_number(path, num_samples=min(num_lines, 20_000))
    for row in rows.values():
        row["lines_per_s"] = num_lines / row["cpu_s"]
        row["mb_per_s"] = size_mb / row["cpu_s"]
        row["ratio"] = row["cpu_s"] / rows["json.loads alone"]["cpu_s"]
    if options.json:
        print(json.dumps({"num_lines": num_lines, "size_mb": size_mb, "rows": rows, **access}))
        return 0
    print(f"{num_lines:,} lines, {size_mb:,.0f} MB")
    print(f"{'':<18}{'CPU s':>8}{'lines/s':>10}{'MB/s':>8}{'× json':>8}{'memory MB':>11}")
    for name, row in rows.items():
        print(
            f"{name:<18}{row['cpu_s']:>8.2f}{row['lines_per_s']:>10,.0f}{row['mb_per_s']:>8.1f}"
            f"{row['ratio']:>8.1f}{row['grown_mb']:>11.1f}"
        )
    print(f"a sample by its number: {access['sample_us']:.0f} µs")
    print(f"shuffling a million: {access['shuffle_million_s']:.2f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
