import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from arkdev.cli.runs import register
from arkdev.errors import RunError, UsageError
from arkdev.runs.records import Attempt, GraderRecord, GroupRecord, TrajectoryRecord, Verdict
from arkdev.runs.writer import RunWriter

S, F = Verdict.SUCCESS, Verdict.FAILURE


def make_run(root: Path, *, finish: bool = True) -> Path:
    settings = {"num_generations": 2, "success_threshold": 0.5}
    writer = RunWriter.create(root, kind="test", settings=settings, hashes={}, versions={})
    for generation, verdict in enumerate((S, F)):
        error = None if verdict is S else "坏 ✓ 😊"
        attempts = (Attempt(verdict, 0.5, error=error, where="plugins/rollout.py:3"),)
        writer.trajectory(
            TrajectoryRecord(
                f"0.{generation}",
                0,
                generation,
                verdict,
                0.5,
                attempts,
                messages=({"role": "user", "content": "你好 ✓ 😊"},),
            )
        )
    grader = GraderRecord("weather", 1.0, S, (0.5, None))
    writer.group(GroupRecord(0, F, ("0.0", "0.1"), (0.5, None), (grader,)))
    if finish:
        writer.finish("finished", {"num_rollouts": 2, "reward": {"mean": 0.5}})
    return writer.folder


def invoke(root: Path, *arguments: str):
    app = typer.Typer()
    register(app, runs_root=lambda: root)
    return CliRunner().invoke(app, arguments)


def test_runs_lists_each_run_with_its_result(tmp_path):
    folder = make_run(tmp_path)
    result = invoke(tmp_path, "runs")
    assert result.exit_code == 0
    assert folder.name in result.stdout
    assert "finished" in result.stdout and "0.500" in result.stdout
    assert "no runs" in invoke(tmp_path / "none", "runs").stdout


def test_runs_as_json_is_one_document(tmp_path):
    folder = make_run(tmp_path)
    document = json.loads(invoke(tmp_path, "runs", "--json").stdout)
    assert document["schema_version"] == 1
    assert document["runs"][0]["run_id"] == folder.name
    assert document["runs"][0]["summary"]["num_rollouts"] == 2


def test_show_recomputes_the_report_from_the_records(tmp_path):
    make_run(tmp_path)
    result = invoke(tmp_path, "show")
    assert result.exit_code == 0
    assert "1 of 2 rollouts graded, mean reward 0.50; 1 failed" in " ".join(result.stdout.split())

    run = json.loads(invoke(tmp_path, "show", "latest", "--json").stdout)["run"]
    assert run["summary"]["verdicts"] == {"success": 1, "failure": 1}
    assert run["summary"]["success_threshold"] == 0.5


def test_show_of_a_killed_run_says_so_and_reports_torn_lines(tmp_path):
    folder = make_run(tmp_path)
    path = folder / "manifest.json"
    text = path.read_text(encoding="utf-8").replace('"finished"', '"running"')
    path.write_text(text, encoding="utf-8")
    with (folder / "groups.jsonl").open("ab") as file:
        file.write(b'{"sample_index": 1, "ver')

    result = invoke(tmp_path, "show")
    assert result.exit_code == 0
    assert "the run is killed" in result.stderr
    assert "the run is killed" in invoke(tmp_path, "show", "--failed").stderr
    assert "groups.jsonl:2 was cut short" in result.stderr
    assert json.loads(invoke(tmp_path, "show", "--json").stdout)["torn"] == [
        {"file": "groups.jsonl", "line": 2}
    ]


def test_show_trajectory_prints_the_conversation_and_its_reward(tmp_path):
    make_run(tmp_path)
    graded = invoke(tmp_path, "show", "latest", "0.0").stdout
    assert "你好" in graded and "0.500" in graded
    failed = invoke(tmp_path, "show", "latest", "0.1").stdout
    assert "坏" in failed and "plugins/rollout.py:3" in failed

    document = json.loads(invoke(tmp_path, "show", "latest", "0.0", "--json").stdout)
    assert (document["reward"], document["index"]) == (0.5, 0)
    assert document["trajectory"]["messages"][0]["content"] == "你好 ✓ 😊"


def test_show_failed_lists_only_what_failed(tmp_path):
    make_run(tmp_path)
    listed = invoke(tmp_path, "show", "--failed").stdout
    assert "0.1" in listed and "plugins/rollout.py:3" in listed
    assert "0.0" not in listed
    (only,) = json.loads(invoke(tmp_path, "show", "--failed", "--json").stdout)["trajectories"]
    assert only["trajectory_id"] == "0.1"


def test_wrong_names_are_errors_with_hints(tmp_path):
    make_run(tmp_path)
    assert isinstance(invoke(tmp_path, "show", "zzz").exception, RunError)
    assert isinstance(invoke(tmp_path, "show", "latest", "9.9").exception, RunError)
    assert isinstance(invoke(tmp_path, "show", "latest", "0.0", "--failed").exception, UsageError)


PROGRAM = "import typer; from arkdev.cli.runs import register; a = typer.Typer(); register(a); a()"


def run_program(cwd: Path, *arguments: str, encoding: str) -> subprocess.CompletedProcess[bytes]:
    root = str(Path(__file__).resolve().parents[3])
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONPATH": root}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        check=False,
        timeout=300,
    )


@pytest.mark.parametrize("encoding", ["cp1252", "gbk"])
def test_piped_output_replaces_what_the_encoding_lacks(tmp_path, encoding):
    make_run(tmp_path / "runs")
    plain = run_program(tmp_path, "show", "latest", "0.1", encoding=encoding)
    assert (plain.returncode, plain.stderr) == (0, b"")
    assert "?" in plain.stdout.decode(encoding)

    document = run_program(tmp_path, "show", "latest", "0.0", "--json", encoding=encoding)
    assert "你好 ✓ 😊" in document.stdout.decode("utf-8")
    assert b"\x1b" not in document.stdout


def test_reader_that_goes_away_ends_nothing_loudly(tmp_path):
    make_run(tmp_path / "runs")
    root = str(Path(__file__).resolve().parents[3])
    for arguments in (["show"], ["show", "--json"]):
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": root},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout and process.stderr
        process.stdout.close()
        with process.stderr:
            assert process.stderr.read() == b""
        assert process.wait(timeout=300) == 0
