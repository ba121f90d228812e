"""What is known of deployments that stay up, and what a killed one leaves."""

import errno
import os
import time
from dataclasses import replace

import pytest

from arkdev.errors import OutputError, UsageError
from arkdev.faas_emulator import kept_deployments
from arkdev.faas_emulator.kept_deployments import (
    DeploymentLog,
    KeptDeployment,
    KeptDeployments,
    KeptFunction,
    LogReader,
    owner_here,
)

UP = KeptDeployment(
    id="4f1c2a",
    owner="",
    workspace="/ws",
    url="http://127.0.0.1:1",
    engine="process",
    network="open",
    endpoint="",
    started_at="2026-01-01T00:00:00.000000Z",
    functions=(KeptFunction("one", "plugins.a:one", "single_grader", "http://127.0.0.1:1/one"),),
)


@pytest.fixture
def deployments(tmp_path):
    return KeptDeployments(tmp_path / "state")


def write(deployments, **changes):
    deployment = replace(UP, **{"owner": owner_here(), **changes})
    deployments.make_folder(deployment.id)
    deployments.write(deployment)
    return deployment


def test_what_is_written_is_found_the_oldest_first(deployments):
    newer = write(deployments, id="b", started_at="2026-01-02")
    older = write(deployments, id="c", started_at="2026-01-01")
    assert deployments.all() == [older, newer]
    assert deployments.find("c") == older
    assert older.is_up
    assert older.pid == os.getpid()
    deployments.remove("c")
    assert deployments.all() == [newer]


def test_only_what_belongs_to_processes_that_are_gone_is_left_behind(deployments):
    alive = write(deployments, id="a")
    *machine, _, start = alive.owner.split("/")
    gone = write(deployments, id="b", owner="/".join([*machine, str(2**22 + 1), start]))
    foreign = write(deployments, id="c", owner="other/boot/1/2/3")
    starting = deployments.folder / deployments.make_folder("d")[0]
    assert deployments.left_behind() == {"b": gone}
    assert {each.id for each in deployments.all()} == {"a", "c"}
    assert foreign.is_up  # on another machine, for all that is known
    assert (alive.is_here, foreign.is_here) == (True, False)
    deployments.remove("b")
    (starting / "owner.txt").write_text(gone.owner, encoding="utf-8")  # killed before it was up
    assert deployments.left_behind() == {"d": None}
    (starting / "owner.txt").unlink()
    assert deployments.left_behind() == {}
    old = time.time() - 2 * 3600
    os.utime(starting, (old, old))
    assert deployments.left_behind() == {"d": None}


def test_an_id_never_leads_out_of_the_folder(deployments):
    with pytest.raises(UsageError, match="no id of a deployment"):
        deployments.make_folder("../other")


def test_a_log_is_read_as_it_grows_and_a_line_that_is_not_whole_waits(tmp_path):
    log, reader = DeploymentLog(tmp_path), LogReader(tmp_path)
    assert reader.new_lines() == []
    log.add({"text": "é"})
    assert reader.new_lines() == [{"text": "é"}]
    with (tmp_path / "log.jsonl").open("ab") as file:
        file.write(b'{"text": ')
    assert reader.new_lines() == []
    with (tmp_path / "log.jsonl").open("ab") as file:
        file.write(b'"b"}\n')
    assert reader.new_lines() == [{"text": "b"}]
    log.close()


def test_what_a_full_disk_took_is_counted_in_the_log(tmp_path, monkeypatch):
    log, reader = DeploymentLog(tmp_path), LogReader(tmp_path)
    log.add({"text": "a"})
    write, room = os.write, 5

    def full(descriptor, data):
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        written, room = write(descriptor, data[:room]), 0
        return written

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        log.add({"text": "b"})
        log.add({"text": "c"})
    log.add({"text": "d"})
    log.close()
    texts = [line["text"] for line in reader.new_lines()]
    assert texts == ["a", "lines that could not be written: 2", "d"]


def test_a_state_that_cannot_be_written_is_an_error_with_its_place(deployments):
    with pytest.raises(OutputError, match="cannot be noted: No such file") as raised:
        deployments.write(UP)
    assert raised.value.where.endswith("4f1c2a/state.json")


def test_a_log_is_bounded_and_no_line_is_lost_to_who_reads_along(tmp_path, monkeypatch):
    monkeypatch.setattr(kept_deployments, "MAX_LOG_BYTES", 100)
    log, reader = DeploymentLog(tmp_path), LogReader(tmp_path)
    seen = []
    for number in range(50):
        log.add({"number": number})
        if number % 3 == 0:
            seen += reader.new_lines()
    seen += reader.new_lines()
    assert seen == [{"number": number} for number in range(50)]
    log.close()
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert len(sizes) == 2
    assert max(sizes) <= 100
