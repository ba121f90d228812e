"""What the options of ``--faas`` may be."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arkdev.flows.test_request import PluginTestRequest

STOP_INSTANCES_WITHIN_S = 20.0


class InstanceEngine(StrEnum):
    """``--faas-engine``"""

    AUTO = "auto"
    CONTAINER = "container"
    PROCESS = "process"


class FunctionNetwork(StrEnum):
    """``--network``"""

    OPEN = "open"
    HOST_ONLY = "host-only"


def give_up_after_s(request: PluginTestRequest) -> float:
    """Return how long the end of an interrupted run may take.

    No plugin blocks this process when plugins run in instances, and these are to be removed.
    """
    from arkdev.cli.interrupts import GIVE_UP_AFTER_S

    return STOP_INSTANCES_WITHIN_S if request.faas else GIVE_UP_AFTER_S
