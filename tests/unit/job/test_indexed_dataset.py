"""Samples by number: each is what reading from the start gives, and its file must not change."""

import json
import os
import random
import tracemalloc

import pytest

from arkdev.errors import DataError
from arkdev.job.dataset import read_files
from arkdev.job.indexed_dataset import IndexedDataset, SampleSet
from arkdev.job.invalid_records import InvalidRecords, Tolerance


def line(number: int) -> str:
    question = {"role": "user", "content": f"问题 {number} " + "x" * (number % 7)}
    return json.dumps({"messages": [question], "extra": {"n": number}}, ensure_ascii=False)


@pytest.fixture
def paths(tmp_path):
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    rows = [line(0), "", "{}", line(1), "  ", line(2)]
    first.write_bytes(("\ufeff" + "\r\n".join(rows)).encode())
    second.write_text("\n\n" + "\n".join(map(line, range(3, 9))), encoding="utf-8")
    return [first, second]


def indexed(paths, **limits) -> IndexedDataset:
    return IndexedDataset(read_files(paths, invalid=InvalidRecords(Tolerance(number=9)), **limits))


def test_a_sample_by_number_is_the_one_that_reading_gives(paths):
    dataset = indexed(paths)
    expected = list(read_files(paths, invalid=InvalidRecords(Tolerance(number=9))))
    order = list(range(len(dataset)))
    random.Random(1).shuffle(order)
    assert len(dataset) == 9
    for index in order:
        assert dataset[index] == expected[index]
        assert dataset.where(index) == expected[index].where
    assert [dataset.num_of_file(number) for number in range(3)] == [3, 6, 0]


def test_the_same_file_twice_is_two_parts(paths):
    dataset = indexed([paths[1], paths[1]])
    assert [dataset.num_of_file(0), dataset.num_of_file(1)] == [6, 6]
    assert dataset[7].raw == dataset[1].raw
    assert (dataset[7].index, dataset[7].line_number) == (7, dataset[1].line_number)


@pytest.mark.parametrize("index", [-1, 9])
def test_there_is_no_sample_outside(paths, index):
    with pytest.raises(IndexError, match="the data has 9"):
        indexed(paths)[index]


def test_a_file_that_changed_since_is_refused(paths):
    dataset = indexed(paths)
    text = paths[1].read_text(encoding="utf-8")
    paths[1].write_text(text.replace("问题 3", "问题 4"), encoding="utf-8")
    os.utime(paths[1], ns=(1, 1))
    assert dataset[0].sample.extra == {"n": 0}
    with pytest.raises(DataError, match="no longer what it was") as caught:
        dataset[3]
    assert caught.value.where.endswith("b.jsonl:3")
    paths[0].unlink()
    with pytest.raises(DataError, match="no longer what it was"):
        dataset[0]


def test_a_set_is_a_pick_of_a_dataset(paths):
    picked = SampleSet(indexed(paths), [4, 4, 0])
    assert [sample.raw["extra"]["n"] for sample in picked] == [4, 4, 0]
    assert [sample.raw["extra"]["n"] for sample in picked[1:]] == [4, 0]


def test_the_index_takes_8_bytes_a_sample(tmp_path):
    path = tmp_path / "d.jsonl"
    path.write_text("\n".join(map(line, range(4_000))), encoding="utf-8")
    indexed([path], limit=10)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        dataset = indexed([path])
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(dataset) == 4_000
    assert (after - before) / 4_000 < 12
