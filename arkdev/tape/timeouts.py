"""Attempts that ran out of time: a tape says which, and replay ends them where their lines end.

What took the time, a slow model or a busy machine, is not there any more on replay.
"""

from __future__ import annotations

import asyncio
from typing import Any

from arkdev.errors import PluginTimeoutError
from arkdev.plugin.host import FunctionHost
from arkdev.plugin.loading import LoadedPlugin
from arkdev.plugin.runtime import MAX_TIMEOUT_S
from arkdev.tape.recording import Recording, current_stream
from arkdev.tape.replay import Replay


class RecordedHost:
    """Calls plugins in another host, and records which calls ran out of time."""

    def __init__(self, host: FunctionHost, recording: Recording) -> None:
        self.capabilities = host.capabilities
        self._host = host
        self._recording = recording

    async def invoke(self, loaded: LoadedPlugin, arguments: tuple[Any, ...]) -> Any:
        """See `FunctionHost`."""
        try:
            return await self._host.invoke(loaded, arguments)
        except PluginTimeoutError:
            self._recording.timeout(current_stream())
            raise

    async def close(self) -> None:
        """See `FunctionHost`."""
        await self._host.close()


class ReplayedHost:
    """Calls plugins in another host; the calls that ran out of time do so again, at once."""

    def __init__(self, host: FunctionHost, replay: Replay) -> None:
        self.capabilities = host.capabilities
        self._host = host
        self._replay = replay

    async def invoke(self, loaded: LoadedPlugin, arguments: tuple[Any, ...]) -> Any:
        """See `FunctionHost`."""
        stream = current_stream()
        if not self._replay.ran_out_of_time(stream):
            return await self._host.invoke(loaded, arguments)
        is_over, loop = asyncio.Event(), asyncio.get_running_loop()
        self._replay.on_out_of_time[stream] = lambda: loop.call_soon_threadsafe(is_over.set)
        calling = asyncio.ensure_future(self._host.invoke(loaded, arguments))
        waiting = asyncio.ensure_future(is_over.wait())
        try:
            await asyncio.wait({calling, waiting}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            calling.cancel()
        if calling.done() and not is_over.is_set():
            calling.result()  # raises what the plugin raised
        plugin = loaded.plugin
        raise PluginTimeoutError(
            f"{plugin.name} took longer than {plugin.runtime.timeout or MAX_TIMEOUT_S:g} s",
            where=plugin.place,
            hint="it did when it was recorded; record it anew once it is faster",
        )

    async def close(self) -> None:
        """See `FunctionHost`."""
        await self._host.close()
