"""Weights in a folder, as vLLM loads them."""

from __future__ import annotations

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
