from arkdev.runs.following import RunFollower
from arkdev.runs.resume import resume_run
from arkdev.runs.writer import RunWriter


def steps(lines):
    return [line["step"] for line in lines]


def test_what_is_new_is_read_once_and_a_half_line_waits(tmp_path):
    writer = RunWriter.create(tmp_path, kind="train", settings={}, hashes={}, versions={})
    follower = RunFollower(writer.folder)
    assert (follower.new_metrics(), follower.status) == ([], "running")
    writer.metrics({"step": 0})
    with (writer.folder / "metrics.jsonl").open("ab") as file:
        file.write(b'{"at": "2999-01-01T00:00:00Z", "ste')
    assert steps(follower.new_metrics()) == [0]
    assert follower.new_metrics() == []
    with (writer.folder / "metrics.jsonl").open("ab") as file:
        file.write(b'p": 1}\n')
    assert steps(follower.new_metrics()) == [1]
    writer.finish("finished", {})
    assert follower.status == "finished"


def test_a_resumed_run_goes_on_with_the_steps_that_it_redoes(tmp_path):
    writer = RunWriter.create(tmp_path, kind="train", settings={}, hashes={}, versions={})
    follower = RunFollower(writer.folder)
    for step in range(3):
        writer.metrics({"step": step})
    assert steps(follower.new_metrics()) == [0, 1, 2]
    writer.finish("interrupted", {})
    writer = resume_run(writer.folder, from_step=1)
    assert follower.new_metrics() == []
    writer.metrics({"step": 1})
    assert steps(follower.new_metrics()) == [1]
    assert [event["kind"] for event in follower.new_events()] == ["resumed"]
    writer.finish("finished", {})
