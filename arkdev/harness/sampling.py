"""Which sampling parameters a model call goes out with, and where each value came from.

Command flag > sample > hyperparameters > documented default (decision 12).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from arkdev.types import ChatCompletionSample

DOCUMENTED_DEFAULTS: dict[str, Any] = {
    "max_new_tokens": 4096,
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
}
"""The defaults of a sample's generation configuration (ROLL-20..23)."""

_NAMES = (*DOCUMENTED_DEFAULTS, "thinking")


def resolve_sampling(
    sample: ChatCompletionSample,
    *,
    flags: Mapping[str, Any],
    hyperparameters: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the sampling parameters of one sample, under the contract's names."""
    from_sample = {
        name: value
        for name, value in sample.model_dump(include=set(_NAMES), exclude_unset=True).items()
        if value is not None
    }
    sources = (flags, from_sample, hyperparameters, DOCUMENTED_DEFAULTS)
    return {
        name: next(source[name] for source in sources if name in source)
        for name in _NAMES
        if any(name in source for source in sources)
    }
