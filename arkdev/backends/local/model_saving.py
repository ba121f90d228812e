"""Trained models on the disk in Hugging Face layout: weights, tokenizer and chat template.

After full fine-tuning such a folder holds the model, after training with LoRA the adapter alone
(as `peft` saves it), which is small; `write_merged` makes a model of adapter and base.
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers import AutoConfig

from arkdev.backends.local.model_loading import load_model, without_bars

_TOKENIZER_FILES = (
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
    "merges.txt",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
)
"""What a model needs besides weights and config; training changes none of it."""
_CARD = "README.md"


def write_model(folder: Path, model: Any, *, source: Path) -> None:
    """Write a model, or a model's adapter, with the tokenizer of the folder `source`.

    Raises `OSError`, or what a library makes of one.
    """
    with _quietly():
        model.save_pretrained(folder)
    for weights in folder.glob("*.safetensors"):  # its library leaves them to their owner alone
        weights.chmod(next(folder.glob("*config.json")).stat().st_mode)
    (folder / _CARD).unlink(missing_ok=True)  # peft's form to be filled in
    _copy_tokenizer(source, folder)


def write_merged(folder: Path, *, adapter: Path, base: Path) -> None:
    """Write the model that an adapter makes of its base, in the base's precision.

    The product is added in float32, so that it is rounded once.
    """
    model: Any = load_model(base, dtype=torch.float32)
    config = AutoConfig.from_pretrained(base, local_files_only=True, trust_remote_code=False)
    with _quietly():
        merged = PeftModel.from_pretrained(model, adapter).merge_and_unload(safe_merge=True)
        write_model(folder, merged.to(config.dtype or torch.float32), source=base)


@contextmanager
def _quietly() -> Iterator[None]:
    """No progress bars, and no warning of what peft reads of transformers' by its older name."""
    with without_bars(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated")
        yield


def _copy_tokenizer(source: Path, folder: Path) -> None:
    for name in _TOKENIZER_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)
