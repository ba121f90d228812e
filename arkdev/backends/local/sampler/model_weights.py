"""A model's weights by their plain names, adapters merged: what the policy really computes with."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import torch
from torch import nn

from arkdev.errors import ConfigurationError


def plain_model(model: Any) -> Any:
    """Return the causal LM inside a model of `peft`, or the model itself.

    Raises `ConfigurationError` for adapters that are not part of the weights (prompt tuning).
    """
    if not hasattr(model, "peft_config"):
        return model
    for name, config in model.peft_config.items():
        if config.is_prompt_learning:
            raise ConfigurationError(
                f"the adapter {name} ({config.peft_type}) is no change of weights, so the engine "
                "torch cannot sample with it",
                hint="Use LoRA, or full fine-tuning.",
            )
    return model.get_base_model()


def weights(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield each parameter of the causal LM once, under the name that it has without adapters.

    Layers with adapters are merged in a copy of their own, one at a time, so that the model that is
    trained keeps its bits.
    """
    base = plain_model(model)
    if base is model:
        yield from model.named_parameters()
        return
    tuner_layer = import_module("peft.tuners.tuners_utils").BaseTunerLayer
    saved_module = import_module("peft.utils.other").ModulesToSaveWrapper
    done: list[str] = []
    tied: set[int] = set()
    for name, module in base.named_modules():
        if any(name.startswith(prefix) for prefix in done):
            continue
        if isinstance(module, tuner_layer):
            done.append(f"{name}.")
            yield from _named(name, _merged(module))
        elif isinstance(module, saved_module):
            done.append(f"{name}.")
            trained = module.modules_to_save[module.active_adapters[0]]
            yield from _named(name, trained)
        else:
            for own, parameter in module.named_parameters(recurse=False):
                if id(parameter) not in tied:
                    tied.add(id(parameter))
                    yield (f"{name}.{own}" if name else own), parameter


def _merged(layer: Any) -> nn.Module:
    if layer.merged:
        return layer.get_base_layer()
    merged = copy.deepcopy(layer)
    merged.merge()
    return merged.get_base_layer()


def _named(prefix: str, module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    for name, parameter in module.named_parameters():
        yield f"{prefix}.{name}", parameter
