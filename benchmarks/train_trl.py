"""The peer's side of `train.py`: a GRPO step of TRL's GRPOTrainer, made when it is asked for.

    python train_trl.py SETTINGS.json

Runs in an environment of its own, with TRL and without arkdev. See `train_rows.py` for what is said
over standard input and output.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoTokenizer, Qwen3ForCausalLM, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from train_memory import peak_mb


def share_of_even(completion_ids: list[list[int]], **_: Any) -> list[float]:
    """A reward that costs nothing: the share of even token ids."""
    return [sum(i % 2 == 0 for i in ids) / max(1, len(ids)) for ids in completion_ids]


class OnDemand(TrainerCallback):
    """Waits for a word before each step, and says how long the step took."""

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Wait."""
        if not sys.stdin.readline():
            control.should_training_stop = True
        self.started = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Say it."""
        seconds = time.perf_counter() - self.started
        print(json.dumps({"seconds": seconds, "peak_mb": peak_mb()}), file=OUT, flush=True)


def main() -> None:
    """Train for as many steps as are asked for."""
    settings = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    torch.set_num_threads(settings["threads"])
    num_answers = settings["groups"] * settings["group_size"]
    config = GRPOConfig(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=num_answers,
        num_generations=settings["group_size"],
        max_completion_length=settings["new_tokens"],
        generation_kwargs={"min_new_tokens": settings["new_tokens"]},
        learning_rate=settings["lr"],
        temperature=1.0,
        beta=0.0,
        bf16=False,
        use_cpu=True,
        gradient_checkpointing=False,  # it would cost time to save memory that is no problem here
        max_steps=10_000,
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
        seed=0,
    )
    trainer = GRPOTrainer(
        model=Qwen3ForCausalLM.from_pretrained(settings["model"], dtype=torch.float32),
        processing_class=AutoTokenizer.from_pretrained(settings["model"]),
        reward_funcs=share_of_even,
        args=config,
        train_dataset=Dataset.from_list([{"prompt": text} for text in settings["prompts"]]),
        callbacks=[OnDemand()],
    )
    print("ready", file=OUT, flush=True)
    trainer.train()


if __name__ == "__main__":
    OUT, sys.stdout = sys.stdout, sys.stderr  # what libraries print is no answer
    main()
