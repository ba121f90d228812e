"""How long the end of a command may take whose plugins run in instances."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arkdev.flows.test_request import PluginTestRequest

STOP_INSTANCES_WITHIN_S = 20.0


def give_up_after_s(request: PluginTestRequest) -> float:
    """Return how long the end of an interrupted run may take.

    No plugin blocks this process when plugins run in instances, and these are to be removed.
    """
    from arkdev.cli.interrupts import GIVE_UP_AFTER_S

    return STOP_INSTANCES_WITHIN_S if request.faas else GIVE_UP_AFTER_S
