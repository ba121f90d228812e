"""Exceptions that a plugin raises to say what should become of its call."""

from __future__ import annotations


class RolloutFailedException(Exception):
    """Leaving a rollout, it means FAILURE, as any other exception does (X-32, an older name)."""


class RolloutRetryException(Exception):
    """Leaving a rollout, it means RETRY (ROLL-17). Raised by tools; back-off may catch it first."""
