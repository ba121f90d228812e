"""Runs in this process and in instances, compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.integration.workspace import Run, Workspace

OPENAI = "openai==3.57.0\n"
"""What `proxy.rollout_client()` needs inside a function."""

_TIMES = frozenset({"duration_s", "started_s", "tool_duration_s", "waited_s", "at", "limit_wait_s"})
_FILES = {
    "samples.jsonl": "sample_index",
    "trajectories.jsonl": "trajectory_id",
    "groups.jsonl": "sample_index",
}


def records(folder: Path) -> dict[str, dict[str, Any]]:
    """What a run wrote down of samples, rollouts and gradings, but for times."""
    found = {}
    for name, key in _FILES.items():
        lines = (folder / name).read_text(encoding="utf-8").splitlines()
        documents = [_without_times(json.loads(line)) for line in lines]
        found[name] = {f"{d.get('phase')} {d.get('step')} {d[key]}": d for d in documents}
    return found


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_times(item) for name, item in value.items() if name not in _TIMES}
    if isinstance(value, list):
        return [_without_times(item) for item in value]
    return value


def logged(run: Run) -> set[tuple[Any, ...]]:
    """What plugins logged and printed, with the attempt that it belongs to."""
    return {
        (line.level, line.logger, line.text, line.trajectory_ids, line.attempt, line.grader)
        for line in run.reader.logs()
    }


def in_both(workspace: Workspace, **request: Any) -> tuple[Run, Run]:
    """The same test in this process and in child processes."""
    here = workspace.run(**request)
    apart = workspace.run(**request, faas=True, faas_engine="process")
    return here, apart
