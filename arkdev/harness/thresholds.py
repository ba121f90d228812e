"""Numbers that a test must reach, and whether chance alone could have made it reach them.

A mean of n rewards is an estimate. A threshold is met when the lower end of its one-sided 95 %
confidence interval reaches it::

    mean - z · se >= threshold        z = 1.645

`se` is clustered by sample (`distributions.clustered_standard_error`; Miller, "Adding Error Bars to
Evals", 2024, arXiv:2411.00640). With one sample there is none, and with equal rewards it is 0: then
the mean itself is compared.
"""

from __future__ import annotations

from dataclasses import dataclass

from arkdev.harness.summary import Summary

Z = 1.645
"""95 % of a normal distribution lies above its mean - 1.645 standard deviations."""

_ROUNDING = 1e-9
"""0.1 + 0.2 weighs less or more than 0.3, depending on the order."""


@dataclass(frozen=True)
class ThresholdResult:
    """One threshold and what came of it."""

    name: str
    """``reward_mean`` or ``success_rate``."""
    at_least: float
    value: float | None
    """None: nothing was graded, so the threshold is missed."""
    standard_error: float | None
    num_graded: int
    z: float
    lower_end: float | None
    """``value - z * standard_error``, which is compared with `at_least`."""
    is_met: bool

    def __str__(self) -> str:
        """Say in one line what was compared with what."""
        name = self.name.replace("_", " ")
        if self.value is None or self.lower_end is None:
            return f"{name}: nothing was graded, at least {self.at_least:g} was asked for"
        shown = f"{name} {self.value:.4g}"
        if self.standard_error is None:
            shown += f" (n = {self.num_graded}, one sample: no standard error)"
        else:
            shown += f" (n = {self.num_graded}, standard error {self.standard_error:.3g})"
            if self.standard_error and self.z:
                shown += f": {self.value:.4g} - {self.z:g} x {self.standard_error:.3g}"
                shown += f" = {self.lower_end:.4g}"
        return f"{shown}, at least {self.at_least:g} was asked for"


def reward_mean_at_least(at_least: float, *, summary: Summary, z: float = Z) -> ThresholdResult:
    """Compare the mean of the weighted rewards."""
    reward = summary.reward
    return _compared(
        "reward_mean",
        at_least,
        value=reward.mean if reward else None,
        standard_error=reward.standard_error if reward else None,
        num_graded=reward.num_graded if reward else 0,
        z=z,
    )


def success_rate_at_least(at_least: float, *, summary: Summary, z: float = Z) -> ThresholdResult:
    """Compare the share of graded rollouts that reached `summary.success_threshold`."""
    success = summary.success
    return _compared(
        "success_rate",
        at_least,
        value=success.rate if success else None,
        standard_error=success.standard_error if success else None,
        num_graded=success.num_graded if success else 0,
        z=z,
    )


def _compared(
    name: str,
    at_least: float,
    *,
    value: float | None,
    standard_error: float | None,
    num_graded: int,
    z: float,
) -> ThresholdResult:
    lower_end = None if value is None else value - z * (standard_error or 0.0)
    return ThresholdResult(
        name=name,
        at_least=at_least,
        value=value,
        standard_error=standard_error,
        num_graded=num_graded,
        z=z,
        lower_end=lower_end,
        is_met=lower_end is not None and lower_end >= at_least - _ROUNDING,
    )
