"""What is known of data files before they are read: their number, their sizes, whether they are."""

import json
import os

import pytest

from arkdev.errors import DataError
from arkdev.job import dataset_files
from arkdev.job.data import MAX_FILE_BYTES
from arkdev.job.dataset import load_dataset, read_files

GOOD = json.dumps({"messages": [{"role": "user", "content": "1+1=?"}]})


def test_all_files_are_looked_at_before_the_first_is_read(tmp_path):
    good = tmp_path / "good.jsonl"
    good.write_text(GOOD, encoding="utf-8")
    with pytest.raises(DataError) as caught:
        next(read_files([good, tmp_path / "gone.jsonl", tmp_path]))
    assert [text.rpartition(": ")[2] for text in caught.value.problems] == [
        "there is no such data file; did you mean 'good.jsonl'?",
        "this is a folder; name the files in it",
    ]


@pytest.mark.parametrize(("more", "is_refused"), [(0, False), (1, True)])
def test_a_file_of_more_than_2_gb_is_refused_unread(tmp_path, more, is_refused):
    path = tmp_path / "big.jsonl"
    path.write_text(GOOD.replace("1+1", "1" * 5000) + "\n", encoding="utf-8")
    os.truncate(path, MAX_FILE_BYTES + more)  # sparse: takes no space
    if is_refused:
        with pytest.raises(DataError, match=r"has 2\.00 GB, at most 2 are allowed; split it"):
            next(read_files([path]))
    else:
        assert next(read_files([path], 1)).line_number == 1


def test_more_than_20_files_in_one_set_are_refused(tmp_path):
    paths = [tmp_path / f"{number}.jsonl" for number in range(21)]
    for path in paths:
        path.write_text(GOOD, encoding="utf-8")
    assert len(load_dataset(paths[:20]).samples) == 20
    with pytest.raises(DataError, match="21 files in one set, at most 20"):
        load_dataset(paths)


def test_a_line_too_long_for_memory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(dataset_files, "MAX_LINE_BYTES", 1000)
    path = tmp_path / "d.jsonl"
    path.write_text(f"{GOOD}\n{GOOD.replace('1+1', '1' * 2000)}\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"d.jsonl:2: longer than"):
        load_dataset([path])


def test_how_far_the_reading_is_adds_up_to_the_files(tmp_path):
    path = tmp_path / "d.jsonl"
    path.write_text(f"{GOOD}\n" * 2000, encoding="utf-8")
    told: list[int] = []
    list(read_files([path, path], on_bytes=told.append))
    assert sum(told) == 2 * path.stat().st_size
    assert len(told) > 4


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(DataError, match="this is a pipe or a device"):
        load_dataset([tmp_path / "pipe.jsonl"])


def test_a_name_too_long_for_the_disk_is_told(tmp_path):
    with pytest.raises(DataError, match="the file cannot be read: File name too long"):
        load_dataset([tmp_path / ("x" * 300)])
