"""A model's files, loaded to be sampled from (leaf: imports torch and transformers)."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from peft import PeftModel
from safetensors import SafetensorError

from arkdev.backends.local.endpoint import PolicyEndpoint
from arkdev.backends.local.model_files import ModelFiles
from arkdev.backends.local.model_loading import load_model
from arkdev.backends.local.rendering import open_rendering
from arkdev.backends.local.sampler.engine import TorchEngine
from arkdev.errors import ConfigurationError

MOST_CONTEXT_TOKENS = 8192
"""The context that is kept free where none is asked for: it costs memory, asked for or not."""

_SMALL_BYTES = 64 * 2**20
"""Below it a second thread waits longer than it works. Of two busy cores, in float32 with 8 to 16
answers at once, one thread was 1.4 times as fast as two for 4 and 26 MiB, and as fast for 112."""


@dataclass(frozen=True)
class LoadingSettings:
    """How a model is loaded; None is chosen here."""

    num_threads: int | None = None
    """Of torch, on a CPU: one for a small model, else one for each core."""
    max_context_tokens: int | None = None
    """The model's own, at most `MOST_CONTEXT_TOKENS`."""
    is_deterministic: bool = False
    """The same request has the same answer, whatever runs beside it; somewhat slower."""


@dataclass(frozen=True)
class LoadedPolicy:
    """A policy that answers, and how it was loaded."""

    endpoint: PolicyEndpoint
    device: str
    num_threads: int
    max_context_tokens: int

    def __str__(self) -> str:
        threads = "1 thread" if self.num_threads == 1 else f"{self.num_threads} threads"
        where = f"on the CPU with {threads}" if self.device == "cpu" else f"on {self.device}"
        return f"{where}, contexts of up to {self.max_context_tokens:,} tokens"


def load_policy(files: ModelFiles, settings: LoadingSettings | None = None) -> LoadedPolicy:
    """Load a model and open its engine, which takes seconds; the caller closes the endpoint.

    Raises `ConfigurationError` for files that are no causal language model, that are damaged, or
    whose chat template is missing, and for a context that the model or the memory does not have.
    """
    settings = settings or LoadingSettings()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    threads = settings.num_threads or num_threads(files)
    torch.set_num_threads(threads)
    rendering = open_rendering(files.tokenizer_folder)
    model = _loaded(files, dtype=torch.float32 if device == "cpu" else torch.bfloat16)
    num_tokens = context_tokens(files, model.config, asked=settings.max_context_tokens)
    engine = TorchEngine(
        model.to(device),
        device=device,
        max_context_tokens=num_tokens,
        deterministic=settings.is_deterministic,
    )
    endpoint = PolicyEndpoint(engine, rendering, model_name=files.name)
    return LoadedPolicy(endpoint, device, threads, num_tokens)


def num_threads(files: ModelFiles) -> int:
    """Return how many threads torch works fastest with."""
    if files.num_bytes < _SMALL_BYTES:
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _loaded(files: ModelFiles, *, dtype: torch.dtype) -> Any:
    model: Any = load_model(files.folder, dtype=dtype)
    if files.adapter is not None:
        try:
            with warnings.catch_warnings():  # of peft's, about a name of transformers
                warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated")
                model = PeftModel.from_pretrained(model, files.adapter).merge_and_unload()
        except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
            raise ConfigurationError(
                f"the LoRA adapter cannot be loaded: {error}", where=str(files.adapter)
            ) from error
    return model.eval().requires_grad_(False)


def context_tokens(files: ModelFiles, config: Any, *, asked: int | None = None) -> int:
    """Return how many tokens a context may have. Raises `ConfigurationError` for too many."""
    has = getattr(config.get_text_config(), "max_position_embeddings", None)
    if asked is None:
        return min(int(has or MOST_CONTEXT_TOKENS), MOST_CONTEXT_TOKENS)
    if has is not None and asked > has:
        raise ConfigurationError(
            f"the model's context has {has:,} tokens, fewer than {asked:,}",
            where=str(files.folder),
        )
    return asked
