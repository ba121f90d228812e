"""How the policy is updated, as plain values: no tensor, no torch.

Names that job files have (`lr`, `clip_ratio_high`, ...) are the documented ones; the others are
arkdev's own, for training on this machine. What no document states has the default of the tools
that do this job; each field says whose.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Self

from arkdev.errors import ConfigurationError


class PolicyLoss(StrEnum):
    """What a token adds to the policy's loss (`arkdev.backends.local.losses`)."""

    PPO_IS = "ppo_is"
    MIS_PG = "mis_pg"
    TIS_PG = "tis_pg"


class KLEstimator(StrEnum):
    """How the distance to the reference is estimated (`arkdev.backends.local.kl`)."""

    K1 = "k1"
    K2 = "k2"
    K3 = "k3"


class KLPlace(StrEnum):
    """Where the distance to the reference counts."""

    LOSS = "loss"
    REWARD = "reward"


class Correction(StrEnum):
    """What is done about a sampler that differs (`arkdev.backends.local.correction`)."""

    NONE = "none"
    TRUNCATED = "truncated"
    MASKED = "masked"


class LRSchedule(StrEnum):
    """What the learning rate does after its warm-up."""

    CONSTANT = "constant"
    LINEAR = "linear"
    COSINE = "cosine"


@dataclass(frozen=True)
class LoraSettings:
    """Low-rank adapters (Hu et al. 2021, arXiv:2106.09685) on every linear layer but the head."""

    rank: int = 16
    alpha: float = 32.0
    """The adapters' product counts alpha / rank."""


@dataclass(frozen=True)
class UpdateSettings:
    """How a batch becomes an update. Raises `ConfigurationError` for a value out of its range."""

    lr: float = 1e-6
    """Hyperparameter. No document states a default; 1e-6 stands in public job files for full
    fine-tuning, and is TRL's."""
    lr_warmup_steps: int = 0
    """Hyperparameter. The steps before the learning rate is whole; the first has the smallest."""
    clip_ratio_low: float = 0.2
    """Hyperparameter. 0.2: public job files, and the PPO paper (arXiv:1707.06347)."""
    clip_ratio_high: float = 0.2
    """Hyperparameter; as above. 0.5 on both sides is recommended with mis_pg (OPD-17)."""
    kl_coefficient: float = 0.0
    """Hyperparameter. 0: there is no reference (TRL's default)."""
    num_iterations_per_batch: int = 1
    """Hyperparameter. Updates made of one batch, each of all of it."""
    temperature: float = 1.0
    """Hyperparameter. What the answers were sampled with: training has the same distribution."""
    num_steps: int = 1
    """Hyperparameter. The steps of the job; a schedule that falls ends there at 0."""
    policy_loss: PolicyLoss = PolicyLoss.PPO_IS
    """arkdev's own name: the documents give the values only (OPD-13 to OPD-15)."""
    kl_estimator: KLEstimator = KLEstimator.K3
    kl_place: KLPlace = KLPlace.LOSS
    """k3 in the loss is what the GRPO paper (arXiv:2402.03300, equation 4) and TRL have."""
    entropy_coefficient: float = 0.0
    """Above 0, answers that are more varied are rewarded."""
    correction: Correction = Correction.TRUNCATED
    """Without effect as long as the sampler answers as the trainer does. As in TRL."""
    correction_cap: float = 2.0
    """verl's threshold (``rollout_is_threshold``) and TRL's first."""
    correction_floor: float = 0.0
    """Weights below it are raised to it (truncated), or count as 0 (masked)."""
    lr_schedule: LRSchedule = LRSchedule.CONSTANT
    max_grad_norm: float = 1.0
    """The norm that the gradient is cut to (TRL and verl have 1.0)."""
    weight_decay: float = 0.0
    micro_batch_tokens: int = 0
    """Most tokens of one forward pass; a sequence that is longer has a pass of its own. 0: what
    suits the model and the device (`arkdev.backends.local.policy`)."""

    def __post_init__(self) -> None:
        """Check every range, and name all that are wrong."""
        problems = tuple(
            f"{name}={getattr(self, name)!r}: {wanted} is expected"
            for name, (is_right, wanted) in _RANGES.items()
            if not (math.isfinite(getattr(self, name)) and is_right(getattr(self, name)))
        )
        if self.correction_floor > self.correction_cap:
            problems += (f"correction_floor is above correction_cap ({self.correction_cap})",)
        if problems:
            raise ConfigurationError("; ".join(problems), problems=problems)

    @property
    def learns_without_advantages(self) -> bool:
        """Whether KL or entropy give a gradient where all advantages are 0."""
        return bool(self.kl_coefficient or self.entropy_coefficient)

    @classmethod
    def from_hyperparameters(cls, values: Mapping[str, Any]) -> Self:
        """Take what `values` has of these names and leave the rest at its default.

        Other names (`batch_size`, `max_new_tokens`, ...) are for other parts and passed over.
        Raises `ConfigurationError` for a value that cannot be meant.
        """
        known = {field.name: type(getattr(_DEFAULTS, field.name)) for field in fields(cls)}
        given = {}
        for name, value in values.items():
            if name in known:
                given[name] = _read(name, value, kind=known[name])
        return cls(**given)


def _read(name: str, value: Any, *, kind: type) -> Any:
    try:
        read = kind(value)
        if kind is int and not isinstance(value, str) and read != value:
            raise ValueError(value)
    except (TypeError, ValueError) as error:
        options = (
            ", ".join(kind) if issubclass(kind, StrEnum) else f"a value of type {kind.__name__}"
        )
        raise ConfigurationError(
            f"{name}={value!r} cannot be read", hint=f"expected: {options}"
        ) from error
    return read


_RANGES: dict[str, tuple[Any, str]] = {
    "lr": (lambda value: value > 0, "a number above 0"),
    "lr_warmup_steps": (lambda value: value >= 0, "0 or more"),
    "clip_ratio_low": (lambda value: 0 <= value <= 1, "a number from 0 to 1"),
    "clip_ratio_high": (lambda value: value >= 0, "0 or more"),
    "kl_coefficient": (lambda value: value >= 0, "0 or more"),
    "num_iterations_per_batch": (lambda value: value >= 1, "1 or more"),
    "temperature": (lambda value: value >= 0, "0 or more"),
    "num_steps": (lambda value: value >= 1, "1 or more"),
    "entropy_coefficient": (lambda value: value >= 0, "0 or more"),
    "correction_cap": (lambda value: value > 0, "a number above 0"),
    "correction_floor": (lambda value: value >= 0, "0 or more"),
    "max_grad_norm": (lambda value: value > 0, "a number above 0"),
    "weight_decay": (lambda value: value >= 0, "0 or more"),
    "micro_batch_tokens": (lambda value: value >= 0, "0 or more"),
}

_DEFAULTS = UpdateSettings()


def learning_rate(step: int, *, settings: UpdateSettings) -> float:
    """Return the learning rate of a step, from 0: it depends on nothing else, also after a resume.

    With w warm-up steps, step s < w has lr (s + 1) / (w + 1). After that a schedule that falls
    goes from lr, at step w, to 0, at `num_steps` (one step after the last).

    >>> linear = LRSchedule.LINEAR
    >>> falling = UpdateSettings(lr=1, lr_warmup_steps=1, num_steps=5, lr_schedule=linear)
    >>> [learning_rate(step, settings=falling) for step in range(5)]
    [0.5, 1.0, 0.75, 0.5, 0.25]
    """
    warmup = settings.lr_warmup_steps
    if step < warmup:
        return settings.lr * (step + 1) / (warmup + 1)
    if settings.lr_schedule is LRSchedule.CONSTANT:
        return settings.lr
    left = max(0.0, min(1.0, (settings.num_steps - step) / max(1, settings.num_steps - warmup)))
    if settings.lr_schedule is LRSchedule.LINEAR:
        return settings.lr * left
    return settings.lr * (1 - math.cos(math.pi * left)) / 2
