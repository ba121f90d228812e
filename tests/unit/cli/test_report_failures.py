"""Failures on the terminal and as JSON, for a run and for one trajectory of it."""

import io
import json
from pathlib import Path

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from arkdev.cli.report import render_summary
from arkdev.cli.runs import recomputed_summary, register
from arkdev.runs.reader import RunReader
from arkdev.runs.records import (
    Attempt,
    FailedGrading,
    FaultRecord,
    FaultSide,
    GraderRecord,
    GroupRecord,
    HandledBy,
    TrajectoryRecord,
    Verdict,
)
from arkdev.runs.writer import RunWriter

S, F, D, R = Verdict.SUCCESS, Verdict.FAILURE, Verdict.DISCARD, Verdict.RETRY
REWARDS = (1.0, 0.0, 0.5, 0.25)
"""tests/unit/harness/test_failures.py works out what 0.1 does to its siblings."""


def make_run(root: Path, *, is_faulty: bool = True) -> Path:
    settings = {"num_generations": 4, "success_threshold": 1.0}
    writer = RunWriter.create(root, kind="test", settings=settings, hashes={}, versions={})
    refused = FaultRecord(FaultSide.TOOL, "503", "api.example", 0.125, detail="busy 坏")
    timed_out = FaultRecord(
        FaultSide.TOOL, "timeout", "api.example", 0.5, True, HandledBy.PLUGIN, "no answer"
    )
    resent = FaultRecord(FaultSide.MODEL, "429", "call 2", 0.6, handled_by=HandledBy.HARNESS)
    failed = Attempt(F, 0.2, error="HTTPStatusError: 503", where="plugins/rollout.py:9")
    attempts = (
        Attempt(**{**vars(failed), "faults": (refused,)}),
        Attempt(S, 0.3, faults=(timed_out, resent)),
    )
    judged = FaultRecord(FaultSide.TOOL, "500", "judge.example", 0.01, handled_by=HandledBy.PLUGIN)
    for generation in range(4):
        is_bad = is_faulty and generation == 1
        writer.trajectory(
            TrajectoryRecord(
                f"0.{generation}",
                0,
                generation,
                S,
                0.5,
                attempts if is_bad else (Attempt(S, 0.5),),
                messages=({"role": "user", "content": "hello"},),
            )
        )
    grader = GraderRecord(
        "judge",
        1.0,
        S,
        REWARDS,
        attempts=2 if is_faulty else 1,
        faults=(judged,) if is_faulty else (),
        failed_attempts=(FailedGrading(R, "busy"),) if is_faulty else (),
    )
    writer.group(
        GroupRecord(0, S, tuple(f"0.{index}" for index in range(4)), REWARDS, graders=(grader,))
    )
    writer.finish("finished", {})
    return writer.folder


def report(folder: Path, *, width: int, encoding: str = "ascii") -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, errors="strict", newline="")
    summary = recomputed_summary(RunReader(folder))
    render_summary(summary, Console(file=file, width=width, color_system=None))
    file.flush()
    return raw.getvalue().decode(encoding)


def section(text: str, title: str) -> str:
    """One section, each run of blanks made one."""
    after = text[text.index(f"{title} -") :].splitlines()[1:]
    end = next((i for i, line in enumerate(after) if line.endswith("---")), len(after))
    return " ".join(" ".join(after[:end]).split())


def show(root: Path, *arguments: str) -> str:
    app = typer.Typer()
    register(app, runs_root=lambda: root)
    result = CliRunner().invoke(app, ("show", *arguments))
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_report_says_what_became_of_each_failure_at_80_columns_in_ascii(tmp_path):
    text = report(make_run(tmp_path), width=80)
    assert max(map(len, text.splitlines())) <= 80
    told = section(text, "Failures")
    moved = "moved 3 siblings by 0.342, at most 0.434 (0.1), 1 sign changed"
    for part in (
        "1 x 0.1: reward 0 after tool timeout: is that meant?",
        "raise RolloutRetryException or return PluginStatus.RETRY or DISCARD; a penalty is right",
        "1 x the group of 0.1: lowest reward 0 after tool 500: is that meant?",
        f"1 x tool 503: made good by another attempt | 1 trained on {moved} | in 2 attempts",
        f"1 x tool timeout, injected: the plugin went on | 1 trained on {moved}",
        f"1 x model 429: arkdev sent the call again | 1 trained on {moved}",
        "1 x tool 500, in a grader: the plugin went on | 1 trained on in 2 attempts | e.g. 0.0",
        "1 x grader attempt, retry: made good by another attempt | 1 trained on",
        f"1 x rollout attempt, exception: made good by another attempt | 1 trained on {moved}",
        "4 faults (1 injected); 2 attempts that did not succeed",
    ):
        assert part in told


def test_an_answer_that_did_arrive_is_not_called_never_made_good(tmp_path):
    writer = RunWriter.create(tmp_path, kind="test", settings={}, hashes={}, versions={})
    faults = tuple(
        FaultRecord(FaultSide.MODEL, kind, "call 1", 0.1, True) for kind in ("slow", "500")
    )
    failed = Attempt(F, 0.2, error="ValueError: no", where="a.py:9", faults=faults)
    writer.trajectory(TrajectoryRecord("0.0", 0, 0, F, 0.5, (failed,)))
    writer.group(GroupRecord(0, F, ("0.0",), (None,)))
    writer.finish("finished", {})
    told = section(report(writer.folder, width=80), "Failures")
    assert "model slow, injected: answered, but no attempt succeeded" in told
    assert "model 500, injected: never made good" in told
    assert "call 1: answered, but no attempt succeeded" in show(tmp_path, "latest", "0.0")


@pytest.mark.parametrize("width", [50, 60, 130, 250])
def test_no_line_of_it_is_wider_than_the_terminal(tmp_path, width):
    text = report(make_run(tmp_path), width=width)
    assert max(map(len, text.splitlines())) <= width


def test_a_run_without_failures_has_no_such_section(tmp_path):
    folder = make_run(tmp_path, is_faulty=False)
    assert "Failures" not in report(folder, width=80)
    assert "what became of" not in show(tmp_path, "latest", "0.1")
    summary = json.loads(show(tmp_path, "latest", "--json"))["run"]["summary"]
    assert summary["failures"] is None


def test_the_summary_as_json_has_the_same_numbers(tmp_path):
    make_run(tmp_path)
    failures = json.loads(show(tmp_path, "latest", "--json"))["run"]["summary"]["failures"]
    rows = {(row["side"], row["kind"], row["plugin"]): row for row in failures["faults"]}
    timeout = rows["tool", "timeout", "rollout"]
    assert (timeout["is_injected"], timeout["handling"]) == (True, "plugin")
    assert (timeout["count"], timeout["attempts"], timeout["fates"]) == (
        1,
        {"2": 1},
        {"trained": 1},
    )
    assert timeout["shift"]["num_sign_changes"] == 1
    assert timeout["shift"]["mean"] == pytest.approx(0.34157, abs=2e-5)
    assert rows["tool", "500", "grader"]["shift"] is None
    assert [one["code"] for one in failures["suspicions"]] == [
        "low_reward_after_error",
        "reward_after_grader_error",
    ]


def test_one_trajectory_is_shown_with_its_faults_in_order_and_the_shift_of_its_siblings(tmp_path):
    make_run(tmp_path)
    lines = [" ".join(line.split()) for line in show(tmp_path, "latest", "0.1").splitlines()]
    start = lines.index("faults")
    assert lines[start + 1 : start + 9] == [
        "attempt 1 125 ms tool 503 api.example: made good by another attempt (busy 坏)",
        "attempt 2 500 ms tool timeout injected api.example: the plugin went on (no answer)",
        "attempt 2 600 ms model 429 call 2: arkdev sent the call again",
        "judge 10 ms tool 500 judge.example: the plugin went on",
        "what became of 0.1: trained on",
        "0.0 advantage +1.317, without 0.1 +1.091: moved by +0.226",
        "0.2 advantage +0.146, without 0.1 -0.218: moved by +0.365 → sign changed",
        "0.3 advantage -0.439, without 0.1 -0.873: moved by +0.434",
    ]
    document = json.loads(show(tmp_path, "latest", "0.1", "--json"))
    assert document["fate"] == "trained"
    failures = [(one["source"], one["kind"], one["handling"]) for one in document["failures"]]
    assert failures == [
        ("attempt 1", "503", "repeated"),
        ("attempt 1", "exception", "repeated"),
        ("attempt 2", "timeout", "plugin"),
        ("attempt 2", "429", "resent"),
        ("judge", "500", "plugin"),
        ("judge", "retry", "repeated"),
    ]
    moved = {one["trajectory_id"]: one for one in document["sibling_shift"]}
    assert moved["0.2"]["changes_sign"]
    assert moved["0.2"]["shift"] == pytest.approx(0.36460, abs=2e-5)


def test_a_whole_groups_failure_is_shown_with_each_of_its_members(tmp_path):
    make_run(tmp_path)
    assert "judge.example: the plugin went on" in show(tmp_path, "latest", "0.3")
