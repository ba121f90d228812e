"""How many rollouts run at once: what is asked for, and what their `Runtime` lets through."""

from __future__ import annotations

from arkdev.errors import UsageError
from arkdev.flows.named_plugins import DEFAULT_ROLLOUT
from arkdev.plugin.loading import LoadedPlugin

_MAX_CONCURRENCY = 100_000
"""More is a slip of the keyboard: no machine holds so many rollouts."""


def rollouts_at_once(asked: int, rollout: LoadedPlugin) -> int:
    """Return how many calls of `rollout` may be under way: at most its `request_concurrency`.

    That holds at the caller, in the cloud and here (DEC-15); the built-in rollout is no function
    and has none. Raises `UsageError` for a slip of the keyboard.
    """
    if asked > _MAX_CONCURRENCY:
        raise UsageError(
            f"{asked} rollouts at once are more than {_MAX_CONCURRENCY:,}",
            hint="set --concurrency, or batch_size in the job, to what the endpoint can serve",
        )
    limit = rollout.plugin.runtime.request_concurrency
    return asked if rollout.reference == DEFAULT_ROLLOUT else min(asked, limit)


def notes_on_rollouts_at_once(asked: int, rollout: LoadedPlugin) -> tuple[str, ...]:
    """Say that fewer rollouts run at once than are asked for, and why."""
    allowed = rollouts_at_once(asked, rollout)
    if allowed == asked:
        return ()
    plugin = rollout.plugin
    return (
        f"{allowed} rollouts at once and not {asked}: that is the request_concurrency of "
        f"{plugin.name} ({plugin.place})",
    )
