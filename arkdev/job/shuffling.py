"""Orders and draws that are the same on every machine and under every version of Python.

The algorithm, so that it can be repeated elsewhere:

* A *stream* has a seed (any whole number) and labels (texts and whole numbers). Its generator is
  the Mersenne Twister MT19937 as `random.Random` seeds it with one whole number: the SHA-256 of
  ``arkdev`` and the decimal seed and the labels, joined by ``/``, in UTF-8, read big-endian.
* Only `random.Random.random` is used: the one method of which Python promises the same numbers
  for the same seed in every version.
* An order of 0..n-1 is Fisher and Yates' shuffle: for i from n-1 down to 1, swap what stands at i
  and at floor(random() * (i + 1)).
* A draw of k out of n is the first k of such an order, sorted.

Indices take 8 bytes each (`array("Q")`). 10 million take about 5 s to shuffle.
"""

from __future__ import annotations

import hashlib
import random
from array import array


def shuffled(size: int, *, seed: int, labels: tuple[str | int, ...]) -> array[int]:
    """Return 0..size-1 in the order of the stream (`seed`, `labels`)."""
    order = array("Q", range(size))
    draw = _generator(seed, labels).random
    for last in range(size - 1, 0, -1):
        other = int(draw() * (last + 1))
        order[last], order[other] = order[other], order[last]
    return order


def drawn(count: int, *, size: int, seed: int, labels: tuple[str | int, ...]) -> array[int]:
    """Return `count` different numbers of 0..size-1, ascending."""
    return array("Q", sorted(shuffled(size, seed=seed, labels=labels)[:count]))


def _generator(seed: int, labels: tuple[str | int, ...]) -> random.Random:
    name = "/".join(map(str, ("arkdev", seed, *labels)))
    return random.Random(int.from_bytes(hashlib.sha256(name.encode()).digest(), "big"))
