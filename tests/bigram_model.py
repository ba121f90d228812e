"""A causal LM whose distributions are known without running it: the next token hangs on the last.

The logits after token ``t`` are the row ``t`` of a table, exactly. Written as Qwen3 or Llama in
Hugging Face layout, without torch; the head is the embeddings, or weights of its own.

How: with ``e_t`` a unit vector of the first half of the hidden state and ``f_t`` one of the second,
token ``t`` has the embedding ``e_t + f_t``, attention adds nothing, and the MLP, whose gate is the
same for every token, adds ``g_t - f_t`` for a row ``g_t`` in the second half. The last norm makes
``w * sqrt(H) * g_t / sqrt(1 + |g_t|^2)`` of it, and nothing of the first half; the head reads that
coordinate by coordinate. For a row ``T_t`` of the table ``g_t = T_t / sqrt(w^2 * H - |T_t|^2)``.
An adapter adds the same vector to every ``g_t``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

VOCABULARY_SIZE = 16
CONTEXT_LENGTH = 256
HIDDEN_SIZE = 64
LORA_RANK = 8
ARCHITECTURES = {"qwen3": "Qwen3ForCausalLM", "llama": "LlamaForCausalLM"}

_NUM_INNER, _HEAD_DIM = 32, 32
_SECOND_HALF = slice(VOCABULARY_SIZE, 2 * VOCABULARY_SIZE)
_CONSTANT = VOCABULARY_SIZE
"""The inner value of the MLP that is the same after any token, for the adapter."""
_NORMED = math.sqrt(HIDDEN_SIZE / 2)
"""What the norm before the MLP makes of an embedding's two ones."""
_GATE = 2 * _NORMED / (1 + math.exp(-2 * _NORMED))
"""silu of their sum."""

Table = list[list[float]]


def random_table(seed: int) -> Table:
    """Logits between -2 and 2: every token is possible after every other."""
    generator = np.random.default_rng(seed)
    return generator.uniform(-2, 2, (VOCABULARY_SIZE, VOCABULARY_SIZE)).tolist()


def write_bigram_model(
    folder: Path, table: Table, *, architecture: str = "qwen3", is_tied: bool = True
) -> Path:
    """Write the model."""
    inner = np.zeros((_NUM_INNER, HIDDEN_SIZE), np.float32)
    inner[: _CONSTANT + 1] = 1
    up, down = np.zeros_like(inner), np.zeros_like(inner.T)
    added = _rows(table) - np.eye(VOCABULARY_SIZE)
    up[:VOCABULARY_SIZE, :VOCABULARY_SIZE] = added.T / (_GATE * _NORMED)
    up[_CONSTANT, :VOCABULARY_SIZE] = 1 / (_GATE * _NORMED)
    down[_SECOND_HALF, :VOCABULARY_SIZE] = np.eye(VOCABULARY_SIZE)
    last_norm = np.zeros(HIDDEN_SIZE, np.float32)
    last_norm[_SECOND_HALF] = _scale(table)
    norm, head_norm = np.ones(HIDDEN_SIZE, np.float32), np.ones(_HEAD_DIM, np.float32)
    square = np.zeros((HIDDEN_SIZE, HIDDEN_SIZE), np.float32)
    layer = {
        **{f"self_attn.{name}_proj": square for name in "qkvo"},
        **{"mlp.gate_proj": inner, "mlp.up_proj": up, "mlp.down_proj": down},
        **{"input_layernorm": norm, "post_attention_layernorm": norm},
    }
    if architecture == "qwen3":
        layer |= {"self_attn.q_norm": head_norm, "self_attn.k_norm": head_norm}
    tensors = {f"model.layers.0.{name}.weight": value for name, value in layer.items()}
    ones = np.tile(np.eye(VOCABULARY_SIZE), 2)
    embeddings = np.pad(ones, ((0, 0), (0, HIDDEN_SIZE - 2 * VOCABULARY_SIZE)))
    tensors["model.embed_tokens.weight"] = embeddings
    tensors["model.norm.weight"] = last_norm
    if not is_tied:
        tensors["lm_head.weight"] = embeddings
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(folder / "config.json", _config(architecture, is_tied=is_tied))
    write_safetensors(folder / "model.safetensors", tensors)
    return folder


def write_adapter(folder: Path, *, bias: Sequence[float]) -> Path:
    """Write a LoRA adapter over `write_bigram_model` that adds `bias` to every row ``g_t``."""
    into = np.zeros((LORA_RANK, _NUM_INNER), np.float32)
    out = np.zeros((HIDDEN_SIZE, LORA_RANK), np.float32)
    into[0, _CONSTANT] = 1
    out[_SECOND_HALF, 0] = bias
    name = "base_model.model.model.layers.0.mlp.down_proj.lora_{}.weight"
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": LORA_RANK,
        "lora_alpha": LORA_RANK,
        "target_modules": ["down_proj"],
        "bias": "none",
    }
    _write_json(folder / "adapter_config.json", settings)
    tensors = {name.format("A"): into, name.format("B"): out}
    write_safetensors(folder / "adapter_model.safetensors", tensors)
    return folder


def adapted_table(table: Table, *, bias: Sequence[float]) -> Table:
    """The table with the adapter."""
    rows = _rows(table) + np.asarray(bias)
    lengths = np.sqrt(1 + (rows**2).sum(1, keepdims=True))
    return (_scale(table) * math.sqrt(HIDDEN_SIZE) * rows / lengths).tolist()


def _scale(table: Table) -> float:
    """``w``: any that is large enough for the longest row."""
    return float(2 * np.linalg.norm(table, axis=1).max() / math.sqrt(HIDDEN_SIZE))


def _rows(table: Table) -> np.ndarray:
    """``g``."""
    values = np.asarray(table, np.float64)
    squares = (values**2).sum(1, keepdims=True)
    return values / np.sqrt(_scale(table) ** 2 * HIDDEN_SIZE - squares)


def write_safetensors(path: Path, tensors: dict[str, np.ndarray]) -> None:
    """Write float32 tensors in the format of https://github.com/huggingface/safetensors."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    parts, end = [], 0
    for name, values in tensors.items():
        part = np.ascontiguousarray(values, "<f4").tobytes()
        offsets = [end, end := end + len(part)]
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": offsets}
        parts.append(part)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(parts))


def log_softmax(
    logits: Sequence[float], *, temperature: float = 1.0, allowed: Sequence[int] | None = None
) -> list[float]:
    """Logprobs of a row of logits in float64; tokens that are not allowed have minus infinity."""
    kept = set(range(len(logits)) if allowed is None else allowed)
    scaled = [x / temperature if i in kept else -math.inf for i, x in enumerate(logits)]
    top = max(scaled)
    total = top + math.log(sum(math.exp(x - top) for x in scaled))
    return [x - total for x in scaled]


def _config(architecture: str, *, is_tied: bool) -> dict[str, object]:
    return {
        "architectures": [ARCHITECTURES[architecture]],
        "model_type": architecture,
        "vocab_size": VOCABULARY_SIZE,
        "hidden_size": HIDDEN_SIZE,
        "intermediate_size": _NUM_INNER,
        "num_hidden_layers": 1,
        "num_attention_heads": HIDDEN_SIZE // _HEAD_DIM,
        "num_key_value_heads": HIDDEN_SIZE // _HEAD_DIM,
        "head_dim": _HEAD_DIM,
        "max_position_embeddings": CONTEXT_LENGTH,
        "rms_norm_eps": 1e-12,
        "hidden_act": "silu",
        "tie_word_embeddings": is_tied,
        "attention_bias": False,
        "rope_theta": 10000.0,
        "bos_token_id": None,
        "eos_token_id": 0,
        "torch_dtype": "float32",
    }


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")
