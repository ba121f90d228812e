"""A training that is killed and goes on is the training that was never killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from arkdev.flows.training_runs import PROCESS_FILE, process_of
from arkdev.runs.reader import RunReader, list_runs
from arkdev.runs.saved_models import SavedModels

ROOT = Path(__file__).resolve().parents[2]
NUM_STEPS = 6
JOB = {
    "customization_type": "GRPO",
    "model_reference": {"foundation_model": {"name": "m", "model_version": "1"}},
    "hyperparameters": {
        "batch_size": "2",
        "num_generations": "4",
        "num_steps": str(NUM_STEPS),
        "lr": "1e-3",
        "max_new_tokens": "12",
        "test_every_n_steps": "2",
    },
    "data": {
        "training_set": {"local_files": ["data.jsonl"]},
        "validation_set": {"local_files": ["held.jsonl"]},
    },
    "custom_rl_pipeline": {
        "rollout": {"plugin": {"name": "ask", "python_func": "plugins.ask:ask"}},
        "graders": [{"plugin": {"name": "count", "python_func": "plugins.ask:count"}}],
    },
}
PLUGINS = '''
import time
from pathlib import Path

from arkdev import rollout, single_grader

HOLD = Path(__file__).parents[1] / "hold"


@rollout
def ask(context, proxy, sample):
    while context.current_training_step and HOLD.exists():
        time.sleep(0.01)
    client = proxy.rollout_client()
    client.chat.completions.create(model="m", messages=sample.model_dump()["messages"])


@single_grader
def count(context, sample, trajectory):
    """How many different characters the answer has."""
    return len(set(trajectory.messages[-1].content or "")) / 10
'''
NOT_COMPARED = ("_s", "_per_s")
"""Endings of metrics that are times."""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "ask.py").write_text(PLUGINS, encoding="utf-8")
    for name, number in (("data.jsonl", 7), ("held.jsonl", 2)):
        lines = [
            json.dumps({"messages": [{"role": "user", "content": f"城市{index}的天气？"}]})
            for index in range(number)
        ]
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    (tmp_path / "job.yaml").write_text(json.dumps(JOB), encoding="utf-8")
    return tmp_path


class Driver:
    """See forking_driver.py."""

    def __init__(self, process: subprocess.Popen[str], workspace: Path) -> None:
        self._process = process
        self._workspace = workspace

    def start(self, *arguments: str) -> int:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(arguments) + "\n")
        self._process.stdin.flush()
        return self._number()

    def end(self) -> int:
        return self._number()

    def _number(self) -> int:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self.said()
        return int(line)

    def said(self) -> str:
        path = self._workspace / "output.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


@contextmanager
def driving(workspace: Path) -> Iterator[Driver]:
    process = subprocess.Popen(
        [sys.executable, "-P", str(Path(__file__).with_name("forking_driver.py"))],
        cwd=workspace,
        env={**os.environ, "PYTHONPATH": str(ROOT), "XDG_CONFIG_HOME": str(workspace / "config")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Driver(process, workspace)
    finally:
        process.kill()
        process.communicate()


TRAIN = ("train", "--seed", "1", "--deterministic")


def run_of(workspace: Path, number: int) -> RunReader:
    """The runs by age, the oldest first."""
    return RunReader(list_runs(workspace / "runs")[-1 - number].folder)


def when(happens: Callable[[Path], bool], workspace: Path, *, pid: int) -> None:
    """Wait until it happens in the second run, in the process `pid`."""
    until = time.monotonic() + 120
    folder = None
    while time.monotonic() < until:
        if folder is not None:
            if happens(folder):
                return
        else:  # looked for with time between, and once: it must not miss what happens quickly
            runs = list_runs(workspace / "runs")
            owner = process_of(runs[0].folder) if len(runs) == 2 else None
            folder = runs[0].folder if owner is not None and owner.pid == pid else None
        time.sleep(0.002)
    raise AssertionError("it did not happen")


def has_steps(number: int) -> Callable[[Path], bool]:
    def happens(folder: Path) -> bool:
        steps = [line for line in RunReader(folder).events() if line.get("kind") == "step"]
        return len({(line["phase"], line["step"]) for line in steps}) >= number

    return happens


def is_saving(folder: Path) -> bool:
    """Whether a folder of this process, not one that a killed one left, is being filled."""
    began = (folder / PROCESS_FILE).stat().st_mtime_ns
    for path in [*folder.glob("checkpoints/*.partial"), *folder.glob("models/*.partial")]:
        with suppress(FileNotFoundError):  # renamed meanwhile
            if not path.name.endswith(".old.partial") and path.stat().st_mtime_ns > began:
                return True
    return False


def metrics_of(reader: RunReader) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in line.items() if not name.endswith(NOT_COMPARED)}
        for line in reader.metrics()
    ]


def test_a_training_that_was_killed_again_and_again_equals_one_that_was_not(workspace):
    rng = random.Random(5)
    # none so late that the run could end before the moment after it
    moments = [has_steps(1), is_saving, has_steps(3), is_saving]
    with driving(workspace) as driver:
        driver.start(*TRAIN)
        assert driver.end() == 0, driver.said()
        pid = driver.start(*TRAIN)
        for moment in moments:
            when(moment, workspace, pid=pid)
            if moment is not is_saving:
                time.sleep(rng.uniform(0, 0.2))
            os.kill(pid, signal.SIGKILL)
            assert driver.end() == -signal.SIGKILL, driver.said()
            pid = driver.start("train", "--resume", "latest")
        assert driver.end() == 0, driver.said()
    whole, killed = (run_of(workspace, number) for number in (0, 1))
    assert len(killed.manifest.resumed_at) == len(moments)
    assert killed.manifest.status == "finished"

    expected, found = metrics_of(whole), metrics_of(killed)
    assert [line["step"] for line in found] == [line["step"] for line in expected]
    for line, other in zip(found, expected, strict=True):
        assert line.keys() == other.keys()
        for name in line.keys() - {"at"}:
            assert line[name] == pytest.approx(other[name], abs=1e-6), (line["step"], name)

    order = [{r.trajectory_id for r in reader.trajectories()} for reader in (whole, killed)]
    assert order[0] == order[1]
    tokens = [{r.trajectory_id: r.token_ids for r in reader.tokens()} for reader in (whole, killed)]
    assert tokens[0] == tokens[1]
    assert sum(1 for _ in killed.trajectories()) == len(order[1])  # none twice

    models = [
        SavedModels(r.folder, run_id=r.manifest.run_id).chosen("last") for r in (whole, killed)
    ]
    weights = [(model.folder / "model.safetensors").read_bytes() for model in models]
    assert models[0].step == models[1].step == NUM_STEPS
    assert weights[0] == weights[1]


def test_a_training_in_the_background_is_watched_and_stopped_and_goes_on(workspace):
    def arkdev(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-P", "-m", "arkdev", *arguments],
            cwd=workspace,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )

    refused = arkdev("train", "--detach", "--model", "nowhere")
    assert refused.returncode == 2
    assert "nowhere" in refused.stderr
    assert not list((workspace / "runs").iterdir())

    hold = workspace / "hold"
    hold.touch()  # it must not be over before it is asked to stop
    started = arkdev(*TRAIN, "--detach", "--json")
    assert started.returncode == 0, started.stderr
    document = json.loads(started.stdout)
    run_id, folder = document["run"], Path(document["folder"])
    assert arkdev("stop", "mcj", run_id).returncode == 0
    hold.unlink()
    watched = arkdev("watch", run_id, "--json")
    lines = [json.loads(line) for line in watched.stdout.splitlines()]
    assert (watched.returncode, lines[-1]["status"]) == (1, "stopped")
    done = {line["step"] for line in lines if line["phase"] == "train"}
    assert 1 <= len(done) < NUM_STEPS
    assert "stopped" in Path(document["output"]).read_text(encoding="utf-8")

    again = arkdev("train", "--resume", run_id, "--detach", "--json")
    assert again.returncode == 0, again.stderr
    assert (json.loads(again.stdout)["run"], (folder / "output-1.txt").exists()) == (run_id, True)
    assert arkdev("watch").returncode == 0
    assert RunReader(folder).status == "finished"
    assert [line["step"] for line in RunReader(folder).metrics()] == [0, 1, 1, 2, 3, 3, 4, 5, 5]
    exported = arkdev("export", "latest", "--to", "out", "--step", "best", "--json")
    assert exported.returncode == 0, exported.stderr
    assert "model.safetensors" in json.loads(exported.stdout)["files"]
