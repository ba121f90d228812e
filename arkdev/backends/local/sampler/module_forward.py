"""The forward pass of any causal LM of transformers, by its own modules.

The model is copied, and its copy's attention function is ours: it is given all rows of a step as
one sequence with their positions (`position_ids`), and attends over the engine's cache. So whatever
mixes tokens by attention alone works; what mixes them otherwise (recurrent layers, attention that
does not go through `AttentionInterface`) is found out by `model_forward.check`.
"""

from __future__ import annotations

import copy
import inspect
import threading
from collections.abc import Iterable
from typing import Any

import torch
from transformers import AttentionInterface

from arkdev.backends.local.sampler.attention import AttentionStep
from arkdev.backends.local.sampler.kv_cache import CacheShape
from arkdev.backends.local.sampler.model_weights import plain_model
from arkdev.errors import ConfigurationError

ATTENTION_NAME = "arkdev_sampler"

_current = threading.local()
"""`.step`: the step of the engine that runs in this thread."""


class _Probe:
    """An attention step that only learns what each layer keeps of a token."""

    def __init__(self) -> None:
        self.layers: dict[int, tuple[int, int]] = {}

    def attend(
        self,
        layer: int,
        queries: torch.Tensor,
        keys_values: torch.Tensor,
        *,
        scale: float | None = None,
        window: int | None = None,
    ) -> torch.Tensor:
        """See `AttentionStep`."""
        self.layers[layer] = (keys_values.shape[1] // 2, keys_values.shape[2])
        return torch.zeros_like(queries).flatten(1)


def _attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Any,
    **settings: Any,
) -> tuple[torch.Tensor, None]:
    """The function that transformers calls: ``[1, heads, rows, size]``."""
    for name in ("softcap", "s_aux"):
        if settings.get(name) is not None:
            raise ConfigurationError(
                f"{type(module).__name__} uses {name} in its attention, which the engine torch "
                "does not compute"
            )
    if key.shape[-1] != value.shape[-1]:
        raise ConfigurationError(
            f"{type(module).__name__} has keys of size {key.shape[-1]} and values of size "
            f"{value.shape[-1]}; the engine torch needs them equal"
        )
    attended = _current.step.attend(
        module.layer_idx,
        query[0].transpose(0, 1),
        torch.cat([key[0], value[0]]).transpose(0, 1),
        scale=settings.get("scaling"),
        window=settings.get("sliding_window"),
    )
    return attended.view(1, attended.shape[0], query.shape[1], -1), None


class ModuleForward:
    """A copy of the model, and the pass through it."""

    name = "modules"

    def __init__(self, model: Any, *, device: torch.device, dtype: torch.dtype) -> None:
        base = plain_model(model)
        if not base._supports_attention_backend:
            raise ConfigurationError(
                f"{type(base).__name__} computes attention in a way of its own, so the engine "
                "torch cannot sample from it"
            )
        AttentionInterface.register(ATTENTION_NAME, _attention)
        copied = copy.deepcopy(model)
        if base is not model:
            copied = copied.merge_and_unload()
        copied.set_attn_implementation(ATTENTION_NAME)
        self._model = copied.to(device=device, dtype=dtype).eval().requires_grad_(False)
        self.device, self.dtype = device, dtype
        self.vocabulary_size = int(self._model.get_input_embeddings().num_embeddings)
        self._chooses = "logits_to_keep" in inspect.signature(self._model.forward).parameters
        self.cache_shape = self._probe()

    def _probe(self) -> CacheShape:
        probe = _Probe()
        with torch.inference_mode():
            first = torch.zeros(1, dtype=torch.long, device=self.device)
            self.logits(first, first, probe)
        shapes = set(probe.layers.values())
        if sorted(probe.layers) != list(range(len(probe.layers))) or len(shapes) != 1:
            raise ConfigurationError(
                f"the layers of {type(self._model).__name__} keep different things of a token, so "
                "the engine torch cannot sample from it",
            )
        num_heads, size = shapes.pop()
        return CacheShape(len(probe.layers), num_heads, size)

    def load(self, named: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Copy the weights."""
        kept = dict(self._model.named_parameters())
        new = dict(named)
        if {name: tensor.shape for name, tensor in kept.items()} != {
            name: tensor.shape for name, tensor in new.items()
        }:
            raise ConfigurationError("the new weights are those of another model")
        with torch.no_grad():
            for name, tensor in new.items():
                kept[name].copy_(tensor)

    def logits(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        step: AttentionStep,
        *,
        keep: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See `model_forward.Forward`."""
        _current.step = step
        chosen = {"logits_to_keep": keep} if keep is not None and self._chooses else {}
        try:
            logits = self._model(
                input_ids=token_ids[None], position_ids=positions[None], use_cache=False, **chosen
            ).logits[0]
        finally:
            del _current.step
        return (logits if keep is None or chosen else logits.index_select(0, keep)).float()
