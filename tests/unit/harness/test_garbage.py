"""Memory that stays flat, however long the rollouts of a run take."""

import gc
from collections import deque

from arkdev.harness.garbage import rare_garbage_collection


class _Client:
    """Refers to itself, as clients and their resources refer to each other."""

    num_alive = 0

    def __init__(self) -> None:
        self.resource = [self]
        _Client.num_alive += 1

    def __del__(self) -> None:
        _Client.num_alive -= 1


def test_clients_that_outlived_young_collections_are_freed_while_the_run_lasts():
    _Client.num_alive = 0
    num_in_flight, most = 6_000, 0
    with rare_garbage_collection():
        # each lives through more than two collections of young objects
        in_flight = deque(maxlen=num_in_flight)
        for _ in range(200_000):
            in_flight.append(_Client())
            most = max(most, _Client.num_alive)
        in_flight.clear()
    gc.collect()
    assert num_in_flight < most < 100_000


def test_the_settings_are_as_before_when_the_run_is_over():
    before = gc.get_threshold()
    with rare_garbage_collection():
        assert gc.get_threshold() != before
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)
