"""A workspace in a temporary folder, and the ways to test its plugins: as code and as a command."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from arkdev.cli.main import run as run_command
from arkdev.errors import ExitCode
from arkdev.flows.test_plan import PluginTestPlan, plan_test
from arkdev.flows.test_plugin import PluginTestOutcome, run_test
from arkdev.flows.test_request import PluginTestRequest
from arkdev.harness.attempts import Outcome
from arkdev.harness.rollouts import FinishedRollout
from arkdev.harness.stalls import StallRecord
from arkdev.harness.summary import Summary
from arkdev.plugin import ark_sdk, redirect
from arkdev.runs.reader import RunReader
from arkdev.runs.records import GroupRecord, TrajectoryRecord
from arkdev.sessions.identity import AttemptIdentity
from arkdev.sessions.retries import RetryPolicy
from arkdev.sessions.session import Session

ASK_ONCE = """
    from arkdev import rollout

    @rollout
    def answer(context, proxy, sample):
        client = proxy.rollout_client()
        client.chat.completions.create(model="m", messages=sample.model_dump()["messages"])
"""
"""A rollout that asks the model once."""

GIVE_ONE = """
    from arkdev import single_grader

    @single_grader
    def one(context, sample, trajectory):
        return 1.0
"""
"""A grader that gives every trajectory 1."""


@contextmanager
def away_from_the_user(config: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No configuration, key or colour of the user's reaches a test, and no import outlives it."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(config))
    monkeypatch.setenv("XDG_STATE_HOME", str(config / "state"))
    monkeypatch.setenv("COLUMNS", "100")
    for name in ("ARK_API_KEY", "ARK_BASE_URL", "ARKDEV_DEBUG", "FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    finders = list(sys.meta_path)
    yield
    ark_sdk.uninstall()
    redirect.uninstall()
    sys.meta_path[:] = [finder for finder in sys.meta_path if finder in finders]
    for name in [name for name in sys.modules if name.partition(".")[0] == "plugins"]:
        del sys.modules[name]


class Silent:
    """An observer that shows nothing."""

    def on_start(self, plan: PluginTestPlan, folder: Path) -> None: ...

    def on_turn(self, session: Session) -> None: ...

    def on_log(self, line: Any) -> None: ...

    def on_stall(self, record: StallRecord) -> None: ...

    def on_warning(self, text: str) -> None: ...

    def on_progress(self, text: str) -> None: ...

    def on_attempt(self, identity: AttemptIdentity, outcome: Outcome[Any]) -> None: ...

    def on_rollout(self, finished: FinishedRollout) -> None: ...

    def on_group(self, record: GroupRecord) -> None: ...


@dataclass(frozen=True)
class Run:
    """A test that came to its end."""

    outcome: PluginTestOutcome

    @property
    def summary(self) -> Summary:
        return self.outcome.summary

    @property
    def exit_code(self) -> ExitCode:
        return self.outcome.exit_code

    @property
    def reader(self) -> RunReader:
        return RunReader(self.outcome.folder)

    @property
    def trajectories(self) -> list[TrajectoryRecord]:
        """In dataset order."""
        return sorted(
            self.reader.trajectories(), key=lambda record: (record.sample_index, record.generation)
        )

    @property
    def groups(self) -> list[GroupRecord]:
        return sorted(self.reader.groups(), key=lambda record: record.sample_index)

    @property
    def rewards(self) -> list[tuple[float | None, ...]]:
        return [group.rewards for group in self.groups]


@dataclass(frozen=True)
class Told:
    """What a command said, and its exit code."""

    exit_code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON document on stdout."""
        document = json.loads(self.out)
        assert isinstance(document, dict)
        return document


class Workspace:
    """Files under `root`; `plugins/rollout.py:answer`, `plugins/grader.py:one` unless rewritten."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("plugins/rollout.py", ASK_ONCE)
        self.write("plugins/grader.py", GIVE_ONE)
        self.write("job.yaml", job_yaml())
        self.samples("hello")

    @classmethod
    def at(cls, root: Path) -> Workspace:
        """The workspace that is at `root` already."""
        workspace = cls.__new__(cls)
        workspace.root = root
        return workspace

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")
        return path

    def samples(self, *questions: str, name: str = "data.jsonl") -> Path:
        lines = ({"messages": [{"role": "user", "content": question}]} for question in questions)
        return self.lines(lines, name=name)

    def lines(self, lines: Iterable[Mapping[str, Any]], *, name: str = "data.jsonl") -> Path:
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        return self.write(name, text)

    def script(self, *answers: Mapping[str, Any]) -> Path:
        """A script file for the scripted model; JSON is also YAML, and keeps every character."""
        return self.write("script.json", json.dumps({"answers": answers}))

    def run(self, **request: Any) -> Run:
        """Test the plugins in this process; a failed model call goes out again at once."""
        plan = plan_test(PluginTestRequest(start=self.root, **request))
        at_once = RetryPolicy(first_wait_s=0.001)
        return Run(asyncio.run(run_test(plan, Silent(), retries=at_once)))

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start `arkdev *arguments` as a process of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "arkdev", *arguments],
            cwd=self.root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment(**environment),
        )

    def environment(self, **changes: str) -> dict[str, str]:
        """This process's environment, with the same `arkdev` to import."""
        return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **changes}


def job_yaml(
    *,
    rollout: str = "plugins.rollout:answer",
    grader: str = "plugins.grader:one",
    grader_name: str = "one",
    **more: Any,
) -> str:
    """A job file with the keys that a test needs."""
    job = {
        "name": "field",
        "customization_type": "GRPO",
        "model_reference": {"foundation_model": {"name": "m", "model_version": "1"}},
        "hyperparameters": {"batch_size": 8},
        "data": {"training_set": {"local_files": ["data.jsonl"]}},
        "custom_rl_pipeline": {
            "rollout": {"plugin": {"name": "answer", "python_func": rollout}},
            "graders": [{"plugin": {"name": grader_name, "python_func": grader}}],
        },
        **more,
    }
    return json.dumps(job, ensure_ascii=False, indent=1)


class Command:
    """`arkdev` typed in a folder, run in this process: what it prints and its exit code."""

    def __init__(self, capture: pytest.CaptureFixture[bytes]) -> None:
        self._capture = capture

    def __call__(self, *arguments: str) -> Told:
        self._capture.readouterr()
        exit_code = run_command(list(arguments))
        told = self._capture.readouterr()
        return Told(int(exit_code), told.out.decode("utf-8"), told.err.decode("utf-8"))
