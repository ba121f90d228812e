"""Hyperparameters as they are written, strings or numbers alike (SURFACE X-22).

The names below are those that public job files use. They say which values have to be numbers and
which top-level keys were meant for `hyperparameters`; other names pass as they are.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from arkdev.job.ranges import range_missed
from arkdev.job.spelling import closest

NUMERIC_NAMES = frozenset(
    {
        "batch_size",
        "clip_ratio_high",
        "clip_ratio_low",
        "epoch",
        "kl_coefficient",
        "kl_reward_coef",
        "learning_rate",
        "lora_alpha",
        "lora_rank",
        "lr",
        "lr_warmup_steps",
        "max_new_tokens",
        "num_generations",
        "num_iterations_per_batch",
        "num_steps",
        "save_every_n_steps",
        "seq_len",
        "task_reward_coef",
        "temperature",
        "test_every_n_steps",
        "test_num_generations",
        "test_top_p",
        "top_k",
        "top_p",
        "warmup_step_rate",
    }
)
KNOWN_NAMES = NUMERIC_NAMES | {"loss_agg_mode", "save_model_per_epoch"}
_COUNTS = frozenset({"batch_size", "num_generations"})

_INTEGER = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")


def parse_number(text: str) -> int | float | None:
    """Return the finite decimal number that `text` spells, or None."""
    if len(text) > 40:
        return None
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        value = float(text)
        return value if math.isfinite(value) else None
    return None


def check_value(name: str, value: object) -> object:
    """Return the value of one hyperparameter, as a number where its name asks for one.

    Raises ValueError, with a sentence that can follow the name, for what cannot be meant.
    """
    if value is None or not isinstance(value, (str, int, float)):
        raise ValueError(f"a string, a number or a boolean is expected, not {value!r}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is not a finite number")
    if name not in NUMERIC_NAMES:
        return value
    number = parse_number(value.strip()) if isinstance(value, str) else value
    if number is None or isinstance(number, bool):
        raise ValueError(f"{value!r} is not a number")
    wanted = range_missed(name, number)
    if wanted:
        raise ValueError(f"{value!r} given; {wanted} is expected")
    return _checked_count(number) if name in _COUNTS else number


def _checked_count(number: int | float) -> int:
    if number != int(number) or number < 1:
        raise ValueError(f"{number!r} is not a whole number of at least 1")
    return int(number)


def suspicious_names(values: Mapping[str, object]) -> dict[str, str]:
    """Return a sentence for each unknown name that is close to a known one, by name."""
    pairs = ((name, closest(name, KNOWN_NAMES)) for name in values if name not in KNOWN_NAMES)
    return {
        name: f"hyperparameters.{name} is not a name that arkdev knows; did you mean {match!r}?"
        for name, match in pairs
        if match
    }
