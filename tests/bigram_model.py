"""A causal LM whose distributions are known without running it: the next token hangs on the last.

Its embeddings are unit vectors, its layer adds nothing, so the logits after token ``t`` are the row
``t`` of a table, exactly. Written as Qwen3 or Llama in Hugging Face layout, without torch.

An adapter adds a known vector to what the layer puts out, so its table is known too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

VOCABULARY_SIZE = 16
CONTEXT_LENGTH = 256
HIDDEN_SIZE = 32
LORA_RANK = 8
ARCHITECTURES = {"qwen3": "Qwen3ForCausalLM", "llama": "LlamaForCausalLM"}

_NUM_INNER = 32
_SPARE = HIDDEN_SIZE - 1
"""A direction of the hidden state that no token has; the adapter writes to it."""
_INNER = math.sqrt(HIDDEN_SIZE)
_INNER_VALUE = _INNER / (1 + math.exp(-_INNER)) * _INNER
"""silu(gate) * up of the first inner value, after any token."""

Table = list[list[float]]


def random_table(seed: int) -> Table:
    """Logits between -2 and 2: every token is possible after every other."""
    generator = np.random.default_rng(seed)
    values = generator.uniform(-2, 2, (VOCABULARY_SIZE, VOCABULARY_SIZE))
    return [[float(np.float32(value)) for value in row] for row in values]


def write_bigram_model(
    folder: Path, table: Table, *, architecture: str = "qwen3", bias: Sequence[float] = ()
) -> Path:
    """Write the model; `bias` is what an adapter can add to the logits."""
    head = np.zeros((VOCABULARY_SIZE, HIDDEN_SIZE), np.float32)
    head[:, :VOCABULARY_SIZE] = np.asarray(table).T / math.sqrt(HIDDEN_SIZE)
    if bias:
        head[:, _SPARE] = np.asarray(bias) / math.sqrt(HIDDEN_SIZE)
    square = np.zeros((HIDDEN_SIZE, HIDDEN_SIZE), np.float32)
    inner = np.zeros((_NUM_INNER, HIDDEN_SIZE), np.float32)
    inner[0] = 1  # whichever token it is, the first inner value is the same
    norm = np.ones(HIDDEN_SIZE, np.float32)
    layer = {
        **{f"self_attn.{name}_proj": square for name in "qkvo"},
        **{"mlp.gate_proj": inner, "mlp.up_proj": inner, "mlp.down_proj": inner.T * 0},
        **{"input_layernorm": norm, "post_attention_layernorm": norm},
    }
    if architecture == "qwen3":
        layer |= {"self_attn.q_norm": norm, "self_attn.k_norm": norm}
    tensors = {f"model.layers.0.{name}.weight": value for name, value in layer.items()}
    tensors["model.embed_tokens.weight"] = np.eye(VOCABULARY_SIZE, HIDDEN_SIZE, dtype=np.float32)
    tensors["model.norm.weight"] = norm
    tensors["lm_head.weight"] = head
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(folder / "config.json", _config(architecture))
    write_safetensors(folder / "model.safetensors", tensors)
    return folder


def write_adapter(folder: Path, *, strength: float) -> Path:
    """Write a LoRA adapter over `write_bigram_model`; see `adapted_table`."""
    into = np.zeros((LORA_RANK, _NUM_INNER), np.float32)
    out = np.zeros((HIDDEN_SIZE, LORA_RANK), np.float32)
    into[0, 0] = 1
    out[_SPARE, 0] = strength / _INNER_VALUE
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


def adapted_table(table: Table, *, bias: Sequence[float], strength: float) -> Table:
    """The table with the adapter: the norm before the head shares out what was added."""
    shrink = math.sqrt(1 + strength**2)
    return [
        [(logit + strength * added) / shrink for logit, added in zip(row, bias, strict=True)]
        for row in table
    ]


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


def _config(architecture: str) -> dict[str, object]:
    return {
        "architectures": [ARCHITECTURES[architecture]],
        "model_type": architecture,
        "vocab_size": VOCABULARY_SIZE,
        "hidden_size": HIDDEN_SIZE,
        "intermediate_size": _NUM_INNER,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "head_dim": HIDDEN_SIZE,
        "max_position_embeddings": CONTEXT_LENGTH,
        "rms_norm_eps": 1e-12,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "attention_bias": False,
        "rope_theta": 10000.0,
        "bos_token_id": None,
        "eos_token_id": 0,
        "torch_dtype": "float32",
    }


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")
