"""The command's side of a replay's processes: starts them, hears them out, ends what hangs."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from arkdev.errors import PluginError, PluginTimeoutError
from arkdev.flows.replay_jobs import TAPE_MISMATCH, GradingJob, Job, RolloutJob
from arkdev.flows.replay_plan import ReplayPlan
from arkdev.flows.replay_wire import HEAD_BYTES, end_group, length_of, send, unpacked
from arkdev.harness.attempts import MAX_ATTEMPTS
from arkdev.harness.rollouts import FinishedRollout, SampleToRun
from arkdev.observe.log_lines import LogLine
from arkdev.plugin.decorators import PluginKind
from arkdev.plugin.runtime import MAX_TIMEOUT_S
from arkdev.runs.records import Attempt, GroupRecord, TrajectoryRecord, Verdict

_GRACE_S = 5.0
"""A process that hangs past its plugin's timeout, which it watches itself, is ended after this."""
_END_TIMEOUT_S = 5.0
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Libraries that would start threads when they are imported, in a process that is to be forked."""


class Server:
    """One `arkdev.flows.replay_server` process."""

    def __init__(self, plan: ReplayPlan) -> None:
        self._plan = plan
        self._lock = asyncio.Lock()
        self._control: _Connection | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self.can_fork = False

    async def start(self) -> None:
        """Start it and wait until it has imported the plugins. Raises what it could not do."""
        ours, theirs = socket.socketpair()
        hash_seed = self._plan.source.header.hash_seed
        with theirs:
            self._process = subprocess.Popen(  # noqa: ASYNC220 (returns at once; never awaited)
                [sys.executable, "-m", "arkdev.flows.replay_server", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=sys.__stderr__,
                cwd=os.getcwd(),
                process_group=0,
                env={
                    **os.environ,
                    **_ONE_THREAD,
                    **({"PYTHONHASHSEED": hash_seed} if hash_seed else {}),
                    "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
                },
            )
        self._control = await _Connection.of(ours)
        self._control.send((self._plan.request, self._plan.secrets))
        what, content = await self._answer()
        if what == "failed":
            raise content
        self.can_fork = content

    async def fork(self, job: Job, descriptor: int) -> int:
        """Start a process for a job; returns its id."""
        async with self._lock:
            self._connection.send(("run", job), descriptor)
            _, pid = await self._answer()
        return int(pid)

    async def status_of(self, pid: int) -> int:
        """Return how a process that has ended did so, as `os.waitpid` says it."""
        async with self._lock:
            self._connection.send(("ended", pid))
            _, (_, status) = await self._answer()
        return int(status)

    def run_here(self, job: Job, descriptor: int) -> int:
        """Let the server do a job itself, its only one; returns its process id."""
        assert self._process is not None
        self._connection.send(("run here", job), descriptor)
        return self._process.pid

    def wait(self) -> int:
        """Wait for a server that did a job itself; returns its exit status."""
        assert self._process is not None
        return self._process.wait(_END_TIMEOUT_S)

    def stop(self) -> None:
        """End it and what it forked."""
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            try:
                self._process.wait(_END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            finally:
                end_group(self._process.pid)

    @property
    def _connection(self) -> _Connection:
        assert self._control is not None
        return self._control

    async def _answer(self) -> tuple[str, Any]:
        message = await self._connection.receive()
        if message is None:
            assert self._process is not None
            self._process.wait(_END_TIMEOUT_S)
            raise PluginError(
                "the process that imports the plugins for a replay ended: "
                f"{_ending(self._process.returncode)}",
                hint="its last words are above",
            )
        what, content = message
        return what, content


class Children:
    """Does the jobs of a replay, each in a process of its own, at most `plan.concurrency` at once.

    It is what an `Engine` runs rollouts and gradings with.
    """

    def __init__(
        self, plan: ReplayPlan, server: Server, *, on_log: Callable[[LogLine], None]
    ) -> None:
        self._plan = plan
        self._server: Server | None = server
        self._forks = server.can_fork
        self._on_log = on_log
        self._slots = asyncio.Semaphore(plan.concurrency)
        self._pids: set[int] = set()

    @property
    def makes_groups(self) -> bool:
        """See `arkdev.harness.rollouts.RolloutRunner`."""
        return self._plan.rollout.plugin.kind is PluginKind.GROUP_ROLLOUT

    async def run(
        self, sample: SampleToRun, *, generations: range, run_seed: int
    ) -> list[FinishedRollout]:
        """Run one rollout again. A process that died or hung is the rollout's failure."""
        started = time.perf_counter()
        job = RolloutJob(sample, generations, run_seed)
        plugin = self._plan.rollout.plugin
        limit_s = plugin.runtime.timeout or MAX_TIMEOUT_S
        try:
            result: list[FinishedRollout] = await self._do(job, limit_s=limit_s)
        except PluginError as error:
            hint = f"\nhint: {error.hint}" if error.hint else ""
            duration_s = time.perf_counter() - started
            attempt = Attempt(
                Verdict.FAILURE,
                duration_s=duration_s,
                error=f"{type(error).__name__}: {error.message}{hint}",
                where=plugin.place,
            )
            record = TrajectoryRecord(
                trajectory_id=f"{sample.index}.{generations[0]}",
                sample_index=sample.index,
                generation=generations[0],
                verdict=Verdict.FAILURE,
                duration_s=duration_s,
                attempts=(attempt,),
                messages=tuple(sample.plain_messages),
                call_size=len(generations),
            )
            return [FinishedRollout(record)]
        return result

    async def grade(self, sample: SampleToRun, rollouts: Sequence[FinishedRollout]) -> GroupRecord:
        """Grade a sample again. A group of which a rollout left the tape is not graded."""
        job = GradingJob(sample, tuple(rollouts))
        left = [r.record for r in rollouts if mismatch_of(r.record) is not None]
        if left:
            text = f"not graded: rollout {left[0].trajectory_id} left the tape"
            return _ungraded(job, text)
        limits = [grader.loaded.plugin.runtime.timeout for grader in self._plan.graders]
        limit_s = MAX_ATTEMPTS * len(rollouts) * max(limit or MAX_TIMEOUT_S for limit in limits)
        try:
            result: GroupRecord = await self._do(job, limit_s=limit_s)
        except PluginError as error:
            return _ungraded(job, f"{type(error).__name__}: {error.message}")
        return result

    async def _do(self, job: Job, *, limit_s: float) -> Any:
        async with self._slots:
            server = await self._server_for_one()
            ours, theirs = socket.socketpair()
            with theirs:
                if self._forks:
                    pid = await server.fork(job, theirs.fileno())
                else:
                    pid = server.run_here(job, theirs.fileno())
            self._pids.add(pid)
            connection = await _Connection.of(ours)
            try:
                return await self._heard(connection, pid, server, limit_s=limit_s)
            finally:
                self._pids.discard(pid)
                connection.close()
                if not self._forks:
                    server.stop()

    async def _server_for_one(self) -> Server:
        """Return the server, or one for this job alone where processes cannot be forked."""
        server = self._server
        if self._forks and server is not None:
            return server
        self._server = None  # it has imported the plugins: the first job is its own
        if server is None:
            server = Server(self._plan)
            await server.start()
        return server

    async def _heard(
        self, connection: _Connection, pid: int, server: Server, *, limit_s: float
    ) -> Any:
        result: Any = None
        has_result = is_late = False
        deadline = time.monotonic() + limit_s + _GRACE_S
        while True:
            try:
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    message = await connection.receive()
            except TimeoutError:
                is_late = True
                break
            if message is None:
                break
            what, content = message
            if what == "log":
                self._on_log(content)
            elif what == "attempt":
                deadline = time.monotonic() + limit_s + _GRACE_S
            elif what == "result":
                result, has_result = content, True
                break  # a process that the plugin started may hold the socket open
            else:
                raise RuntimeError(f"a process of the replay failed: {content}")
        if is_late:
            end_group(pid)
        status = await server.status_of(pid) if self._forks else server.wait()
        if is_late:
            raise PluginTimeoutError(
                f"its process did not end within {limit_s:g} s, and was ended",
                hint="something blocks it: it did not react to its timeout",
            )
        if not has_result:
            code = os.waitstatus_to_exitcode(status) if self._forks else status
            raise PluginError(f"its process ended before its result: {_ending(code)}")
        return result

    def stop(self) -> None:
        """End what still runs."""
        for pid in self._pids:
            end_group(pid)
        if self._server is not None:
            self._server.stop()


@asynccontextmanager
async def children_of(
    plan: ReplayPlan, *, on_log: Callable[[LogLine], None]
) -> AsyncIterator[Children]:
    """Start what a replay's processes come from; raises `ConfigurationError` as planning does."""
    server = Server(plan)
    try:
        await server.start()
    except BaseException:
        server.stop()
        raise
    children = Children(plan, server, on_log=on_log)
    try:
        yield children
    finally:
        children.stop()


def mismatch_of(record: TrajectoryRecord) -> Attempt | None:
    """Return the attempt of a rollout that left the tape, if it did."""
    last = record.attempts[-1]
    return last if (last.error or "").startswith(TAPE_MISMATCH) else None


@dataclass
class _Connection:
    """A socket to another process, read on the event loop."""

    ours: socket.socket
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @classmethod
    async def of(cls, ours: socket.socket) -> _Connection:
        """Wrap our end of a pair; sending blocks, which is short: the other end reads."""
        reader, writer = await asyncio.open_connection(sock=ours.dup())
        return cls(ours, reader, writer)

    def send(self, message: Any, *descriptors: int) -> None:
        """Send a message whole."""
        self.ours.setblocking(True)
        try:
            send(self.ours, message, *descriptors)
        finally:
            self.ours.setblocking(False)

    async def receive(self) -> Any | None:
        """Return the next message; None when the other end is closed."""
        try:
            head = await self.reader.readexactly(HEAD_BYTES)
            return unpacked(await self.reader.readexactly(length_of(head)))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    def close(self) -> None:
        """Close our end, at once: the writer waits for the loop's next turn."""
        with suppress(OSError):
            self.ours.shutdown(socket.SHUT_RDWR)
        self.writer.close()
        self.ours.close()


def _ungraded(job: GradingJob, error: str) -> GroupRecord:
    return GroupRecord(
        sample_index=job.sample.index,
        verdict=Verdict.FAILURE,
        trajectory_ids=tuple(rollout.record.trajectory_id for rollout in job.rollouts),
        rewards=(None,) * len(job.rollouts),
        error=error,
    )


def _ending(code: int) -> str:
    if code < 0:
        with suppress(ValueError):
            return f"killed by {signal.Signals(-code).name}"
    return f"exit status {code}"
