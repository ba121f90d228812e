"""What a user may choose of a deployment. Light: the command line shows it in its help."""

from __future__ import annotations

from enum import StrEnum


class InstanceKind(StrEnum):
    """Where instances run (``--faas-engine``)."""

    AUTO = "auto"
    """In containers where an engine answers, else in child processes."""
    CONTAINER = "container"
    PROCESS = "process"


class NetworkPolicy(StrEnum):
    """What functions may reach (``--network``)."""

    OPEN = "open"
    """Everything that this machine reaches, over the engine's default network."""
    HOST_ONLY = "host-only"
    """This machine alone, over a network of the deployment without a way out."""
