"""``--record``: a run as it is, with a tape running (docs/tape.md)."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arkdev import __version__
from arkdev.harness.rollouts import SampleToRun
from arkdev.plugin.host import FunctionHost
from arkdev.plugin.traffic.patches import traffic_through
from arkdev.runs.records import GroupRecord
from arkdev.runs.writer import iso_time, recorded_settings
from arkdev.sessions.identity import AttemptIdentity
from arkdev.sessions.session import SessionServices
from arkdev.tape.callers import Workspace
from arkdev.tape.format import TapeHeader, TapeWriter, check_free
from arkdev.tape.http_calls import RecordedTraffic
from arkdev.tape.model_calls import RecordedEndpoint
from arkdev.tape.patches import recorded_through
from arkdev.tape.recording import Recording
from arkdev.tape.timeouts import RecordedHost

if TYPE_CHECKING:
    from arkdev.flows.test_plan import PluginTestPlan

_SEED_BITS = 53
"""A seed that every reader of JSON reads as it is."""


@dataclass(frozen=True)
class OpenTape:
    """A tape that is ready to record, and what stands between the plugins and the outside."""

    recording: Recording
    patches: ExitStack

    def close(self) -> None:
        """Put everything back as it was, and close the file."""
        self.patches.close()
        self.recording.close()


def open_tape(path: Path, *, root: Path) -> OpenTape:
    """Begin to record what the code of the workspace at `root` gets from outside.

    Call it before plugins are imported. The file is written from `taping` on. Raises `UsageError`
    when `path` is taken.
    """
    check_free(path)
    recording = Recording(TapeWriter(path), seed=secrets.randbits(_SEED_BITS))
    return OpenTape(recording, recorded_through(recording, Workspace(root)))


@contextmanager
def taping(
    plan: PluginTestPlan, sessions: SessionServices, *, judge: Any | None
) -> Iterator[Taping]:
    """Record what the plan's plugins do, when it has a tape; `judge` is the scripted one.

    Raises `OutputError` when the tape cannot be written.
    """
    tape = plan.tape
    if tape is None:
        yield Taping(None)
        return
    with ExitStack() as stack:
        stack.callback(tape.close)
        tape.recording.begin(_header(plan, tape, judge=judge), secrets=plan.secrets)
        rules = [RecordedTraffic(tape.recording)]
        stack.enter_context(traffic_through(rules, own_urls=[sessions.gateway_url]))
        yield Taping(tape.recording)


class Taping:
    """Tells a tape what the harness does; without one it passes everything on."""

    def __init__(self, recording: Recording | None) -> None:
        self._recording = recording

    def begun(self, samples: Iterable[SampleToRun]) -> Iterator[SampleToRun]:
        """Pass samples on as they begin."""
        for sample in samples:
            if self._recording is not None:
                self._recording.sample(
                    sample.index, line=sample.line, sampling=dict(sample.sampling)
                )
            yield sample

    def services_of(self, identity: AttemptIdentity, services: SessionServices) -> SessionServices:
        """Return what the session of an attempt, which begins now, shares with the others."""
        if self._recording is None:
            return services
        stream = (identity.trajectory_id, identity.attempt)
        self._recording.attempt(stream, at=time.time())
        endpoint = RecordedEndpoint(services.endpoint, self._recording, stream)
        return replace(services, endpoint=endpoint)

    def host_of(self, host: FunctionHost) -> FunctionHost:
        """Return the host that calls the plugins."""
        return host if self._recording is None else RecordedHost(host, self._recording)

    def then(self, on_group: Callable[[GroupRecord], None]) -> Callable[[GroupRecord], None]:
        """Return `on_group`, after which the tape hears of a group that is done."""
        recording = self._recording
        if recording is None:
            return on_group

        def on_recorded_group(record: GroupRecord) -> None:
            on_group(record)
            recording.group(record.sample_index, verdict=str(record.verdict))
            recording.forget(record.sample_index)

        return on_recorded_group


def _header(plan: PluginTestPlan, tape: OpenTape, *, judge: Any | None) -> TapeHeader:
    settings = recorded_settings(plan.settings(), secrets=plan.secrets)
    return TapeHeader(
        arkdev=__version__,
        recorded_at=iso_time(datetime.now(UTC)),
        seed=tape.recording.seed,
        settings={name: value for name, value in settings.items() if name != "flags"},
        flags=settings["flags"],
        hashes=plan.hashes(),
        judge_url=os.environ.get("ARK_BASE_URL"),
        is_judge_scripted=judge is not None,
        hash_seed=_hash_seed(),
    )


def _hash_seed() -> str | None:
    seed = os.environ.get("PYTHONHASHSEED", "")
    return seed if seed.isdecimal() else None
