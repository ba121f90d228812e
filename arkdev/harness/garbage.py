"""Garbage collection that does not stop hundreds of rollouts for what was imported."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """Look for cycles rarely, and never among what was imported.

    A full collection stops every rollout for as long as it takes to walk all imported modules;
    with hundreds of rollouts in flight that was a quarter of the time.
    """
    threshold = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(1_000, 10, 1000)
    try:
        yield
    finally:
        gc.set_threshold(*threshold)
        gc.unfreeze()
