"""Proxies on a live session with the scripted model, for rollouts that a test calls itself."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arkdev.endpoints.registry import SCRIPTED, open_endpoint
from arkdev.harness.sampling import resolve_sampling
from arkdev.plugin.proxy import InferenceProxy
from arkdev.sessions.gateway import Gateway
from arkdev.sessions.identity import AttemptIdentity
from arkdev.sessions.retries import RetryPolicy
from arkdev.sessions.session import Session, SessionServices
from arkdev.testing.background import Background
from arkdev.testing.tracebacks import with_short_tracebacks
from arkdev.types import ChatCompletionSample

_AT_ONCE = RetryPolicy(first_wait_s=0.001)
"""A scripted error is tried again as in a run, but nobody waits for it."""

_MAX_IN_FLIGHT = 512
_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class _Running:
    background: Background
    gateway: Gateway


class ProxyFactory:
    """Makes proxies as a run makes them; their sessions end with the test."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._running: _Running | None = None
        self._num_made = 0

    @with_short_tracebacks
    def __call__(
        self,
        sample: ChatCompletionSample | Mapping[str, Any],
        *,
        skill: float | None = None,
        script: Path | str | None = None,
        seed: int = 0,
        is_group: bool = False,
    ) -> InferenceProxy:
        """Return a proxy for one call of a rollout on `sample`, with a session of its own.

        Its clients, wrapped and raw, reach a scripted model of this `skill` (or `script`), and
        `messages`, `usage` and `finish_reason` are the trajectory so far. `is_group` is for a group
        rollout.
        """
        read = (
            sample if isinstance(sample, ChatCompletionSample) else ChatCompletionSample(**sample)
        )
        running = self._started()
        endpoint = open_endpoint(
            SCRIPTED,
            max_in_flight=_MAX_IN_FLIGHT,
            timeout_s=_TIMEOUT_S,
            skill=skill,
            script=Path(script) if script else None,
        )
        session = Session(
            AttemptIdentity(self._num_made, generation=0, attempt=0, run_seed=seed, phase="train"),
            sampling=resolve_sampling(read, flags={}, hyperparameters={}),
            services=SessionServices(
                endpoint=endpoint,
                gateway_url=running.gateway.url,
                blocking_loop=running.background.loop,
                retries=_AT_ONCE,
            ),
        )
        self._num_made += 1
        running.gateway.open(session)
        self._stack.callback(running.gateway.close, session)
        return InferenceProxy(read, access=session, is_group=is_group)

    def _started(self) -> _Running:
        if self._running is None:
            background, gateway = Background(self._stack), Gateway()
            background.run(gateway.start())
            self._stack.callback(lambda: background.run(gateway.stop()))
            self._running = _Running(background, gateway)
        return self._running
