"""What the command line of `arkdev debug` said."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from arkdev.flows.test_request import PluginTestRequest

DEFAULT_BATCH_SIZE = 32
DEFAULT_NUM_GENERATIONS = 8
"""The documents name no defaults of these two."""


@dataclass(frozen=True)
class DebugRequest(PluginTestRequest):
    """A test of plugins step by step; None is unset."""

    steps: int | None = None
    """Over the job's `num_steps`."""
    batch_size: int | None = None
    """Over the job's."""
    validation_limit: int | None = None
    """At most so many samples of the validation set in each round; 0: no rounds."""
    keep_going: bool = False
    """Go on where a job would have failed."""
    teacher_endpoint: str | None = None
    """Name or URL of what answers in the place of an OPD job's teachers."""
    teacher_model: str | None = None
    tokenizer: Path | None = None
    """Counts tokens where the endpoint gives no token ids."""
