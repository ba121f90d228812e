"""How far several graders agree: Krippendorff's alpha for numbers on an interval scale.

    alpha = 1 - D_o / D_e      distance of two rewards: (a - b)²

D_o is the mean distance of two rewards of the same trajectory, D_e that of any two rewards: 1 is
full agreement, 0 what chance gives, below 0 is opposition (K. Krippendorff, Computing
Krippendorff's Alpha-Reliability, 2011). A reward may be missing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from arkdev.harness.distributions import unit_of_squares


def krippendorff_alpha(units: Sequence[Sequence[float | None]]) -> float | None:
    """Return alpha; `units` has for each trajectory the rewards that the graders gave it.

    None where fewer than two rewards differ or no trajectory has two.

    >>> krippendorff_alpha([(1, 1), (2, 2), (3, 3)])
    1.0
    """
    paired = [[v for v in unit if v is not None] for unit in units]
    paired = [unit for unit in paired if len(unit) > 1]
    scale = unit_of_squares([value for unit in paired for value in unit])
    paired = [[value / scale for value in unit] for unit in paired]
    values = [value for unit in paired for value in unit]
    expected = _distances(values)
    if not expected:
        return None
    observed = math.fsum(_distances(unit) / (len(unit) - 1) for unit in paired)
    return 1 - (len(values) - 1) * observed / expected


def _distances(values: Sequence[float]) -> float:
    """Return the sum of (a - b)² over all ordered pairs."""
    if not values:
        return 0.0
    mean = math.fsum(values) / len(values)
    return 2 * len(values) * math.fsum((value - mean) ** 2 for value in values)
