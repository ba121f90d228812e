"""The policy that is trained: a causal language model of transformers, whole or with adapters.

* *Precision.* What is trained is kept in float32. On a GPU the passes run in bfloat16 (autocast):
  weights kept in bfloat16 would lose most updates, since lr 1e-6 is far below their 8 bits. The
  frozen base of adapters is in bfloat16 there. On a CPU all is float32.
* *Reference.* With adapters, the base without them. Else a frozen copy, made only when asked for.
* *No dropout.* The model stays in evaluation mode: a ratio of 1 before any update is exact.
* *Layout.* When a policy is loaded, a short pass in the packed layout (`packing`, `attention`,
  `head`) is compared with transformers' own, one sequence at a time. A model for which they differ,
  or that cannot take the layout at all, is trained in padded batches by its own code; `layout`
  and `layout_reason` tell.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Literal, Self

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor
from transformers import PreTrainedModel

from arkdev.backends.local import attention
from arkdev.backends.local.batch import TrainingSequence
from arkdev.backends.local.head import chosen_logprobs
from arkdev.backends.local.model_loading import load_model
from arkdev.backends.local.packing import MicroBatch, pack
from arkdev.backends.local.settings import LoraSettings
from arkdev.errors import ConfigurationError

Layout = Literal["packed", "padded"]

_TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 1e-1}
"""How far logprobs of the two layouts may be apart on average, in nats: rounding alone."""


_LARGEST_PASS = {"cpu": 2048, "cuda": 32_768}
_MEMORY_OF_A_PASS = 1 << 30
"""Bytes of what a pass keeps for its backward pass, on a CPU."""
_LAYERS = frozenset({"full_attention", "sliding_attention"})
"""The layer types of a configuration in transformers whose attention `attention` knows."""


class Policy:
    """A model and what training asks of it: logprobs of a pass's trained tokens."""

    def __init__(
        self,
        model: PreTrainedModel | PeftModel,
        *,
        dtype: torch.dtype = torch.float32,
        keeps_reference: bool = False,
    ) -> None:
        """Take a model that is on its device; `dtype` is what its passes run in.

        Raises `ConfigurationError` for another than float32 and bfloat16.
        """
        if dtype not in _TOLERANCE:
            raise ConfigurationError(
                f"passes in {dtype} are not built here", hint="choose float32 or bfloat16"
            )
        self.model = model.eval()
        self.has_adapters = isinstance(model, PeftModel)
        self.layout: Layout
        self.layout_reason: str
        self._reference: PreTrainedModel | None = None
        if keeps_reference and not self.has_adapters:
            self._reference = copy.deepcopy(model).requires_grad_(False)
        # in the precision of the weights, where two layouts can be told from two roundings
        self.dtype = next(model.parameters()).dtype
        with torch.no_grad():
            self.layout, self.layout_reason = self._choose_layout()
        self.dtype = dtype

    @classmethod
    def load(
        cls,
        folder: Path | str,
        *,
        lora: LoraSettings | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        keeps_reference: bool = False,
    ) -> Self:
        """Load a Hugging Face folder: for full fine-tuning, or with new adapters.

        Adapters are drawn from torch's generator and begin without effect.

        `device` is a GPU where there is one; `dtype` follows from it. `keeps_reference` is needed
        for a KL penalty. Raises what `load_model` raises.
        """
        place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        chosen = dtype or (torch.bfloat16 if place.type == "cuda" else torch.float32)
        model: Any = load_model(folder, dtype=chosen if lora else torch.float32).to(place)
        if lora is not None:
            model = _with_adapters(model, lora)
        return cls(model, dtype=chosen, keeps_reference=keeps_reference)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.model.parameters()).device

    @property
    def has_reference(self) -> bool:
        """Whether `reference_logprobs` can answer."""
        return self.has_adapters or self._reference is not None

    def trained_parameters(self) -> dict[str, torch.nn.Parameter]:
        """Return by name what is trained: all weights, or those of the adapters."""
        return {name: p for name, p in self.model.named_parameters() if p.requires_grad}

    def tokens_of_a_pass(self) -> int:
        """Return how many tokens a pass should have, by an estimate of what it keeps in memory.

        On a CPU larger passes are not faster, so they stay small.
        """
        config = _causal(self.model).config.get_text_config()
        intermediate = getattr(config, "intermediate_size", 4 * config.hidden_size)
        numbers = config.num_hidden_layers * (16 * config.hidden_size + 4 * intermediate)
        of_a_token = 4 * numbers
        if self.device.type == "cuda":
            free, _ = torch.cuda.mem_get_info(self.device)
            free += torch.cuda.memory_reserved(self.device)
            free -= torch.cuda.memory_allocated(self.device)
            most_memory, most_tokens = free // 4, _LARGEST_PASS["cuda"]
        else:
            most_memory, most_tokens = _MEMORY_OF_A_PASS, _LARGEST_PASS["cpu"]
        return int(max(1, min(most_tokens, most_memory // of_a_token)))

    def pack(self, sequences: Sequence[TrainingSequence], *, most_tokens: int) -> list[MicroBatch]:
        """Return the forward passes of some sequences, in the layout that suits the model."""
        return pack(
            sequences,
            most_tokens=most_tokens,
            device=self.device,
            is_packed=self.layout == "packed",
        )

    def token_logprobs(self, packed: MicroBatch, *, temperature: float) -> Tensor:
        """Return the logprobs of the trained tokens, float32 ``[trained]``, with gradient.

        They are those of the distribution at `temperature` (field case 4.1).
        """
        return self.scores(packed, temperature=temperature)[0]

    def scores(self, packed: MicroBatch, *, temperature: float) -> tuple[Tensor, Tensor]:
        """Return the logprobs of the trained tokens and the entropies where they were sampled."""
        return self._scores(self.model, packed, temperature)

    def reference_logprobs(self, packed: MicroBatch, *, temperature: float) -> Tensor:
        """Return the trained tokens' logprobs by the reference, without gradient.

        Raises `ConfigurationError` when no reference is kept.
        """
        if self.has_adapters:
            with torch.no_grad(), self.model.disable_adapter():
                return self._scores(self.model, packed, temperature)[0]
        if self._reference is None:
            raise ConfigurationError(
                "the policy has no reference to compare with",
                hint="load it with keeps_reference, or with adapters",
            )
        with torch.no_grad():
            return self._scores(self._reference, packed, temperature)[0]

    def _scores(self, model: Any, packed: MicroBatch, temperature: float) -> tuple[Tensor, Tensor]:
        causal = _causal(model)
        if packed.plan is None:
            with self._autocast():
                logits = causal(
                    input_ids=packed.token_ids,
                    attention_mask=packed.attention_mask,
                    position_ids=packed.position_ids,
                    use_cache=False,
                ).logits
            logits = logits.flatten(0, 1)[packed.predictors].float() / (temperature or 1.0)
            return _of_logits(logits, packed.targets)
        if causal.config._attn_implementation != attention.NAME:
            causal.set_attn_implementation(attention.NAME)
        with self._autocast():
            output = causal.base_model(
                input_ids=packed.token_ids,
                # of no use, but a mask of this shape keeps the model from making one
                attention_mask=packed.token_ids.new_ones((1, 1, 1, 1)),
                position_ids=packed.position_ids,
                use_cache=False,
                pass_attention=attention.PassAttention(packed.plan),
            )
        hidden = output.last_hidden_state[0].index_select(0, packed.predictors).to(self.dtype)
        head = causal.get_output_embeddings()
        return chosen_logprobs(
            hidden,
            head.weight,
            getattr(head, "bias", None),
            targets=packed.targets,
            temperature=temperature,
        )

    def _autocast(self) -> AbstractContextManager[Any]:
        if self.dtype == torch.float32:
            return nullcontext()
        autocast: AbstractContextManager[Any] = torch.autocast(self.device.type, dtype=self.dtype)
        return autocast

    def _choose_layout(self) -> tuple[Layout, str]:
        """Try the packed layout on sequences that share, and compare with the padded one."""
        causal = _causal(self.model)
        obstacle = _obstacle_to_packing(causal)
        if obstacle:
            return "padded", f"{type(causal).__name__} cannot be packed: {obstacle}"
        own = causal.config._attn_implementation
        sequences = list(_trial_sequences(causal.config.get_text_config().vocab_size))
        try:
            packed = pack(sequences, most_tokens=1 << 20, device=self.device)
            logprobs = [self._scores(self.model, batch, 1.0)[0] for batch in packed]
        except (NotImplementedError, TypeError, ValueError, AttributeError) as error:
            causal.set_attn_implementation(own)
            return "padded", f"{type(causal).__name__} cannot be packed: {error}"
        causal.set_attn_implementation(own)
        gaps = []
        for batch, ours in zip(packed, logprobs, strict=True):
            chosen = [sequences[index] for index in batch.sequences]
            alone = [
                pack([sequence], most_tokens=1, device=self.device, is_packed=False)[0]
                for sequence in chosen
            ]
            theirs = torch.cat([self._scores(self.model, one, 1.0)[0] for one in alone])
            gaps.append((ours - theirs).abs())
        gap = float(torch.cat(gaps).mean())
        if not gap <= _TOLERANCE[self.dtype]:
            return "padded", (
                f"{type(causal).__name__} answers differently when packed (by {gap:.2g} nats)"
            )
        return "packed", f"packed and padded answers agree (within {gap:.1g} nats)"


def _causal(model: Any) -> Any:
    """Return transformers' model inside of peft's, whose layers carry the adapters."""
    return model.get_base_model() if isinstance(model, PeftModel) else model


def _obstacle_to_packing(causal: Any) -> str:
    """Return what a short trial could miss."""
    config = causal.config.get_text_config()
    if not causal._can_set_attn_implementation():
        return "it does not take another attention"
    others = set(getattr(config, "layer_types", None) or ()) - _LAYERS
    if others:
        return f"layers of type {', '.join(sorted(others))}"
    if getattr(config, "final_logit_softcapping", None):
        return "its logits are capped behind the head"
    return ""


def _with_adapters(model: PreTrainedModel, lora: LoraSettings) -> PeftModel:
    config = LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=0.0,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
    with warnings.catch_warnings():
        # peft reads a property of the model that transformers has renamed
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated")
        return get_peft_model(model, config)


def _of_logits(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    logs = torch.log_softmax(logits, dim=1)
    entropy = -(logs.exp() * logs.clamp_min(-1e4)).sum(dim=1)
    return logs.gather(1, targets[:, None])[:, 0], entropy


def _trial_sequences(vocabulary: int) -> Iterator[TrainingSequence]:
    """Yield four sequences with common beginnings, of ids that follow no pattern."""
    ids = [(index * 7919 + 13) % vocabulary for index in range(200)]
    endings = (ids[40:70], ids[90:101], ids[40:55] + ids[120:130])
    for own in (*(ids[:24] + ending for ending in endings), ids[150:180]):
        ones = (1.0,) * len(own)
        yield TrainingSequence(
            trajectory_id="",
            sample_index=0,
            token_ids=tuple(own),
            loss_mask=(True,) * len(own),
            rollout_logprobs=ones,
            advantages=ones,
            token_weights=ones,
            policy_version=0,
        )
