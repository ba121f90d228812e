import fcntl
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from arkdev.errors import RunError
from arkdev.runs.reader import RunReader
from arkdev.runs.records import (
    Attempt,
    GroupRecord,
    PluginLogRecord,
    SpanRecord,
    TokenRecord,
    TrajectoryRecord,
    Verdict,
    trajectory_id_of,
)
from arkdev.runs.resume import drop_unfinished, finished_groups, resume_run, set_aside_from
from arkdev.runs.writer import RunWriter


def rollout(trajectory_id: str) -> TrajectoryRecord:
    sample, generation = map(int, trajectory_id.split("."))
    return TrajectoryRecord(
        trajectory_id,
        sample_index=sample,
        generation=generation,
        verdict=Verdict.SUCCESS,
        duration_s=0.5,
        attempts=(Attempt(Verdict.SUCCESS, 0.5),),
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run that was interrupted: samples 0 and 2 are finished, 1 and 3 were under way."""
    writer = RunWriter.create(tmp_path, kind="test", settings={}, hashes={}, versions={})
    for name in ("0.0", "1.0", "2.0", "0.1", "3.1", "2.1"):
        writer.trajectory(rollout(name))
        writer.tokens(TokenRecord(name, (1,), (1.0,), (-0.5,)))
    for sample in (2, 0):
        ids = (f"{sample}.0", f"{sample}.1")
        writer.group(GroupRecord(sample, Verdict.SUCCESS, ids, (1.0, 0.0)))
    writer.event("seen", what="before")
    for ids in ((), ("0.0",), ("1.0",), ("2.0", "2.1"), ("3.0", "3.1")):
        writer.log(log_line(f"of {' '.join(ids)}", ids))
    for ids in (("1.0",), ("2.1",)):
        writer.span(vars(span(ids)))
    writer.finish("interrupted", {})
    return writer.folder


def log_line(text: str, ids: tuple[str, ...] = ()) -> PluginLogRecord:
    at = "2025-03-01T10:15:30.000000Z"
    return PluginLogRecord(at, "INFO", ids, 0, grader=None, step=None, logger="mine", text=text)


def span(ids: tuple[str, ...]) -> SpanRecord:
    at = "2025-03-01T10:15:30.000000Z"
    return SpanRecord("a" * 32, "b" * 16, None, "chat", "client", at, 0.5, ids, attempt=0)


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def ids(folder: Path, name: str) -> list[str]:
    lines = (folder / name).read_bytes().splitlines()
    return [json.loads(line)["trajectory_id"] for line in lines]


def test_what_finished_groups_wrote_is_kept_and_the_rest_is_dropped(folder):
    before = (folder / "groups.jsonl").read_bytes()
    assert {sample for _, _, sample in finished_groups(folder).groups} == {0, 2}
    assert drop_unfinished(folder) == 4 + 3
    assert ids(folder, "trajectories.jsonl") == ["0.0", "2.0", "0.1", "2.1"]
    assert ids(folder, "tokens.jsonl") == ["0.0", "2.0", "0.1", "2.1"]
    assert (folder / "groups.jsonl").read_bytes() == before
    reader = RunReader(folder)
    assert [line.text for line in reader.logs()] == ["of ", "of 0.0", "of 2.0 2.1"]
    assert [record.trajectory_ids for record in reader.spans("2.1")] == [("2.1",)]
    assert list(reader.spans("1.0")) == []
    assert drop_unfinished(folder) == 0


def of_step(step: int, *, phase: str = "train") -> TrajectoryRecord:
    name = trajectory_id_of(0, 0, phase=phase, step=step)
    return replace(rollout("0.0"), trajectory_id=name, phase=phase, step=step)


def test_training_goes_back_to_a_step_and_what_followed_is_set_aside_not_counted_twice(tmp_path):
    writer = RunWriter.create(tmp_path, kind="train", settings={}, hashes={}, versions={})
    for step in (8, 9, 10):
        for record in (of_step(step), of_step(step, phase="test")):
            name = record.trajectory_id
            writer.trajectory(record)
            writer.tokens(TokenRecord(name, (1,), (1.0,), (-0.5,)))
            group = GroupRecord(0, Verdict.SUCCESS, (name,), (1.0,), phase=record.phase, step=step)
            writer.group(group)
            writer.span(vars(span((name,))))
        writer.metrics({"step": step, "train/loss": 0.5})
        writer.event("step", step=step)
        writer.log(replace(log_line(f"of step {step}"), step=step))
    writer.event("limits")
    writer.finish("interrupted", {})
    append(writer.folder / "metrics.jsonl", b'{"step": 11, "tra')
    assert set_aside_from(writer.folder, 9) == 4 * 4 + 3 * 2 + 1
    reader = RunReader(writer.folder)
    assert [record.trajectory_id for record in reader.trajectories()] == ["8/0.0", "test8/0.0"]
    assert [(group.phase, group.step) for group in reader.groups()] == [("train", 8), ("test", 8)]
    assert [event["kind"] for event in reader.events()] == ["step", "limits"]
    assert [line.text for line in reader.logs()] == ["of step 8"]
    assert len((writer.folder / "metrics.jsonl").read_bytes().splitlines()) == 1
    assert ids(writer.folder / "set_aside", "tokens.jsonl") == [
        f"{phase}{step}/0.0" for step in (9, 10) for phase in ("", "test")
    ]
    assert (
        len((writer.folder / "set_aside" / "logs" / "plugin.jsonl").read_bytes().splitlines()) == 2
    )
    assert set_aside_from(writer.folder, 9) == 0


def test_torn_lines_go_and_what_follows_begins_on_a_line_of_its_own(folder):
    for name in ("trajectories.jsonl", "groups.jsonl", "events.jsonl", "metrics.jsonl"):
        append(folder / name, b'{"trajectory_id": "9.0", "sample_ind')
    append(folder / "tokens.jsonl", "é".encode()[:1])
    append(folder / "logs/plugin.jsonl", b'{"at": "cut in the mid')
    writer = resume_run(folder)
    writer.trajectory(rollout("1.0"))
    writer.group(GroupRecord(1, Verdict.SUCCESS, ("1.0",), (1.0,)))
    writer.log(log_line("next"))
    writer.finish("finished", {})
    reader = RunReader(folder)
    assert [group.sample_index for group in reader.groups()] == [2, 0, 1]
    assert len(list(reader.trajectories())) == 5
    assert [event["kind"] for event in reader.events()] == ["seen", "resumed"]
    assert (len(list(reader.tokens())), reader.torn) == (4, [])
    assert [line.text for line in reader.logs()] == ["of ", "of 0.0", "of 2.0 2.1", "next"]


def test_a_whole_group_line_whose_newline_is_missing_counts_as_torn(folder):
    path = folder / "groups.jsonl"
    path.write_bytes(path.read_bytes()[:-1])
    assert finished_groups(folder).groups == {("train", None, 2)}


def test_a_group_whose_trajectories_are_not_all_there_is_not_finished(folder):
    path = folder / "trajectories.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(line for line in lines if b'"2.1"' not in line))
    drop_unfinished(folder)
    assert ids(folder, "trajectories.jsonl") == ["0.0", "0.1"]
    assert len((folder / "groups.jsonl").read_bytes().splitlines()) == 1


def test_a_group_that_is_there_twice_is_kept_once(folder):
    path = folder / "groups.jsonl"
    append(path, path.read_bytes())
    assert drop_unfinished(folder) == 4 + 3 + 2
    assert [group.sample_index for group in RunReader(folder).groups()] == [2, 0]


def test_left_overs_of_a_killed_resume_do_no_harm(folder):
    (folder / "trajectories.jsonl.tmp").write_bytes(b'{"half": ')
    writer = resume_run(folder)
    writer.finish("finished", {})
    assert list(folder.glob("*.tmp")) == []


def test_the_manifest_says_when_it_was_resumed_and_how_long_it_had_worked(folder):
    for _ in range(2):
        writer = resume_run(folder)
        assert RunReader(folder).status == "running"
        writer.finish("interrupted", {"n": 1})
    manifest = RunReader(folder).manifest
    assert len(manifest.resumed_at) == 2
    assert manifest.resumed_at[0] < manifest.resumed_at[1] <= manifest.finished_at
    assert 0 < manifest.earlier_s < 60


def test_a_run_is_resumed_by_one_process_at_a_time(folder):
    writer = resume_run(folder)
    with pytest.raises(RunError, match="still running"):
        resume_run(folder)
    writer.finish("finished", {})
    with pytest.raises(RunError, match="is finished"):
        resume_run(folder)


def test_a_reader_that_looks_for_an_instant_does_not_make_a_run_alive(folder, monkeypatch):
    reading = os.open(folder, os.O_RDONLY)
    fcntl.flock(reading, fcntl.LOCK_SH)
    monkeypatch.setattr("time.sleep", lambda _: fcntl.flock(reading, fcntl.LOCK_UN))
    resume_run(folder).finish("finished", {})
    os.close(reading)


def test_samples_of_finished_groups_are_kept_once(folder):
    lines = [
        json.dumps({"sample_index": i, "sample": {}}).encode() + b"\n" for i in (0, 1, 2, 3, 2)
    ]
    (folder / "samples.jsonl").write_bytes(b"".join(lines))
    drop_unfinished(folder)
    assert (folder / "samples.jsonl").read_bytes() == lines[0] + lines[2]
