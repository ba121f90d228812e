"""Garbage collection that does not stop hundreds of rollouts for what was imported."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """Look for cycles rarely, and never among what was imported before.

    A full collection stops every rollout for as long as it takes to walk all imported modules;
    with hundreds of rollouts in flight that was a quarter of the time. It must take place all the
    same: a model client and its resources refer to each other, and those of a rollout that waits
    for seconds are too old for the collections of young objects when it ends.
    """
    threshold = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.collect()  # of nothing: a full one is due once a quarter as much as it left has grown old
    gc.set_threshold(1_000, 10, 10)
    try:
        yield
    finally:
        gc.set_threshold(*threshold)
        gc.unfreeze()
