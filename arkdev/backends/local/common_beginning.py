"""How far two sequences say the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def num_common(one: Sequence[Any], other: Sequence[Any]) -> int:
    """Return the length of the common beginning.

    >>> num_common([5, 6, 7], [5, 6, 8, 9])
    2
    """
    for index, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return index
    return min(len(one), len(other))
