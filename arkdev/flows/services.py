"""What runs beside the engine while rollouts run: the endpoint, the gateway, the blocking loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from arkdev.endpoints.endpoint import Endpoint
from arkdev.flows.limits import LimitsInForce, limits_in_force
from arkdev.flows.opening import Opening, open_any
from arkdev.flows.recording import PluginTestObserver
from arkdev.flows.refusals import RefusalWatch
from arkdev.flows.test_plan import PluginTestPlan
from arkdev.harness.rollouts import SessionDoor
from arkdev.sessions.background import BackgroundLoop
from arkdev.sessions.retries import RetryPolicy
from arkdev.sessions.session import SessionServices

_MODEL_CALL_TIMEOUT_S = 600.0
"""As the platform's own client waits for an answer."""


@dataclass(frozen=True)
class Services:
    """What runs beside the engine."""

    sessions: SessionServices
    door: SessionDoor
    endpoint: RefusalWatch
    limits: LimitsInForce


@asynccontextmanager
async def running_services(
    plan: PluginTestPlan,
    observer: PluginTestObserver,
    retries: RetryPolicy,
    *,
    endpoint: Endpoint | None = None,
) -> AsyncIterator[Services]:
    """Run what the sessions share: the endpoint, the gateway and the loop of blocking calls.

    `endpoint` is one that is open already, in place of the plan's; it is closed here all the same.
    """
    opening = Opening(
        max_in_flight=plan.max_in_flight,
        timeout_s=_MODEL_CALL_TIMEOUT_S,
        skill=plan.request.skill,
        script=plan.request.script,
        is_deterministic=plan.request.seed is not None,
        say=observer.on_progress,
    )
    opened = endpoint or await open_any(plan.endpoint, opening)
    background = BackgroundLoop()
    background.start()
    limits = limits_in_force(
        opened,
        plan.endpoint,
        plan.workspace,
        background=background,
        adaptive_up_to=plan.max_in_flight if plan.request.adaptive else None,
    )
    watched = RefusalWatch(limits.endpoint, sends_per_call=retries.max_retries + 1)
    gateway = import_module("arkdev.sessions.gateway").Gateway()
    try:
        await watched.check_reachable()
        await background.call(gateway.start())
        sessions = SessionServices(
            endpoint=watched,
            gateway_url=gateway.url,
            blocking_loop=background.loop,
            retries=retries,
            on_turn=observer.on_turn,
            faults=plan.faults,
            looks_beside=plan.looks_for_leaks,
        )
        yield Services(sessions=sessions, door=gateway, endpoint=watched, limits=limits)
    finally:
        await asyncio.shield(_closed(gateway, background, watched))


async def _closed(gateway: Any, background: BackgroundLoop, endpoint: Endpoint) -> None:
    await background.call(gateway.stop())
    await endpoint.close()  # before its connections' loop ends
    background.stop()
