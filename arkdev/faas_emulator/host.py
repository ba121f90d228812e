"""A function host whose plugins run in instances: the pools of a run's functions.

The trajectory is no part of an answer: the model calls of an instance go to the session of their
attempt, through the gateway (decision 7).
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from arkdev.faas_emulator.pool import Pool
from arkdev.faas_emulator.worker.answers import answer_of
from arkdev.faas_emulator.worker.requests import request_body
from arkdev.observe.attempt import AttemptPlace, place_here
from arkdev.observe.held_calls import HeldCalls, current_held_calls
from arkdev.plugin.host import HostCapabilities, MeasuredHost
from arkdev.plugin.loading import LoadedPlugin

_MAX_REQUESTS = 100_000
"""Remembered: an instance may write lines of a request that has ended."""


class Requests:
    """Which attempt a request belongs to, also a while after its end. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: OrderedDict[str, AttemptPlace | None] = OrderedDict()

    def begin(self) -> str:
        """Return the id of a new request of the attempt that runs here."""
        request_id, place = secrets.token_hex(8), place_here()
        with self._lock:
            self._places[request_id] = place
            if len(self._places) > _MAX_REQUESTS:
                self._places.popitem(last=False)
        return request_id

    def place_of(self, request_id: str) -> AttemptPlace | None:
        """Return the attempt of a request; None: nobody knows."""
        with self._lock:
            return self._places.get(request_id)


_BUILT_IN = "arkdev."
"""How references of the platform's own plugins begin."""


@dataclass(frozen=True)
class Deployed:
    """A plugin of a run, and the pool of its function."""

    loaded: LoadedPlugin
    pool: Pool


class FaasHost:
    """Implements `arkdev.plugin.host.MeasuredHost`. Close its pools where they were made.

    `gateway_url` is where instances reach the sessions. A plugin that is no function, as the
    built-in rollout is none, runs on the host `built_in`.
    """

    capabilities = HostCapabilities()

    def __init__(
        self,
        functions: Sequence[Deployed],
        *,
        requests: Requests,
        gateway_url: str,
        built_in: MeasuredHost,
    ) -> None:
        self._built_in = built_in
        self._functions = tuple(functions)
        self._requests = requests
        self._gateway_url = gateway_url

    @property
    def pools(self) -> tuple[Pool, ...]:
        """One for each function."""
        return tuple(function.pool for function in self._functions)

    @property
    def num_timed_out(self) -> int:
        """Calls that took longer than their `Runtime.timeout`."""
        of_pools = sum(pool.num_timed_out for pool in self.pools)
        return of_pools + self._built_in.num_timed_out

    @property
    def num_left_running(self) -> int:
        """Those of the built-in plugins: an instance is stopped with what still runs in it."""
        return self._built_in.num_left_running

    async def invoke(self, loaded: LoadedPlugin, arguments: tuple[Any, ...]) -> Any:
        """Call the plugin once, in an instance of its function.

        Raises what the plugin raised, `PluginTimeoutError`, and `InstanceError` when the instance
        ended or none can be started.
        """
        pool = self._pool_of(loaded)
        if pool is None:
            if not loaded.reference.startswith(_BUILT_IN):
                raise LookupError(f"{loaded.reference} is no function of this deployment")
            return await self._built_in.invoke(loaded, arguments)
        held = current_held_calls.get() or HeldCalls()
        body = request_body(loaded.plugin, arguments, url=self._gateway_url)
        try:
            answer = await pool.invoke(body, request_id=self._requests.begin(), held=held)
        finally:
            held.close()
        return answer_of(answer.document, plugin=loaded.plugin, root=pool.function.root)

    def _pool_of(self, loaded: LoadedPlugin) -> Pool | None:
        # by identity: a job may have one plugin twice, with other variables
        return next((each.pool for each in self._functions if each.loaded is loaded), None)

    async def close(self) -> None:
        """Stop all instances. Idempotent."""
        await asyncio.gather(*(pool.close() for pool in self.pools))
        await self._built_in.close()
