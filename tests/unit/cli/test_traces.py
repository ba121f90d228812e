"""``arkdev show RUN TRAJECTORY --trace``: a waterfall of calls that are very deep."""

from pathlib import Path

import pytest

from arkdev.cli.traces import show_trace
from arkdev.runs.reader import RunReader
from arkdev.runs.records import TrajectoryRecord, Verdict
from arkdev.runs.writer import RunWriter

DEPTH = 1_500
"""Deeper than Python calls."""


def test_a_function_that_calls_itself_keeps_its_name_at_any_depth(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = RunWriter.create(tmp_path, kind="test", settings={}, hashes={}, versions={})
    writer.trajectory(TrajectoryRecord("0.0", 0, 0, Verdict.SUCCESS, 1.0, ()))
    for number in range(DEPTH):
        writer.span(
            {
                "trace_id": "1",
                "span_id": f"{number + 1}",
                "parent_span_id": f"{number}" if number else None,
                "name": "descend",
                "kind": "internal",
                "started_at": f"2026-01-01T00:00:00.{number:06}Z",
                "duration_s": 1.0,
                "trajectory_ids": ["0.0"],
                "attempt": 0,
            }
        )
    writer.finish("finished", {})
    monkeypatch.setenv("COLUMNS", "80")
    show_trace(RunReader(writer.folder), "0.0", as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == DEPTH + 1
    assert all("descend" in line for line in lines)
    assert lines[3].startswith("    descend")
    assert lines[-1].lstrip().startswith(f"{DEPTH - 1} descend")
