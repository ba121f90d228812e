import json
from dataclasses import replace
from pathlib import Path

import pytest

from arkdev.errors import RunError
from arkdev.runs.reader import RunReader, TornLine, find_run, list_runs
from arkdev.runs.records import (
    Attempt,
    FailedGrading,
    FaultRecord,
    FaultSide,
    GraderRecord,
    GroupRecord,
    HandledBy,
    TokenRecord,
    TrajectoryRecord,
    TurnRecord,
    Verdict,
)
from arkdev.runs.writer import RunWriter

TRAJECTORY = TrajectoryRecord(
    "7.1",
    sample_index=7,
    generation=1,
    verdict=Verdict.SUCCESS,
    duration_s=1.5,
    attempts=(
        Attempt(Verdict.RETRY, 0.5, 1, "search timed out", "plugins/rollout.py:3"),
        Attempt(Verdict.SUCCESS, 1.0, 2),
    ),
    messages=({"role": "user", "content": "天气?"},),
    usage={"prompt_tokens": None, "completion_tokens": 3},
    finish_reason="stop",
    turns=(TurnRecord(0.0, 0.2, "tool_calls", 10, None, ("get_weather",), 0.05),),
    warnings=("usage_unknown",),
)
GROUP = GroupRecord(
    7,
    Verdict.FAILURE,
    ("7.0", "7.1"),
    (1.0, None),
    (GraderRecord("weather", 0.5, Verdict.FAILURE, (2.0, None), {"m": 1.0}, 4, 0.1, "bad"),),
)


def make_run(root: Path, *, started_at: str = "", finish: bool = True) -> RunWriter:
    writer = RunWriter.create(root, kind="test", settings={}, hashes={}, versions={})
    writer.trajectory(TRAJECTORY)
    writer.group(GROUP)
    if finish:
        writer.finish("finished", {})
    if started_at:
        path = writer.folder / "manifest.json"
        document = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps({**document, "started_at": started_at}), encoding="utf-8")
    return writer


def test_records_come_back_as_they_were_written(tmp_path):
    writer = make_run(tmp_path, finish=False)
    tokens = TokenRecord("7.1", (1, 2), (0.0, 1.0), (0.0, -0.5))
    writer.tokens(tokens)
    writer.event("started", slot=1)
    reader = RunReader(writer.folder)

    assert list(reader.trajectories()) == [TRAJECTORY]
    assert reader.trajectory("7.1") == TRAJECTORY
    assert list(reader.groups()) == [GROUP]
    assert list(reader.tokens()) == [tokens]
    assert [event["kind"] for event in reader.events()] == ["started"]
    assert reader.torn == []
    assert reader.manifest == writer.manifest


def test_faults_and_advantages_come_back_as_they_were_written(tmp_path):
    fault = FaultRecord(FaultSide.TOOL, "503", "api.example", 0.25, True, HandledBy.PLUGIN, "坏")
    on_its_own = FaultRecord(FaultSide.GRADER, "raise", "weather", 0.0, trajectory_id="7.1")
    attempts = (Attempt(Verdict.RETRY, 0.5, faults=(fault, on_its_own)), TRAJECTORY.attempts[-1])
    trajectory = replace(TRAJECTORY, attempts=attempts)
    grader = replace(
        GROUP.graders[0],
        faults=(on_its_own,),
        failed_attempts=(FailedGrading(Verdict.RETRY, "busy", "g.py:3", "7.1"),),
        seq_advantages=(0.5, None),
        tok_advantages=((0.5, -0.5), None),
    )
    group = replace(GROUP, graders=(grader,))
    writer = RunWriter.create(tmp_path, kind="test", settings={}, hashes={}, versions={})
    writer.trajectory(trajectory)
    writer.group(group)
    reader = RunReader(writer.folder)
    (read,) = reader.trajectories()
    assert (read, list(reader.groups())) == (trajectory, [group])
    assert read.attempts[0].faults[0].handled_by is HandledBy.PLUGIN
    writer.finish("finished", {})


def test_torn_last_line_is_skipped_and_reported_once(tmp_path):
    folder = make_run(tmp_path).folder
    with (folder / "trajectories.jsonl").open("ab") as file:
        file.write(b'{"trajectory_id":"8.0","sample')
    reader = RunReader(folder)

    assert len(list(reader.trajectories())) == len(list(reader.trajectories())) == 1
    assert reader.torn == [TornLine("trajectories.jsonl", 2)]


def test_line_cut_inside_a_character_is_torn(tmp_path):
    folder = make_run(tmp_path).folder
    data = (folder / "trajectories.jsonl").read_bytes()
    cut = data.index("天".encode()) + 1
    (folder / "trajectories.jsonl").write_bytes(data + data[:cut])
    reader = RunReader(folder)

    assert len(list(reader.trajectories())) == 1
    assert len(reader.torn) == 1


def test_unknown_schema_version_is_refused(tmp_path):
    folder = make_run(tmp_path).folder
    path = folder / "manifest.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**document, "schema_version": 2}), encoding="utf-8")

    with pytest.raises(RunError, match="schema version 2"):
        RunReader(folder)
    (run,) = list_runs(tmp_path)
    assert run.status == "unreadable"
    assert "schema version 2" in str(run.problem)


def test_a_manifest_of_another_shape_is_refused(tmp_path):
    folder = make_run(tmp_path).folder
    path = folder / "manifest.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**document, "settings": []}), encoding="utf-8")

    with pytest.raises(RunError, match="settings is not an object"):
        RunReader(folder)


def test_fields_added_later_are_ignored_and_missing_ones_name_the_line(tmp_path):
    folder = make_run(tmp_path).folder
    path = folder / "groups.jsonl"
    document = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**document, "new_field": 1}) + "\n", encoding="utf-8")
    assert list(RunReader(folder).groups()) == [GROUP]

    path.write_text('{"sample_index": 7}\n', encoding="utf-8")
    with pytest.raises(RunError, match=r"groups\.jsonl:1: not a GroupRecord"):
        list(RunReader(folder).groups())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"rewards":[1.0,null]', '"rewards":[NaN,null]'),
        ('"rewards":[2.0,null]', '"rewards":[1e999,null]'),
        ('"rewards":[1.0,null]', '"rewards":["1",null]'),
        ('"weight":0.5', '"weight":-Infinity'),
        ('"metrics":{"m":1.0}', '"metrics":{"m":NaN}'),
    ],
)
def test_a_number_of_a_grading_that_is_none_names_the_line(tmp_path, old, new):
    path = make_run(tmp_path).folder / "groups.jsonl"
    line = path.read_text(encoding="utf-8")
    assert old in line
    path.write_text(line.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(RunError, match=r"groups\.jsonl:1: .* is no finite number"):
        list(RunReader(path.parent).groups())


def test_folder_without_manifest_is_not_a_run(tmp_path):
    with pytest.raises(RunError, match="no manifest"):
        RunReader(tmp_path)
    assert list_runs(tmp_path) == []
    assert list_runs(tmp_path / "missing") == []


def test_unknown_trajectory_names_those_of_its_sample(tmp_path):
    reader = RunReader(make_run(tmp_path).folder)
    with pytest.raises(RunError) as caught:
        reader.trajectory("7.9")
    assert "7.1" in caught.value.hint


def test_runs_are_listed_newest_first_and_found_by_name(tmp_path, monkeypatch):
    old = make_run(tmp_path, started_at="2020-01-01T00:00:00.000000Z").folder
    new = make_run(tmp_path).folder

    assert [run.folder for run in list_runs(tmp_path)] == [new, old]
    assert find_run(tmp_path, "latest") == new
    assert find_run(tmp_path, "latest", is_wanted=lambda run: run.folder == old) == old
    assert find_run(tmp_path, "latest", is_wanted=lambda run: False) == new
    assert find_run(tmp_path, old.name) == old
    assert find_run(tmp_path, str(old)) == old
    # from the dash on: a digit or two may be how both names begin
    unique_end = next(old.name[-n:] for n in range(5, 9) if not new.name.endswith(old.name[-n:]))
    assert find_run(tmp_path, unique_end) == old


def test_unknown_or_ambiguous_run_lists_what_exists(tmp_path):
    with pytest.raises(RunError) as nothing:
        find_run(tmp_path, "latest")
    assert "arkdev test plugin" in nothing.value.hint

    folders = [make_run(tmp_path).folder, make_run(tmp_path).folder]
    with pytest.raises(RunError) as unknown:
        find_run(tmp_path, "zzz")
    with pytest.raises(RunError, match="any of 2") as ambiguous:
        find_run(tmp_path, "2")
    for folder in folders:
        assert folder.name in unknown.value.hint
        assert folder.name in ambiguous.value.hint
