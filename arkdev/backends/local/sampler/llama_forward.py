"""The forward pass of the Llama family, for sampling alone: weights fused, few operations.

Pre-norm decoder with RMSNorm, rotary positions, grouped queries, SwiGLU: Llama (arXiv:2302.13971,
2307.09288), Mistral (2310.06825), Qwen2 (2407.10671: biases of q, k, v), Qwen3 (2505.09388: RMSNorm
of each head's queries and keys). Equal to transformers' modules up to rounding.

Three things are laid out differently from there. The projections to q, k and v are one matrix, as
are those to gate and up. The weights of a norm are multiplied into the matrix that follows it. And
the components of each head of q and k are reordered so that those that rotate together (i and
i + size/2 in transformers) stand side by side: the rotation is then a product of complex numbers.
Scores do not change, for q and k are reordered alike.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from arkdev.backends.local.sampler.attention import AttentionStep
from arkdev.backends.local.sampler.kv_cache import CacheShape
from arkdev.errors import ConfigurationError

FAMILY = frozenset({"llama", "mistral", "qwen2", "qwen3"})


@dataclass
class _Layer:
    qkv: torch.Tensor
    """``[in, out]``, as are the others: products need no transposition."""
    output: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor
    qkv_bias: torch.Tensor | None = None
    output_bias: torch.Tensor | None = None
    gate_up_bias: torch.Tensor | None = None
    down_bias: torch.Tensor | None = None
    head_norms: torch.Tensor | None = None
    """``[q and k heads, size]``."""


def is_fast(model: Any) -> bool:
    """Whether `LlamaForward` computes this model, by its kind and its settings."""
    config = model.config
    if config.model_type not in FAMILY or config.hidden_act not in {"silu", "swish"}:
        return False
    if any(kind != "full_attention" for kind in getattr(config, "layer_types", None) or ()):
        return False
    if config.model_type == "mistral" and config.sliding_window is not None:
        return False
    cosines, _ = _rotary(model, num_positions=1)
    return int(cosines.shape[-1]) == head_size(config) and head_size(config) % 2 == 0


def head_size(config: Any) -> int:
    """Return the number of components of one head."""
    size = getattr(config, "head_dim", None)
    return int(size or config.hidden_size // config.num_attention_heads)


def _rotary(model: Any, *, num_positions: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines by the model's own module, scaling included: ``[positions, size]``."""
    rotary = model.model.rotary_emb
    device = rotary.inv_freq.device
    positions = torch.arange(num_positions, device=device)[None]
    with torch.no_grad():
        cosines, sines = rotary(torch.zeros(1, device=device), positions)
    return cosines[0], sines[0]


class LlamaForward:
    """The fused weights, and the pass through them."""

    name = "llama"

    def __init__(
        self, model: Any, *, num_positions: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        config = model.config
        self.device, self.dtype = device, dtype
        self.vocabulary_size = int(config.vocab_size)
        self._num_heads = int(config.num_attention_heads)
        self._size = head_size(config)
        self._eps = float(config.rms_norm_eps)
        self._epsilon = torch.tensor(self._eps, device=device)
        self.cache_shape = CacheShape(
            int(config.num_hidden_layers), int(config.num_key_value_heads), self._size
        )
        half = self._size // 2
        cosines, sines = _rotary(model, num_positions=num_positions)
        # one turn for each pair of components; both halves of the table are alike
        turns = torch.complex(cosines[:, :half].float(), sines[:, :half].float())
        self._turns = turns.to(device)[:, None]
        self._order = torch.arange(self._size, device=device).view(2, half).t().reshape(-1)
        self._fused: dict[str, torch.Tensor] = {}
        self._layers: list[_Layer] = []

    def load(self, named: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Copy the weights, fused; into the same memory when there are some already."""
        found = {
            name: parameter.detach().to(device=self.device, dtype=self.dtype)
            for name, parameter in named
        }
        layers = [self._layer(found, index) for index in range(self.cache_shape.num_layers)]
        embedding = found.pop("model.embed_tokens.weight")
        top = {
            "embedding": embedding,
            "norm": found.pop("model.norm.weight"),
            "head": found.pop("lm_head.weight", embedding),
        }
        if found:
            raise ConfigurationError(
                f"the weights have parts that the engine torch does not know: {', '.join(found)}"
            )
        self._keep(top, layers)

    def _keep(self, top: dict[str, torch.Tensor], layers: list[_Layer]) -> None:
        if not self._layers:
            self._fused = {name: tensor.clone() for name, tensor in top.items() if name != "head"}
            # a view, so that tied weights are kept once
            self._fused["head"] = (
                self._fused["embedding"] if top["head"] is top["embedding"] else top["head"].clone()
            ).t()
            self._layers = layers
            return
        pairs = [(self._fused[name], top[name]) for name in ("embedding", "norm")]
        pairs.append((self._fused["head"], top["head"].t()))
        for kept, new in zip(self._layers, layers, strict=True):
            pairs += [(getattr(kept, name), new_one) for name, new_one in vars(new).items()]
        for kept_one, new_one in pairs:
            if _shape(kept_one) != _shape(new_one):
                raise ConfigurationError(
                    f"the new weights have a part of shape {_shape(new_one)} where the old ones "
                    f"have {_shape(kept_one)}: this is another model"
                )
        for kept_one, new_one in pairs:
            if kept_one is not None and new_one is not None:
                kept_one.copy_(new_one)

    def _layer(self, found: dict[str, torch.Tensor], index: int) -> _Layer:
        prefix = f"model.layers.{index}"
        attention, mlp = f"{prefix}.self_attn", f"{prefix}.mlp"

        def fused(names: tuple[str, ...], kind: str) -> torch.Tensor | None:
            parts = [found.pop(f"{name}.{kind}", None) for name in names]
            if parts[0] is None:
                return None
            if names[0].endswith("q_proj"):
                parts[:2] = [self._reordered(part) for part in parts[:2]]
            return torch.cat(parts)

        qkv = tuple(f"{attention}.{name}_proj" for name in "qkv")
        gate_up = (f"{mlp}.gate_proj", f"{mlp}.up_proj")
        projections = {
            "qkv": qkv,
            "output": (f"{attention}.o_proj",),
            "gate_up": gate_up,
            "down": (f"{mlp}.down_proj",),
        }
        norms_before = {
            "qkv": found.pop(f"{prefix}.input_layernorm.weight"),
            "gate_up": found.pop(f"{prefix}.post_attention_layernorm.weight"),
        }
        parts: dict[str, Any] = {}
        for name, modules in projections.items():
            matrix = fused(modules, "weight")
            if matrix is None:
                raise ConfigurationError(f"the weights have no {modules[0]}.weight")
            if name in norms_before:
                matrix = matrix * norms_before[name]
            parts[name] = matrix.t().contiguous()
            parts[f"{name}_bias"] = fused(modules, "bias")
        norms = [found.pop(f"{attention}.{name}_norm.weight", None) for name in "qk"]
        if norms[0] is not None:
            counts = (self._num_heads, self.cache_shape.num_key_value_heads)
            parts["head_norms"] = torch.cat(
                [
                    norm[self._order].expand(count, -1)
                    for norm, count in zip(norms, counts, strict=True)
                ]
            )
        return _Layer(**parts)

    def _reordered(self, part: Any) -> torch.Tensor:
        heads = part.view(-1, self._size, *part.shape[1:])
        return heads[:, self._order].reshape(part.shape)

    def logits(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        step: AttentionStep,
        *,
        keep: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See `model_forward.Forward`."""
        states = self._states(token_ids, positions, step)
        if keep is not None:
            states = states.index_select(0, keep)
        return torch.mm(states, self._fused["head"]).float()

    def _states(
        self, token_ids: torch.Tensor, positions: torch.Tensor, step: AttentionStep
    ) -> torch.Tensor:
        size, num_heads = self._size, self._num_heads
        num_kv = self.cache_shape.num_key_value_heads
        turns = self._turns.index_select(0, positions)
        states = self._fused["embedding"].index_select(0, token_ids)
        rows = states.shape[0]
        for index, layer in enumerate(self._layers):
            normed = self._normed(states)
            qkv = _product(normed, layer.qkv, layer.qkv_bias)
            heads = qkv.view(rows, -1, size)
            rotating = heads[:, : num_heads + num_kv]
            if layer.head_norms is not None:
                rotating.copy_(self._normed(rotating).mul_(layer.head_norms))
            if self.dtype == torch.float32:
                torch.view_as_complex(rotating.unflatten(-1, (-1, 2))).mul_(turns)
            else:
                pairs = torch.view_as_complex(rotating.float().unflatten(-1, (-1, 2)))
                rotating.copy_(torch.view_as_real(pairs * turns).flatten(-2))
            attended = step.attend(index, heads[:, :num_heads], heads[:, num_heads:])
            states.addmm_(attended, layer.output)
            if layer.output_bias is not None:
                states += layer.output_bias
            normed = self._normed(states)
            gate, up = _product(normed, layer.gate_up, layer.gate_up_bias).chunk(2, dim=-1)
            states.addmm_(F.silu(gate) * up, layer.down)
            if layer.down_bias is not None:
                states += layer.down_bias
        return self._normed(states) * self._fused["norm"]

    def _normed(self, states: torch.Tensor) -> torch.Tensor:
        """RMSNorm (arXiv:1910.07467) without weights."""
        size = states.shape[-1]
        if self.dtype != torch.float32:
            return F.rms_norm(states, (size,), None, self._eps)
        # half the time of `rms_norm` on a CPU, where that is eight operations
        norm = torch.linalg.vector_norm(states, dim=-1, keepdim=True)
        return states * torch.addcmul(self._epsilon, norm, norm, value=1 / size).rsqrt_()


def _product(states: torch.Tensor, matrix: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return torch.mm(states, matrix) if bias is None else torch.addmm(bias, states, matrix)


def _shape(tensor: torch.Tensor | None) -> tuple[int, ...] | None:
    return None if tensor is None else tuple(tensor.shape)
