"""Lines that are no samples: what a job tolerates of them, and what is told when it is too many."""

import json
import re
from pathlib import Path

import pytest

from arkdev.errors import DataError
from arkdev.job.dataset import read_files
from arkdev.job.invalid_records import InvalidRecords, Tolerance

GOOD = json.dumps({"messages": [{"role": "user", "content": "1+1=?"}]})


def read(path: Path, text: str | bytes, tolerance: Tolerance, *, limit=None):
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    invalid = InvalidRecords(tolerance)
    return list(read_files([path], limit, invalid=invalid)), invalid


def lines(num_good: int, num_bad: int) -> str:
    return "\n".join(["{}"] * num_bad + [GOOD] * num_good)


@pytest.mark.parametrize("tolerance", [Tolerance(number=2), Tolerance(ratio=0.2)])
def test_as_many_as_tolerated_are_passed_over_and_counted(tmp_path, tolerance):
    found, invalid = read(tmp_path / "d.jsonl", lines(8, 2), tolerance)
    assert [line.index for line in found] == list(range(8))
    assert [line.line_number for line in found] == list(range(3, 11))
    assert invalid.count == 2
    [warning] = invalid.warnings()
    assert (warning.count, warning.where.rpartition("/")[2]) == (2, "d.jsonl:1")
    assert warning.message.startswith(f"passed over, as {tolerance.name} allows: messages is miss")


@pytest.mark.parametrize(
    ("tolerance", "named"),
    [
        (Tolerance(number=2), r"max_invalid_records_number \(2\)"),
        (Tolerance(ratio=0.2), r"max_invalid_records_ratio \(0.2\)"),
    ],
)
def test_one_more_is_an_error_that_names_the_limit(tmp_path, tolerance, named):
    with pytest.raises(DataError, match="3 problems") as caught:
        read(tmp_path / "d.jsonl", lines(8, 3), tolerance)
    assert len(caught.value.problems) == 3
    assert caught.match("d.jsonl:1")
    assert re.search(named, caught.value.hint)


def test_without_a_limit_one_invalid_line_is_too_many(tmp_path):
    with pytest.raises(DataError, match="messages is missing"):
        read(tmp_path / "d.jsonl", lines(100, 1), Tolerance())


def test_a_share_can_be_reached_late_in_the_file(tmp_path):
    """Reading does not stop at 20 problems while later lines may bring the share down."""
    found, invalid = read(tmp_path / "d.jsonl", lines(300, 30), Tolerance(ratio=0.1))
    assert (len(found), invalid.count, len(invalid.first)) == (300, 30, 20)


def test_reading_stops_once_the_number_is_passed(tmp_path):
    with pytest.raises(DataError) as caught:
        read(tmp_path / "d.jsonl", lines(10, 500), Tolerance(number=25))
    assert "reading stopped at 26 problems" in caught.value.hint


def test_a_limit_of_samples_is_judged_by_what_was_read(tmp_path):
    text = "\n".join([GOOD, "{}", GOOD, "{}", "{}", "{}"])
    found, invalid = read(tmp_path / "d.jsonl", text, Tolerance(number=1), limit=2)
    assert (len(found), invalid.count) == (2, 1)


@pytest.mark.parametrize("content", [b"", GOOD.encode("utf-16"), "北京".encode("gbk"), b"[1]"])
def test_a_file_that_is_no_json_lines_is_never_tolerated(tmp_path, content):
    with pytest.raises(DataError):
        read(tmp_path / "d.jsonl", content, Tolerance(ratio=1.0))


def test_one_line_of_another_encoding_is_one_invalid_line(tmp_path):
    good = GOOD.replace("1+1", "北京").encode()
    text = b"\n".join([good, '{"messages": "北京"}'.encode("gbk"), good])
    found, invalid = read(tmp_path / "d.jsonl", text, Tolerance(number=1))
    assert [line.line_number for line in found] == [1, 3]
    assert "not UTF-8" in invalid.first[0].message


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"ratio": 0.1, "number": 1}, "exclude each other"),
        ({"ratio": 5}, "a share from 0 to 1"),
        ({"ratio": -0.1}, "a share from 0 to 1"),
        ({"ratio": float("nan")}, "a share from 0 to 1"),
        ({"number": -1}, "at least 0"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(fields, said):
    with pytest.raises(ValueError, match=said):
        Tolerance(**fields)


def test_a_share_counts_as_it_is_written():
    """In binary, 0.29 * 100 is less than 29."""
    shares = [(n / 100, n) for n in range(101)]
    assert all(Tolerance(ratio=share).allows(n, num_records=100) for share, n in shares)
    assert not any(Tolerance(ratio=share).allows(n + 1, num_records=100) for share, n in shares)
