"""Instances that are no processes, their HTTP, and time that passes as soon as all wait for it."""

from __future__ import annotations

import asyncio
import json
import selectors
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from arkdev.errors import ArkdevError
from arkdev.faas_emulator.answers import Answer, ConnectionLostError
from arkdev.faas_emulator.functions import FunctionSpec
from arkdev.faas_emulator.instances import InstanceEnd, InstanceLimits, InstanceUsage
from arkdev.faas_emulator.pool import Pool, PoolEvents
from arkdev.faas_emulator.records import InstanceRecord, InvocationRecord, InvocationStatus
from arkdev.observe.attempt import current_attempt
from arkdev.plugin.decorators import PluginKind
from arkdev.plugin.runtime import Runtime

T = TypeVar("T")


class _NoWait(selectors.DefaultSelector):
    """Lets the loop's clock jump to where it would have waited."""

    skipped_s = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0 if timeout is None or timeout > 0 else timeout)
        if not ready and timeout:
            self.skipped_s += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._no_wait = _NoWait()
        super().__init__(self._no_wait)

    def time(self) -> float:
        return 1000.0 + self._no_wait.skipped_s


def run_virtually(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)


def function(**runtime: Any) -> FunctionSpec:
    return FunctionSpec(
        name="grader",
        reference="plugins.grader:grade",
        root=Path(),
        kind=PluginKind.SINGLE_GRADER,
        runtime=Runtime(**runtime),
        place="plugins/grader.py:7",
    )


@dataclass
class FakeInstance:
    id: str
    url: str
    ready_s: float
    import_s: float = 0.01
    end: InstanceEnd | None = None
    is_stopped: bool = False
    is_gone: bool = False
    """Refuses connections."""
    num_calls: int = 0
    max_calls: int = 0
    lost: asyncio.Event = field(default_factory=asyncio.Event)

    async def usage(self) -> InstanceUsage:
        return InstanceUsage(memory_peak_mb=64.0, cpu_s=0.5)

    async def ended(self) -> InstanceEnd | None:
        return None if self.is_stopped else self.end

    async def stop(self) -> None:
        await asyncio.sleep(0.2)
        self.is_stopped = True

    def crash(self, status: InvocationStatus, detail: str = "exit code 3") -> None:
        self.end = InstanceEnd(status, detail)
        self.is_gone = True
        self.lost.set()


class FakeLauncher:
    def __init__(self, *, start_s: float = 1.0, failures: list[ArkdevError] | None = None) -> None:
        self.start_s = start_s
        self.failures = failures or []
        self.started: list[FakeInstance] = []
        self.ordered_at: list[float] = []
        self.num_starting = self.max_alive = 0
        self.attempts: list[object] = []
        """That the starts are made in."""

    def limits(self, function: FunctionSpec) -> InstanceLimits:
        return InstanceLimits(None, None)

    async def prepare(self) -> None: ...

    async def start(self, function: FunctionSpec, *, on_log: Any) -> FakeInstance:
        self.ordered_at.append(asyncio.get_running_loop().time())
        self.attempts.append(current_attempt.get())
        self.num_starting += 1
        self.max_alive = max(self.max_alive, self.num_starting + self.num_alive)
        try:
            await asyncio.sleep(self.start_s)
        finally:
            self.num_starting -= 1
        if self.failures:
            raise self.failures.pop(0)
        number = len(self.started)
        instance = FakeInstance(f"i{number}", str(number), self.start_s)
        self.started.append(instance)
        return instance

    async def close(self) -> None: ...

    @property
    def num_alive(self) -> int:
        return sum(not instance.is_stopped for instance in self.started)


class FakeClient:
    """Plugins that take the seconds that a request says, and then do what it says."""

    def __init__(self, launcher: FakeLauncher) -> None:
        self._launcher = launcher
        self.begun: list[int] = []
        """The requests' numbers."""

    async def post(self, url: str, body: bytes, *, request_id: str) -> Answer:
        instance = self._launcher.started[int(url)]
        request = json.loads(body)
        if instance.is_gone or instance.is_stopped:
            raise ConnectionLostError("refused", was_sent=False)
        self.begun.append(request["number"])
        instance.num_calls += 1
        instance.max_calls = max(instance.max_calls, instance.num_calls)
        try:
            work = asyncio.create_task(asyncio.sleep(request["takes_s"]))
            lost = asyncio.create_task(instance.lost.wait())
            try:
                await asyncio.wait([work, lost], return_when=asyncio.FIRST_COMPLETED)
            finally:
                work.cancel()
                lost.cancel()
        finally:
            instance.num_calls -= 1
        if instance.lost.is_set():
            raise ConnectionLostError("reset", was_sent=True)
        if "crash" in request:
            instance.crash(InvocationStatus(request["crash"]))
            raise ConnectionLostError("reset", was_sent=True)
        if request.get("is_cut"):
            raise ConnectionLostError("cut short", was_sent=True)
        return Answer(200, {"result": request["number"]})


@dataclass
class FakePool:
    launcher: FakeLauncher
    client: FakeClient
    pool: Pool
    invocations: list[InvocationRecord]
    ended: list[InstanceRecord]

    async def call(self, number: int, takes_s: float = 1.0, **what: Any) -> Any:
        body = {"number": number, "takes_s": takes_s, **what}
        answer = await self.pool.invoke(body, request_id=f"r{number}")
        return answer.document["result"]

    def record(self, number: int) -> InvocationRecord:
        return next(r for r in self.invocations if r.request_id == f"r{number}")


def fake_pool(
    *,
    start_s: float = 1.0,
    failures: list[ArkdevError] | None = None,
    idle_s: float = 60.0,
    **runtime: Any,
) -> FakePool:
    launcher = FakeLauncher(start_s=start_s, failures=failures)
    client = FakeClient(launcher)
    invocations: list[InvocationRecord] = []
    ended: list[InstanceRecord] = []
    events = PoolEvents(on_invocation=invocations.append, on_instance=ended.append)
    pool = Pool(
        function(**runtime),
        launcher,
        client,
        events,
        idle_s,
        asyncio.get_running_loop().time,
    )
    return FakePool(launcher, client, pool, invocations, ended)
