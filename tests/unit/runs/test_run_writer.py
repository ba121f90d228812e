import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from arkdev.errors import OutputError, WorkspaceError
from arkdev.runs.records import (
    Attempt,
    GroupRecord,
    PluginLogRecord,
    SpanRecord,
    TokenRecord,
    TrajectoryRecord,
    Verdict,
)
from arkdev.runs.writer import RunWriter

AT = "2025-03-01T10:15:30.000000Z"


def log_line(text: str) -> PluginLogRecord:
    return PluginLogRecord(
        AT, "INFO", ("7.1",), 0, grader=None, step=None, logger="mine", text=text
    )


def rollout(trajectory_id: str = "7.1", **fields: object) -> TrajectoryRecord:
    sample, generation = map(int, trajectory_id.split("."))
    return TrajectoryRecord(
        trajectory_id,
        sample_index=sample,
        generation=generation,
        verdict=Verdict.SUCCESS,
        duration_s=0.5,
        attempts=(Attempt(Verdict.SUCCESS, 0.5),),
        **fields,
    )


def create(root: Path, **options: object) -> RunWriter:
    settings = options.pop("settings", {})
    return RunWriter.create(root, kind="test", settings=settings, hashes={}, versions={}, **options)


def lines(writer: RunWriter, name: str) -> list[dict]:
    text = (writer.folder / name).read_bytes().decode("utf-8")
    assert text.endswith("\n")
    return [json.loads(line) for line in text[:-1].split("\n")]


def test_folder_is_named_after_time_and_kind_and_holds_a_manifest(tmp_path):
    writer = create(tmp_path / "runs", settings={"batch_size": 4})

    assert re.fullmatch(r"\d{8}T\d{6}Z-test-[0-9a-f]{4}", writer.folder.name)
    manifest = json.loads((writer.folder / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["schema_version"] == 1
    assert manifest["run_id"] == writer.folder.name == writer.run_id
    assert (manifest["status"], manifest["settings"]) == ("running", {"batch_size": 4})


def test_finish_writes_status_and_summary_and_leaves_no_temporary_file(tmp_path):
    writer = create(tmp_path)
    writer.finish("finished", {"mean": 0.5})

    manifest = json.loads((writer.folder / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["status"] == "finished"
    assert manifest["summary"] == {"mean": 0.5}
    assert manifest["finished_at"] >= manifest["started_at"]
    assert sorted(p.name for p in writer.folder.iterdir()) == ["logs", "manifest.json"]


def test_each_record_is_one_line_in_its_file(tmp_path):
    writer = create(tmp_path)
    writer.trajectory(rollout(extra={"say": "one\ntwo\u2028three"}))
    writer.group(GroupRecord(7, Verdict.SUCCESS, ("7.1",), (0.25,)))
    writer.tokens(TokenRecord("7.1", (1, 2), (0.0, 1.0), (0.0, -0.5)))
    writer.event("rollout_started", slot=3)
    writer.metrics({"reward_mean": 0.25})
    writer.log(log_line("first\nsecond"))

    (trajectory,) = lines(writer, "trajectories.jsonl")
    assert trajectory["extra"] == {"say": "one\ntwo\u2028three"}
    assert trajectory["attempts"][0]["verdict"] == "success"
    assert lines(writer, "groups.jsonl")[0]["rewards"] == [0.25]
    assert lines(writer, "tokens.jsonl")[0]["logprobs"] == [0.0, -0.5]
    assert lines(writer, "events.jsonl")[0]["slot"] == 3
    assert lines(writer, "metrics.jsonl")[0]["reward_mean"] == 0.25
    assert lines(writer, "logs/plugin.jsonl")[0]["text"] == "first\nsecond"


def test_a_span_keeps_what_json_lacks_and_hides_secrets(tmp_path):
    writer = create(tmp_path, secrets=["sk-very-secret"])
    given = {"odd": object, "said": ["sk-very-secret"]}
    ids = ("a" * 32, "b" * 16, None)
    span = SpanRecord(*ids, "chat", "client", AT, 0.5, ("7.1",), 0, attributes=given)
    for _ in range(100):
        writer.span(vars(span))
    assert 64 <= len(lines(writer, "traces.jsonl")) < 100  # several at a time
    writer.finish("finished", {})
    assert len(lines(writer, "traces.jsonl")) == 100
    for line in lines(writer, "traces.jsonl"):
        assert line["attributes"] == {"odd": "<class 'object'>", "said": ["***"]}


def test_text_is_written_as_utf8_without_escapes_or_bom(tmp_path):
    writer = create(tmp_path)
    writer.trajectory(rollout(extra={"city": "北京 🍸"}))

    data = (writer.folder / "trajectories.jsonl").read_bytes()
    assert "北京 🍸".encode() in data
    assert not data.startswith(b"\xef\xbb\xbf")


def test_lone_surrogate_is_replaced_and_flagged_and_a_pair_is_one_character(tmp_path):
    writer = create(tmp_path)
    whole = writer.trajectory(rollout("1.0", extra={"text": "\ud83c\udf78"}))
    cut = writer.trajectory(
        rollout("1.1", messages=({"role": "assistant", "content": "a\ud83d b"},))
    )
    assert (whole.warnings, cut.warnings) == ((), ("text_replaced",))  # for the report
    writer.log(log_line("log \ud83d"))
    writer.finish("finished", {})

    pair, lone = lines(writer, "trajectories.jsonl")
    assert (pair["extra"]["text"], pair["warnings"]) == ("🍸", [])
    assert lone["messages"][0]["content"] == "a\ufffd b"
    assert lone["warnings"] == ["text_replaced"]
    assert lines(writer, "logs/plugin.jsonl")[0]["text"] == "log \ufffd"


class Scalar:
    def __repr__(self) -> str:
        return "float32(1.5)"


class Hostile:
    def __repr__(self) -> str:
        raise RuntimeError("no")


def test_odd_values_in_extra_become_their_repr_and_never_lose_the_trajectory(tmp_path):
    circular: dict = {}
    circular["self"] = circular
    extra = {
        "scalar": Scalar(),
        "nan": float("nan"),
        "hostile": Hostile(),
        "circular": circular,
        ("a", 1): {1, 2},
        "huge": 10**5000,
        "kept": [1, None, True],
    }
    writer = create(tmp_path)
    writer.trajectory(rollout(extra=extra, warnings=("history_rewritten",)))

    (line,) = lines(writer, "trajectories.jsonl")
    assert line["warnings"] == ["history_rewritten", "not_json"]
    assert line["extra"]["scalar"] == "float32(1.5)"
    assert line["extra"]["nan"] == "nan"
    assert line["extra"]["('a', 1)"] == "{1, 2}"
    assert line["extra"]["kept"] == [1, None, True]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_number_that_json_lacks_is_refused_by_the_name_of_its_field(tmp_path, value):
    writer = create(tmp_path)
    with pytest.raises(ValueError, match=r"rewards\[1\] is (nan|inf)"):
        writer.group(GroupRecord(7, Verdict.SUCCESS, ("7.0", "7.1"), (0.0, value)))
    with pytest.raises(ValueError, match="loss is"):
        writer.metrics({"loss": value})
    assert not (writer.folder / "groups.jsonl").exists()


def test_secrets_are_masked_in_settings_and_in_every_line(tmp_path):
    secret = 'sk-"quoted"-1234'
    settings = {
        "api_key": "abc",
        "api_key_env": "ARK_API_KEY",
        "max_new_tokens": 4096,
        "headers": {"Authorization": "Bearer abc", "accept": "x"},
        "password": None,
        "endpoint": "https://user:hunter2@host/v1",
        "note": f"uses {secret}",
    }
    writer = create(tmp_path, settings=settings, secrets=[secret, "12345678", "short"])
    writer.trajectory(rollout(extra={"said": f"key {secret}!", "n": 123456789, "t": "12345678"}))
    writer.log(log_line(f"Bearer {secret}, short"))
    writer.finish("finished", {})

    manifest = json.loads((writer.folder / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["settings"] == {
        "api_key": "***",
        "api_key_env": "ARK_API_KEY",
        "max_new_tokens": 4096,
        "headers": {"Authorization": "***", "accept": "x"},
        "password": None,
        "endpoint": "https://***@host/v1",
        "note": "uses ***",
    }
    (line,) = lines(writer, "trajectories.jsonl")
    assert line["extra"] == {"said": "key ***!", "n": 123456789, "t": "***"}
    assert lines(writer, "logs/plugin.jsonl")[0]["text"] == "Bearer ***, short"


def test_threads_write_whole_lines(tmp_path):
    writer = create(tmp_path)
    padding = "x" * 20_000

    def write(thread: int) -> None:
        for index in range(20):
            writer.trajectory(rollout(f"{thread}.{index}", extra={"padding": padding}))

    threads = [threading.Thread(target=write, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len({line["trajectory_id"] for line in lines(writer, "trajectories.jsonl")}) == 160


def test_given_folder_must_be_new_or_empty(tmp_path):
    (tmp_path / "empty").mkdir()
    assert create(tmp_path, folder=tmp_path / "empty").folder == tmp_path / "empty"
    assert create(tmp_path, folder=tmp_path / "a" / "new").run_id == "new"
    with pytest.raises(WorkspaceError, match="not empty"):
        create(tmp_path, folder=tmp_path / "empty")


def test_folder_that_cannot_be_made_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(WorkspaceError, match="cannot make a run folder"):
        create(tmp_path / "file")


def test_runs_made_at_the_same_moment_never_share_a_folder(tmp_path, monkeypatch):
    names = iter(["aaaa", "aaaa", "aaaa", "bbbb"])
    monkeypatch.setattr("arkdev.runs.writer.random_names.token_hex", lambda _: next(names))
    # the second may fall into the next second, then its first name is free
    folders = {create(tmp_path).folder, create(tmp_path).folder}
    assert len(folders) == 2


def test_two_claims_of_one_folder_have_one_winner(tmp_path):
    barrier = threading.Barrier(4)
    outcomes = []

    def claim() -> None:
        barrier.wait()
        try:
            outcomes.append(create(tmp_path, folder=tmp_path / "out").run_id)
        except WorkspaceError:
            outcomes.append(None)

    threads = [threading.Thread(target=claim) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes, key=str) == [None, None, None, "out"]


ENDLESS = """
import sys
from pathlib import Path
from arkdev.runs.records import Attempt, TrajectoryRecord, Verdict
from arkdev.runs.writer import RunWriter

writer = RunWriter.create(Path(sys.argv[1]), kind="test", settings={}, hashes={}, versions={})
index = 0
while True:
    attempts = (Attempt(Verdict.SUCCESS, 0.5),)
    writer.trajectory(TrajectoryRecord(
        f"{index}.0", index, 0, Verdict.SUCCESS, 0.5, attempts, extra={"p": "x" * 50_000}))
    index += 1
"""


def test_kill_leaves_whole_lines_and_a_run_that_reads_as_killed(tmp_path):
    from arkdev.runs.reader import RunReader, list_runs

    process = subprocess.Popen([sys.executable, "-c", ENDLESS, str(tmp_path)])
    try:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob("*/trajectories.jsonl")) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert list_runs(tmp_path)[0].status == "running"
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()

    (run,) = list_runs(tmp_path)
    reader = RunReader(run.folder)
    ids = [record.sample_index for record in reader.trajectories()]
    assert run.status == "killed"
    assert ids == list(range(len(ids))) and ids
    assert len(reader.torn) <= 1


def test_a_record_after_its_file_was_removed_is_an_error_and_not_lost_in_silence(tmp_path):
    writer = create(tmp_path)
    writer.trajectory(rollout("7.1"))
    (writer.folder / "trajectories.jsonl").unlink()
    with pytest.raises(OutputError, match=r"trajectories\.jsonl was removed"):
        writer.trajectory(rollout("7.2"))
    shutil.rmtree(writer.folder)
    with pytest.raises(OutputError, match="run folder was removed") as caught:
        writer.trajectory(rollout("7.2"))
    assert caught.value.where == str(writer.folder)
