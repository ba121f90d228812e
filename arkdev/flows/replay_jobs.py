"""What a process of a replay does: one rollout, or the grading of one sample, from a tape."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from arkdev.errors import EndpointError
from arkdev.flows.environment import environment
from arkdev.flows.replay_plan import ReplayPlan
from arkdev.harness.attempts import Outcome
from arkdev.harness.grading import GroupGrading
from arkdev.harness.rollouts import FinishedRollout, RolloutRunner, SampleToRun, SessionDoor
from arkdev.observe.log_lines import LogLine
from arkdev.observe.plugin_output import plugin_output_to
from arkdev.observe.plugin_threads import threads_follow
from arkdev.plugin import redirect
from arkdev.plugin.host import InProcessHost
from arkdev.plugin.traffic.patches import traffic_through
from arkdev.runs.masking import masked_urls
from arkdev.runs.records import Attempt, GroupRecord, TrajectoryRecord, Verdict
from arkdev.sessions.background import BackgroundLoop
from arkdev.sessions.identity import AttemptIdentity
from arkdev.sessions.retries import RetryPolicy
from arkdev.sessions.session import Session, SessionServices
from arkdev.tape.format import SHARED, TapeHeader
from arkdev.tape.http_calls import ReplayedTraffic
from arkdev.tape.model_calls import ReplayedEndpoint
from arkdev.tape.no_network import NetworkGuard
from arkdev.tape.replay import Replay
from arkdev.tape.timeouts import ReplayedHost

TAPE_MISMATCH = "TapeMismatchError: "
"""Begins the error of what left the tape."""
LEFT_OVER = "tape_left_over"
BORROWED = "tape_borrowed"

_KEY_OF_REPLAY = "replayed"
"""Stands for a key that this machine does not have: nobody sees it."""


@dataclass(frozen=True)
class RolloutJob:
    """Call the rollout for a sample."""

    sample: SampleToRun
    generations: range
    run_seed: int


@dataclass(frozen=True)
class GradingJob:
    """Grade the rollouts of a sample."""

    sample: SampleToRun
    rollouts: tuple[FinishedRollout, ...]


Job = RolloutJob | GradingJob
Result = list[FinishedRollout] | GroupRecord


@dataclass(frozen=True)
class Told:
    """Whom a process tells of what happens while it works. Called from any thread."""

    log: Callable[[LogLine], None]
    """A plugin logged or printed a line."""
    attempt: Callable[[], None]
    """An attempt begins: its time runs from now."""


class _AtOnce(RetryPolicy):
    """Sends again what was sent again, without the waits."""

    def wait_after(self, error: EndpointError, *, retry: int) -> float:
        """Return 0; raises where the recorded session gave up."""
        super().wait_after(error, retry=retry)
        return 0.0


class ReplayProcess:
    """A process that has imported the plugins and does one job."""

    def __init__(self, plan: ReplayPlan, replay: Replay, guard: NetworkGuard) -> None:
        self.plan = plan
        self.replay = replay
        self._guard = guard

    async def prepare(self) -> None:
        """Import what every job needs, once for all of them."""
        import_module("arkdev.plugin.clients").prepare()
        import_module("arkdev.sessions.gateway")

    async def run(self, job: Job, told: Told) -> Result:
        """Do a job to its end; what plugins do wrong is in the result."""
        mismatch = asyncio.Event()
        loop = asyncio.get_running_loop()

        def on_mismatch() -> None:
            loop.call_soon_threadsafe(mismatch.set)

        self.replay.on_mismatch = on_mismatch
        async with self._services() as (services, door):
            rules = [ReplayedTraffic(self.replay)]
            with (
                plugin_output_to(told.log, mask=self._masked),
                threads_follow(),
                environment(_environment(self.plan)),
                traffic_through(rules, own_urls=[services.gateway_url]),
            ):
                _redirect_judge(self.plan.source.header)
                if isinstance(job, GradingJob):
                    return await self._graded(job, mismatch)
                return await _RolloutAgain(self, job, services, told).run(door, mismatch)

    def _masked(self, text: str) -> str:
        return masked_urls(self.replay.redaction.text(text))

    @asynccontextmanager
    async def _services(self) -> AsyncIterator[tuple[SessionServices, SessionDoor]]:
        background = BackgroundLoop()
        background.start()
        gateway = import_module("arkdev.sessions.gateway").Gateway()
        url = await background.call(gateway.start())
        self._guard.allowed_ports = frozenset({int(url.split(":")[2].partition("/")[0])})
        self.replay.loops = (asyncio.get_running_loop(), background.loop)
        services = SessionServices(
            endpoint=self.endpoint(SHARED),
            gateway_url=url,
            blocking_loop=background.loop,
            retries=_AtOnce(),
        )
        yield services, gateway  # they end with the process

    def endpoint(self, stream: tuple[str, int]) -> ReplayedEndpoint:
        """Return what answers the model calls of an attempt."""
        recorded = self.plan.endpoint
        return ReplayedEndpoint(self.replay, stream, name=recorded.name, model=recorded.model)

    def host(self) -> ReplayedHost:
        """Return what calls the plugins."""
        return ReplayedHost(InProcessHost(), self.replay)

    async def _graded(self, job: GradingJob, mismatch: asyncio.Event) -> GroupRecord:
        grading = GroupGrading(self.plan.graders, host=self.host(), context=self.plan.context)
        record: GroupRecord | None = await _unless(
            mismatch, grading.grade(job.sample, job.rollouts)
        )
        self.replay.check_borrowed()
        error = self.replay.mismatch
        if error is not None or record is None:
            return _ungraded(job, str(error), hint=error.hint if error else "")
        notes = self.notes(lambda name: " " in name and _sample_of(name) == job.sample.index)
        return replace(record, warnings=(*record.warnings, *notes))

    def notes(self, is_meant: Callable[[str], bool]) -> tuple[str, ...]:
        """Return warnings of what was recorded and not asked for, and of what was borrowed."""
        left = [f"{LEFT_OVER}: {what}" for what in self.replay.left_over(is_meant)]
        return tuple(dict.fromkeys([*left, *(f"{BORROWED}: {w}" for w in self.replay.borrowed)]))


class _RolloutAgain:
    """One rollout: it ends early where it leaves the tape."""

    def __init__(
        self, process: ReplayProcess, job: RolloutJob, services: SessionServices, told: Told
    ) -> None:
        self._process = process
        self._job = job
        self._services = services
        self._told = told
        self._started = time.perf_counter()
        self._attempts: list[Attempt] = []
        self._attempt_started = self._started
        self._session: Session | None = None

    async def run(self, door: SessionDoor, mismatch: asyncio.Event) -> list[FinishedRollout]:
        """Run it; returns a failure where the tape ends before it."""
        job, plan = self._job, self._process.plan
        runner = RolloutRunner(
            plan.rollout,
            host=self._process.host(),
            door=door,
            new_session=self._new_session,
            context=plan.context,
            on_attempt=self._on_attempt,
        )
        running = runner.run(job.sample, generations=job.generations, run_seed=job.run_seed)
        try:
            finished = await _unless(mismatch, running)
        except _UnrecordedAttemptError:
            if self._process.replay.mismatch is None:
                return [self._cut_short(self._attempts)]
            finished = None
        self._process.replay.check_borrowed()
        error = self._process.replay.mismatch
        if error is not None or finished is None:
            text = f"{TAPE_MISMATCH}{error.message if error else ''}"
            hint = f"\nhint: {error.hint}" if error and error.hint else ""
            last = Attempt(
                Verdict.FAILURE,
                duration_s=time.perf_counter() - self._attempt_started,
                num_turns=self._session.num_turns if self._session else 0,
                error=text + hint,
                where=(error.where if error else "") or None,
            )
            number = self._session.identity.attempt if self._session else 0
            return [self._cut_short([*self._attempts[:number], last])]
        trajectory = f"{job.sample.index}.{job.generations[0]}"
        notes = self._process.notes(lambda name: name == trajectory)
        first, *rest = finished
        record = replace(first.record, warnings=(*first.record.warnings, *notes))
        return [replace(first, record=record), *rest]

    def _new_session(self, identity: AttemptIdentity, sampling: Mapping[str, Any]) -> Session:
        stream = (identity.trajectory_id, identity.attempt)
        # one that left the tape is not tried again, though it may have been when recorded
        if self._process.replay.mismatch is not None or not self._process.replay.has(stream):
            raise _UnrecordedAttemptError
        self._told.attempt()
        self._attempt_started = time.perf_counter()
        started_at = self._process.replay.started_at(stream)
        services = replace(
            self._services,
            endpoint=self._process.endpoint(stream),
            # a Retry-After that is a date is one of the recorded run's
            retries=replace(self._services.retries, now=lambda: started_at),
        )
        self._session = Session(identity, sampling=sampling, services=services)
        return self._session

    def _on_attempt(self, _identity: AttemptIdentity, outcome: Outcome[Any]) -> None:
        self._attempts.append(
            Attempt(
                verdict=outcome.verdict,
                duration_s=time.perf_counter() - self._attempt_started,
                num_turns=outcome.num_turns,
                error=outcome.error,
                where=outcome.where,
                traceback=outcome.traceback,
                num_model_call_retries=outcome.num_model_call_retries,
                faults=outcome.faults,
            )
        )

    def _cut_short(self, attempts: list[Attempt]) -> FinishedRollout:
        """Return the failure of a rollout whose next step is not on the tape."""
        job, session = self._job, self._session
        messages = session.conversation.plain_messages if session else []
        return FinishedRollout(
            TrajectoryRecord(
                trajectory_id=f"{job.sample.index}.{job.generations[0]}",
                sample_index=job.sample.index,
                generation=job.generations[0],
                verdict=Verdict.FAILURE,
                duration_s=time.perf_counter() - self._started,
                attempts=tuple(attempts),
                messages=tuple(messages or job.sample.plain_messages),
                turns=session.turns if session else (),
                warnings=session.warnings if session else (),
                call_size=len(job.generations),
            )
        )


class _UnrecordedAttemptError(Exception):
    """The attempt before this one ended otherwise than when it was recorded."""


async def _unless(mismatch: asyncio.Event, work: Any) -> Any:
    """Await `work`, but no longer than until `mismatch`; None then."""
    working = asyncio.ensure_future(work)
    waiting = asyncio.ensure_future(mismatch.wait())
    await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    return working.result() if working.done() else None


def _ungraded(job: GradingJob, error: str, *, hint: str) -> GroupRecord:
    return GroupRecord(
        sample_index=job.sample.index,
        verdict=Verdict.FAILURE,
        trajectory_ids=tuple(rollout.record.trajectory_id for rollout in job.rollouts),
        rewards=(None,) * len(job.rollouts),
        error=f"{TAPE_MISMATCH}{error}" + (f"\nhint: {hint}" if hint else ""),
    )


def _sample_of(name: str) -> int:
    """Return the sample of an attempt called ``3.0+3.1 grader``."""
    return int(name.partition(".")[0])


def _environment(plan: ReplayPlan) -> dict[str, str]:
    header = plan.source.header
    envs = {"ARK_API_KEY": os.environ.get("ARK_API_KEY") or _KEY_OF_REPLAY, **plan.envs}
    if header.judge_url is not None:
        envs["ARK_BASE_URL"] = header.judge_url
    return envs


def _redirect_judge(header: TapeHeader) -> None:
    if header.is_judge_scripted and header.judge_url is not None:
        redirect.start(header.judge_url, key=_KEY_OF_REPLAY)
