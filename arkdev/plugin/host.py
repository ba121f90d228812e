"""The function host seam: where a plugin runs. Here: in this process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from arkdev.errors import PluginError, PluginTimeoutError
from arkdev.observe.held_calls import HeldCalls, current_held_calls
from arkdev.plugin.decorators import Plugin
from arkdev.plugin.loading import LoadedPlugin
from arkdev.plugin.runtime import MAX_TIMEOUT_S
from arkdev.plugin.source import place_of_exception, text_of_exception
from arkdev.plugin.threads import abandoned_calls

_LOOK_EVERY_S = 0.05
"""While a call is held back and little of the plugin's time is left."""
_TOLD_FROM_S = 0.05


@dataclass(frozen=True)
class HostCapabilities:
    """What a host can do beyond calling a plugin."""

    has_live_proxy: bool = False
    """The proxy object itself reaches the plugin, not a copy of its address."""
    has_tape: bool = False
    """What plugins get from outside can be recorded (``--record``)."""
    has_plugin_traffic: bool = False
    """HTTP calls of plugins are seen: faults of tools, limits of tools, the report on services."""
    has_stall_watch: bool = False
    """Code of plugins that holds others up is seen."""
    has_client_meter: bool = False
    """Model clients that plugins build for themselves are counted."""
    has_plugin_spans: bool = False
    """What plugins trace inside, and their HTTP calls, become spans."""


class FunctionHost(Protocol):
    """Where a plugin runs: in this process, or in instances of the FaaS emulator.

    `invoke` calls the plugin with the documented arguments, by position, and returns what it
    returned, unread. It raises whatever the plugin raised, `PluginTimeoutError` when the call took
    longer than its `Runtime.timeout` (the contract's maximum of 900 s when none is set; the time in
    which limits held calls of its back does not count), and `PluginError` when the plugin tried to
    end the process or was cancelled from inside.
    """

    capabilities: HostCapabilities

    async def invoke(self, loaded: LoadedPlugin, arguments: tuple[Any, ...]) -> Any:
        """Call the plugin once."""
        ...

    async def close(self) -> None:
        """Release what the host holds. Idempotent."""
        ...


class MeasuredHost(FunctionHost, Protocol):
    """A host of a whole run, which is asked at its end what ran out of time."""

    @property
    def num_timed_out(self) -> int:
        """Calls that took longer than their `Runtime.timeout`."""
        ...

    @property
    def num_left_running(self) -> int:
        """Of these, how many still run: a host that can end them has none."""
        ...


class InProcessHost:
    """Calls plugins in this process: async ones on the running loop, sync ones in threads."""

    capabilities = HostCapabilities(
        has_live_proxy=True,
        has_tape=True,
        has_plugin_traffic=True,
        has_stall_watch=True,
        has_client_meter=True,
        has_plugin_spans=True,
    )

    def __init__(self) -> None:
        self._left_behind: set[asyncio.Task[Any]] = set()
        self._abandoned_before = abandoned_calls()
        self.num_timed_out = 0
        """Calls that took longer than their `Runtime.timeout`."""

    @property
    def num_left_running(self) -> int:
        """Calls that were left behind and have not ended: tasks that will not, and threads."""
        return len(self._left_behind) + len(abandoned_calls() - self._abandoned_before)

    async def invoke(self, loaded: LoadedPlugin, arguments: tuple[Any, ...]) -> Any:
        """Call the plugin once, for at most its timeout.

        A call that took too long is cancelled and left behind, not waited for: the caller ends
        the attempt first, so that what the plugin does on its way out is refused.
        """
        held = current_held_calls.get() or HeldCalls()
        token = current_held_calls.set(held)
        call = asyncio.ensure_future(call_plugin(loaded, arguments))
        current_held_calls.reset(token)
        plugin = loaded.plugin
        timeout_s = plugin.runtime.timeout or MAX_TIMEOUT_S
        try:
            is_done = await is_done_in_time(call, held, timeout_s=timeout_s)
        except asyncio.CancelledError:
            self._leave_behind(call)
            raise
        finally:
            held.close()
        if not is_done:
            self._leave_behind(call)
            self.num_timed_out += 1
            raise timed_out(plugin.name, held, timeout_s=timeout_s, where=plugin.place)
        if call.cancelled():
            raise cancelled_inside(plugin)
        return call.result()

    def _leave_behind(self, call: asyncio.Task[Any]) -> None:
        call.cancel()
        self._left_behind.add(call)  # the loop itself holds tasks weakly
        call.add_done_callback(self._forget)

    def _forget(self, call: asyncio.Task[Any]) -> None:
        self._left_behind.discard(call)
        if not call.cancelled():
            call.exception()  # looked at, so that asyncio does not complain about it

    async def close(self) -> None:
        """Nothing to release."""


async def is_done_in_time(
    call: asyncio.Future[Any],
    held: HeldCalls,
    *,
    timeout_s: float,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Wait for a call; its clock stands still while limits hold calls of its back."""
    started = clock()
    while True:
        left_s = timeout_s - (clock() - started - held.held_s)
        if left_s <= 0:
            return call.done()
        wait_s = max(left_s, _LOOK_EVERY_S) if held.is_holding else left_s
        done, _ = await asyncio.wait({call}, timeout=wait_s)
        if done:
            return True


def timed_out(name: str, held: HeldCalls, *, timeout_s: float, where: str) -> PluginTimeoutError:
    """Return the error of a call of the plugin called `name` that took too long."""
    besides = f" besides {held.held_s:.3g} s in which limits held calls of its back"
    return PluginTimeoutError(
        f"{name} took longer than {timeout_s:g} s"
        + (besides if held.held_s >= _TOLD_FROM_S else ""),
        where=where,
        hint="make it faster, or raise Runtime(timeout=...) up to 900",
    )


async def call_plugin(loaded: LoadedPlugin, arguments: tuple[Any, ...]) -> Any:
    """Call a plugin. An outer decorator may be a plain function, so the result may be one too."""
    try:
        result = loaded.function(*arguments)
        return await result if hasattr(result, "__await__") else result
    except (Exception, asyncio.CancelledError):
        raise
    except BaseException as error:  # would end the loop, and with it every other rollout
        did = f"raised {text_of_exception(error)}"
        if isinstance(error, SystemExit):
            did = f"called sys.exit({error.code!r})"
        raise PluginError(
            f"{loaded.plugin.name} {did}",
            where=place_of_exception(error) or loaded.plugin.place,
            hint="raise an error or return a status; a plugin cannot end the process",
        ) from error


def cancelled_inside(plugin: Plugin) -> PluginError:
    """Return the error of a call that was cancelled, though nobody outside it did so."""
    return PluginError(
        f"{plugin.name} ended with asyncio.CancelledError, though nobody cancelled it",
        where=plugin.place,
        hint="catch CancelledError where the plugin awaits a task that it cancelled",
    )
