"""Run folders of trainings, as `arkdev train` leaves them, made without training anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from arkdev.harness.steps import StepRecord
from arkdev.runs.saved_models import SavedModels
from arkdev.runs.writer import RunWriter

SETTINGS: dict[str, Any] = {
    "job_name": "weather",
    "customization_type": "GRPO",
    "endpoint": {"name": "local", "base_url": None, "model": "tiny"},
    "num_steps": 4,
    "workspace": "/somewhere/weather",
    "data": ["/somewhere/weather/data/train.jsonl"],
    "hyperparameters": {"lr": 0.001},
}


def begin(root: Path, **settings: Any) -> RunWriter:
    """A training that runs, as long as the writer is open."""
    return RunWriter.create(
        root,
        kind="train",
        settings=SETTINGS | settings,
        hashes={},
        versions={"arkdev": "0.1.0"},
    )


def write_step(writer: RunWriter, step: int, *, reward: float = 0.5, phase: str = "train") -> None:
    """What a step, or a round of validation after it, leaves."""
    metrics = {f"{phase}/reward->final_reward.mean": reward}
    record = StepRecord(
        step=step,
        phase=phase,
        epoch=0,
        num_groups=2,
        num_kept=2,
        num_without_signal=0,
        dropped={},
        duration_s=1.0,
        metrics=metrics,
    )
    writer.metrics({"step": step, **metrics})
    writer.event("step", **record.to_json())


def save_model(writer: RunWriter, step: int, *, score: float | None = None) -> Path:
    """A saved model, of files that look like one."""

    def write(folder: Path) -> None:
        config = {"architectures": ["Qwen3ForCausalLM"]}
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        (folder / "model.safetensors").write_bytes(b"weights of step %d" % step)
        (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
        (folder / "chat_template.jinja").write_text("{{ messages }}", encoding="utf-8")

    models = SavedModels(writer.folder, run_id=writer.run_id)
    return models.save(step, write, score=score, facts={"model": "tiny"})


def finished(root: Path, **settings: Any) -> RunWriter:
    """A training of four steps that has ended, with three saved models."""
    writer = begin(root, **settings)
    for step, reward in enumerate((0.25, 0.5, 0.75, 0.625)):
        write_step(writer, step, reward=reward)
        if step % 2:
            write_step(writer, step, reward=reward, phase="test")
            save_model(writer, step + 1, score=reward)
    save_model(writer, 3)
    writer.finish("finished", {})
    return writer
