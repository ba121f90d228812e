"""`Runtime` and `PluginInstance`: where a plugin function runs in the cloud and how many at once.

Limits are the contract's (SURFACE DEC-11..23), not the underlying platform's.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from arkdev.errors import ConfigurationError
from arkdev.plugin.source import callers_place

MAX_TIMEOUT_S = 900
"""Longest time that one call of a plugin may take (DEC-13)."""


class PluginInstance(str, Enum):
    """Instance sizes: CPU cores and GB of memory, 1:2, 1:4 or 1:8 (DEC-12, DEC-18..23)."""

    CPU1MEM2 = "cpu1mem2"
    CPU1MEM4 = "cpu1mem4"
    CPU1MEM8 = "cpu1mem8"
    CPU2MEM4 = "cpu2mem4"
    CPU2MEM8 = "cpu2mem8"
    CPU2MEM16 = "cpu2mem16"
    CPU4MEM8 = "cpu4mem8"
    CPU4MEM16 = "cpu4mem16"
    CPU4MEM32 = "cpu4mem32"
    CPU8MEM16 = "cpu8mem16"
    CPU8MEM32 = "cpu8mem32"
    CPU8MEM64 = "cpu8mem64"
    CPU16MEM32 = "cpu16mem32"
    CPU16MEM64 = "cpu16mem64"
    CPU16MEM128 = "cpu16mem128"


class Runtime(BaseModel):
    """How a plugin runs as a cloud function. Out-of-range values raise `ConfigurationError`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    instance: PluginInstance = PluginInstance.CPU1MEM2
    timeout: float | None = None
    """Seconds for one call, over 0 and at most 900. None: the platform's own default."""
    max_concurrency: int = 10
    """Concurrent requests of one instance before another one starts, 1 to 100."""
    request_concurrency: int = 512
    """Calls that the training engine has in flight at once, at least 1."""
    min_replicas: int | None = None
    max_replicas: int | None = None

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise ConfigurationError(
                "; ".join(_sentence(problem) for problem in error.errors()),
                where=callers_place(),
                hint="Runtime takes " + ", ".join(type(self).model_fields),
            ) from None

    @field_validator("instance", mode="before")
    @classmethod
    def _any_case(cls, value: Any) -> Any:
        return value.lower() if isinstance(value, str) else value

    @field_validator("timeout")
    @classmethod
    def _timeout_in_range(cls, value: float | None) -> float | None:
        if value is not None and not 0 < value <= MAX_TIMEOUT_S:
            raise ValueError(f"must be over 0 and at most {MAX_TIMEOUT_S} seconds")
        return value

    @field_validator("max_concurrency")
    @classmethod
    def _concurrency_in_range(cls, value: int) -> int:
        if not 1 <= value <= 100:
            raise ValueError("must be from 1 to 100")
        return value

    @field_validator("request_concurrency", "max_replicas")
    @classmethod
    def _at_least_one(cls, value: int | None) -> int | None:
        if value is not None and value < 1:
            raise ValueError("must be at least 1")
        return value

    @field_validator("min_replicas")
    @classmethod
    def _not_negative(cls, value: int | None) -> int | None:
        if value is not None and value < 0:
            raise ValueError("must not be negative")
        return value

    def model_post_init(self, _context: Any) -> None:
        """Check the two replica counts against each other."""
        if (
            self.min_replicas is not None
            and self.max_replicas is not None
            and self.min_replicas > self.max_replicas
        ):
            raise ConfigurationError(
                f"Runtime: min_replicas ({self.min_replicas}) is larger than "
                f"max_replicas ({self.max_replicas})",
                where=callers_place(),
            )


def _sentence(problem: Any) -> str:
    name = ".".join(str(part) for part in problem["loc"])
    reason = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "extra_forbidden":
        return f"Runtime has no parameter {name!r}"
    return f"Runtime.{name}={problem['input']!r}: {reason}"
