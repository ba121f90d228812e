"""`arkdev train --engine vllm`, the whole command, on the CPU."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.engines.servers import ROOT, START_LIMIT_S, engine_python, training_python

pytestmark = pytest.mark.engines


def arkdev(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [training_python(), "-m", "arkdev", *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=2 * START_LIMIT_S,
        check=False,
    )


def test_a_job_is_trained_with_answers_of_vllm(tmp_path: Path) -> None:
    workspace = tmp_path / "demo"
    made = arkdev("init", str(workspace), "--template", "rl_demo", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    trained = arkdev(
        *("train", "--backend", "local", "--engine", "vllm"),
        *("--vllm-python", str(engine_python("vllm"))),
        *("--steps", "2", "--batch-size", "8", "--validation-limit", "0", "--json"),
        cwd=workspace,
    )
    assert trained.returncode == 0, trained.stderr
    steps = json.loads(trained.stdout)["steps"]
    assert [step["step"] for step in steps] == [0, 1]
    for step in steps:
        metrics = step["metrics"]
        assert metrics["train/sync_gap_mean"] < 1e-4  # it samples with the weights of this step
        assert metrics["train/rollout_off_policy_kl"] < 1e-6
        assert metrics["train/grad_norm"] > 0
    assert "vLLM starts" in trained.stderr
