"""What models cost: the ``[prices]`` of arkworkspace.toml. arkdev knows no prices of its own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PRICES = ("currency", "training_per_hour", "models")
MODEL_PRICE = ("input_per_million", "output_per_million")


@dataclass(frozen=True)
class ModelPrice:
    """Of one model, for 1,000,000 tokens."""

    input_per_million: float
    output_per_million: float


@dataclass(frozen=True)
class Prices:
    """The table; empty when the workspace has none."""

    currency: str = ""
    training_per_hour: float | None = None
    models: Mapping[str, ModelPrice] = field(default_factory=dict)


def price_problem(value: Any) -> str:
    """Say what is wrong with a price; "" when nothing is.

    >>> price_problem(0.8), price_problem(-1)
    ('', 'a number of at least 0 is expected, not -1')
    """
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number and math.isfinite(value) and value >= 0:
        return ""
    return f"a number of at least 0 is expected, not {value!r}"
