"""Models and weights in a folder, as vLLM loads them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from arkdev.errors import ConfigurationError

_ADAPTER_FILE = "adapter_config.json"


@dataclass(frozen=True)
class SavedWeights:
    """All weights of a model, or a LoRA adapter."""

    folder: Path
    is_adapter: bool


def weights_in(folder: Path) -> SavedWeights:
    """Look what a folder holds. Raises `ConfigurationError` when it holds no safetensors file."""
    if not any(folder.glob("*.safetensors")):
        raise ConfigurationError(f"{folder} holds no weights (*.safetensors)")
    return SavedWeights(folder.absolute(), (folder / _ADAPTER_FILE).is_file())


def vocabulary_size(model: Path) -> int:
    """Return how many token ids a model has. Raises `ConfigurationError` when its folder is none.

    vLLM does not check ids where it has no tokenizer: one that is out of range ends it.
    """
    path = model / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        size = (config.get("text_config") or config)["vocab_size"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigurationError(
            f"no model could be read: {error!r}",
            where=str(path),
            hint="name a folder in Hugging Face's layout: config.json and *.safetensors",
        ) from error
    return int(size)
