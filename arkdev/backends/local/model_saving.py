"""Trained models on the disk in Hugging Face layout: weights, tokenizer and chat template.

After full fine-tuning such a folder holds the model, after training with LoRA the adapter alone
(as `peft` saves it), which is small; `write_merged` makes a model of adapter and base.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

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
    model.save_pretrained(folder, safe_serialization=True)
    (folder / _CARD).unlink(missing_ok=True)  # peft's form to be filled in
    _copy_tokenizer(source, folder)


def write_merged(folder: Path, *, adapter: Path, base: Path) -> None:
    """Write the model that an adapter makes of its base, in the base's precision.

    The product is added in float32, so that it is rounded once.
    """
    kept = AutoModelForCausalLM.from_pretrained(base, dtype="auto").dtype
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    merged = PeftModel.from_pretrained(model, adapter).merge_and_unload(safe_merge=True)
    write_model(folder, merged.to(kept), source=base)


def _copy_tokenizer(source: Path, folder: Path) -> None:
    for name in _TOKENIZER_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)
