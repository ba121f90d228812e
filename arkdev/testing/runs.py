"""A whole `arkdev test plugin` inside a test, and assertions on what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arkdev.errors import ExitCode, UsageError
from arkdev.flows.replay_plan import ReplayPlan, plan_replay
from arkdev.flows.replaying import run_replay
from arkdev.flows.test_plan import PluginTestPlan, plan_test
from arkdev.flows.test_plugin import PluginTestOutcome, exit_code_of, run_test
from arkdev.flows.test_request import PluginTestRequest
from arkdev.harness.attempts import Outcome
from arkdev.harness.loop import new_event_loop
from arkdev.harness.rollouts import FinishedRollout
from arkdev.harness.stalls import StallRecord
from arkdev.harness.summary import Summary
from arkdev.harness.thresholds import (
    ThresholdResult,
    Z,
    reward_mean_at_least,
    success_rate_at_least,
)
from arkdev.observe.log_lines import LogLine
from arkdev.runs.reader import RunReader
from arkdev.runs.records import GroupRecord
from arkdev.sessions.identity import AttemptIdentity
from arkdev.sessions.session import Session
from arkdev.testing.options import request_of
from arkdev.testing.tracebacks import with_short_tracebacks

_MAX_ERRORS = 5
_NO_THRESHOLDS = PluginTestRequest(start=Path())


@dataclass(frozen=True)
class RunOutcome:
    """A test that came to its end."""

    outcome: PluginTestOutcome

    @property
    def summary(self) -> Summary:
        """The numbers of the report."""
        return self.outcome.summary

    @property
    def exit_code(self) -> ExitCode:
        """What the command would have ended with."""
        return self.outcome.exit_code

    @property
    def folder(self) -> Path:
        """The run folder, below pytest's temporary one."""
        return self.outcome.folder

    @property
    def records(self) -> RunReader:
        """Trajectories, groups and tokens."""
        return RunReader(self.outcome.folder)

    def assert_reward_mean(self, *, at_least: float, z: float = Z) -> None:
        """Assert that mean reward - z · standard error is at least so much.

        The error is clustered by sample. `z=0` compares the mean itself. Raises `AssertionError`.
        """
        __tracebackhide__ = True
        _check(reward_mean_at_least(at_least, summary=self.summary, z=z), self.folder)

    def assert_success_rate(self, *, at_least: float, z: float = Z) -> None:
        """Assert the same of the share of graded rollouts that reached the success threshold."""
        __tracebackhide__ = True
        _check(success_rate_at_least(at_least, summary=self.summary, z=z), self.folder)

    def assert_nothing_failed(self) -> None:
        """Assert that no rollout failed and no grader left anything ungraded."""
        __tracebackhide__ = True
        if exit_code_of(self.summary, request=_NO_THRESHOLDS) is ExitCode.OK:
            return
        errors = [
            f"{error.count} x {error.source}: {error.message}"
            + (f" ({error.where})" if error.where else "")
            for error in self.summary.errors[:_MAX_ERRORS]
        ]
        raise AssertionError("\n".join(["rollouts or graders failed:", *errors, str(self.folder)]))


class RunFactory:
    """Runs tests of the workspace's plugins."""

    def __init__(self, root: Path, *, out: Callable[[], Path]) -> None:
        self._root = root
        self._out = out

    @with_short_tracebacks
    def __call__(self, **options: Any) -> RunOutcome:
        """Run one test to its end, with the options of `PluginTestRequest`.

        Among them are `rollout`, `graders`, `data`, `job`, `limit`, `sample`, `num_generations`,
        `concurrency`, `endpoint`, `model`, `skill`, `script`, `sampling`, `seed` and `replay` (a
        tape); what is left out is as for the command. Raises `UsageError` for other names and
        values, and what `plan_test` and `run_test` raise.
        """
        if _is_in_a_loop():
            raise UsageError(
                "arkdev_run was called on a running event loop",
                hint="write the test with `def`, not `async def`: the run has a loop of its own",
            )
        request = request_of(self._root, {"out": self._out(), **options})
        plan = plan_test(request) if request.replay is None else plan_replay(request)
        quiet = _Quiet()
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            if isinstance(plan, ReplayPlan):
                return RunOutcome(runner.run(run_replay(plan, quiet)))
            return RunOutcome(runner.run(run_test(plan, quiet)))


class _Quiet:
    """Is told of everything and shows nothing."""

    def on_start(self, plan: PluginTestPlan, folder: Path) -> None: ...

    def on_turn(self, session: Session) -> None: ...

    def on_log(self, line: LogLine) -> None: ...

    def on_attempt(self, identity: AttemptIdentity, outcome: Outcome[Any]) -> None: ...

    def on_rollout(self, finished: FinishedRollout) -> None: ...

    def on_group(self, record: GroupRecord) -> None: ...

    def on_stall(self, stall: StallRecord) -> None: ...

    def on_warning(self, text: str) -> None: ...

    def on_progress(self, text: str) -> None: ...


def _check(threshold: ThresholdResult, folder: Path) -> None:
    __tracebackhide__ = True
    if not threshold.is_met:
        raise AssertionError(f"{threshold}\n{folder}")


def _is_in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
