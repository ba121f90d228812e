"""The weights of a model's folder, whole or not at all (leaf: imports torch and transformers).

Transformers draws weights that a file lacks at random and goes on, and asks on the terminal
whether to run code that a folder brings. Here the first is an error, and the second is not done.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import shorten
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging as transformers_logging

from arkdev.errors import ConfigurationError

_HINT = "name a folder in Hugging Face's layout, whole: config.json and *.safetensors"
_ENOUGH = 3
"""Names in a message."""
_MOST_LETTERS = 300
"""Of what a library says; some add pages of advice."""


def load_model(folder: Path | str, *, dtype: torch.dtype) -> PreTrainedModel:
    """Load the causal language model in `folder`, with its weights in `dtype`, on the CPU.

    Raises `ConfigurationError` when it is no folder of one, when a file is damaged, when weights
    are missing or of other shapes than config.json says, and when it needs code of its own.
    """
    try:
        with _quietly():
            model, found = AutoModelForCausalLM.from_pretrained(
                str(folder),
                dtype=dtype,
                local_files_only=True,
                trust_remote_code=False,
                ignore_mismatched_sizes=True,  # they are told below
                output_loading_info=True,
            )
    except Exception as error:  # of three packages, about whatever the files hold
        raise _not_loaded(_told(error), folder) from error
    if misfits := sorted(found["mismatched_keys"]):
        name, in_file, in_config = misfits[0]
        raise _not_loaded(
            f"{name} has the shape {tuple(in_file)} in its file and {tuple(in_config)} by "
            f"config.json{_more(misfits[:1], misfits)}",
            folder,
        )
    if missing := sorted(found["missing_keys"]):
        shown = missing[:_ENOUGH]
        raise _not_loaded(
            f"its files lack weights: {', '.join(shown)}{_more(shown, missing)}", folder
        )
    return model


def _told(error: Exception) -> str:
    text = str(error)
    if "trust_remote_code" in text:
        return "it needs code of its own (auto_map in config.json), which arkdev does not run"
    return shorten(text, _MOST_LETTERS, placeholder=" …") or type(error).__name__


def _more(shown: list[Any], found: list[Any]) -> str:
    number = len(found) - len(shown)
    return f", and {number} more" if number else ""


def _not_loaded(reason: str, folder: Path | str) -> ConfigurationError:
    return ConfigurationError(
        f"the model cannot be loaded: {reason}", where=str(folder), hint=_HINT
    )


@contextmanager
def without_bars() -> Iterator[None]:
    """Keep transformers from drawing bars."""
    has_bars = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if has_bars:
            transformers_logging.enable_progress_bar()


@contextmanager
def _quietly() -> Iterator[None]:
    """No bars, and no report of what is told here."""
    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity(transformers_logging.CRITICAL)
    try:
        with without_bars():
            yield
    finally:
        transformers_logging.set_verbosity(verbosity)
