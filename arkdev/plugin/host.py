"""The function host seam: where a plugin runs. Here: in this process."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Protocol

from arkdev.errors import PluginTimeoutError
from arkdev.plugin.loading import LoadedPlugin
from arkdev.plugin.runtime import MAX_TIMEOUT_S

_CANCEL_GRACE_S = 1.0


@dataclass(frozen=True)
class HostCapabilities:
    """What a host can do beyond calling a plugin."""

    has_live_proxy: bool = False
    """The proxy object itself reaches the plugin, not a copy of its address."""


class FunctionHost(Protocol):
    """Where a plugin runs: in this process, later a child process or a container.

    `invoke` calls the plugin with the documented arguments, by position, and returns what it
    returned, unread. It raises whatever the plugin raised, and `PluginTimeoutError` when the call
    took longer than its `Runtime.timeout` (the contract's maximum of 900 s when none is set).
    """

    capabilities: HostCapabilities

    async def invoke(self, loaded: LoadedPlugin, arguments: tuple[Any, ...]) -> Any:
        """Call the plugin once."""
        ...

    async def close(self) -> None:
        """Release what the host holds. Idempotent."""
        ...


class InProcessHost:
    """Calls plugins in this process: async ones on the running loop, sync ones in threads."""

    capabilities = HostCapabilities(has_live_proxy=True)

    async def invoke(self, loaded: LoadedPlugin, arguments: tuple[Any, ...]) -> Any:
        """Call the plugin once, for at most its timeout."""
        timeout_s = loaded.plugin.runtime.timeout or MAX_TIMEOUT_S
        call = asyncio.ensure_future(_await(loaded.function(*arguments)))
        try:
            done, _ = await asyncio.wait({call}, timeout=timeout_s)
        except asyncio.CancelledError:
            call.cancel()
            raise
        if done:
            return call.result()
        call.cancel()
        # A plugin that swallows the cancellation is left behind; its late calls are refused.
        await asyncio.wait({call}, timeout=_CANCEL_GRACE_S)
        raise PluginTimeoutError(
            f"{loaded.plugin.name} took longer than {timeout_s:g} s",
            where=loaded.plugin.place,
            hint="make it faster, or raise Runtime(timeout=...) up to 900",
        )

    async def close(self) -> None:
        """Nothing to release."""


async def _await(result: Any) -> Any:
    """Await what a plugin call gave, or return it: an outer decorator may be a plain function."""
    return await result if hasattr(result, "__await__") else result
