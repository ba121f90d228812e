"""A tape file: whole lines, a header that says its version, nothing lost when it is cut short."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from arkdev.errors import OutputError, TapeError, UsageError
from arkdev.tape.format import (
    TapeHeader,
    TapeWriter,
    check_free,
    encoded_line,
    header_line,
    read_tape,
)
from arkdev.tape.shape import problem_of_settings

HEADER = TapeHeader(
    arkdev="0.1.0", recorded_at="now", seed=7, settings={"seed": 0}, flags={}, hashes={}
)


def tape_of(path: Path, *lines: dict[str, Any], header: TapeHeader = HEADER) -> Path:
    writer = TapeWriter(path)
    for line in (header_line(header), *lines):
        writer.write(line)
    writer.check()
    writer.close()
    return path


def test_what_was_written_is_read_by_attempt(tmp_path: Path) -> None:
    model = {
        "kind": "model",
        "of": "0.1",
        "attempt": 1,
        "n": 1,
        "request": {"body": {"a": "é"}},
        "answer": {},
    }
    shared = {"kind": "clock", "name": "time.time", "value": 1.5}
    path = tape_of(
        tmp_path / "t.jsonl",
        {"kind": "sample", "index": 3, "line": "{}", "sampling": {}},
        {"kind": "sample", "index": 0, "line": "{}", "sampling": {}},
        model,
        shared,
        {"kind": "group", "sample_index": 3, "verdict": "success"},
    )
    tape = read_tape(path)
    assert tape.header == HEADER
    assert tape.streams == {("0.1", 1): (model,), ("", 0): (shared,)}
    assert [sample["index"] for sample in tape.samples] == [3]
    assert tape.num_unfinished == 1


def test_half_a_character_survives(tmp_path: Path) -> None:
    line = {
        "kind": "model",
        "of": "0.0",
        "attempt": 0,
        "n": 1,
        "request": {"body": {"a": "\ud83d"}},
        "outcome": "cancelled",
    }
    tape = read_tape(tape_of(tmp_path / "t.jsonl", line))
    assert tape.streams[("0.0", 0)] == (line,)


@pytest.mark.parametrize("cut", [1, 20])
def test_a_line_that_was_cut_short_is_left_out(tmp_path: Path, cut: int) -> None:
    whole = {"kind": "clock", "name": "time.time", "value": 1.5}
    path = tape_of(tmp_path / "t.jsonl", whole, {**whole, "value": 2.5})
    path.write_bytes(path.read_bytes()[:-cut])
    assert read_tape(path).streams[("", 0)] == (whole,)


def test_a_line_that_a_full_disk_cut_short_is_left_out(tmp_path: Path) -> None:
    whole = {"kind": "clock", "name": "time.time", "value": 1.5}
    path = tape_of(tmp_path / "t.jsonl", whole)
    path.write_bytes(path.read_bytes() + encoded_line(whole)[:20] + b"\n" + encoded_line(whole))
    assert read_tape(path).streams[("", 0)] == (whole, whole)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "its first line is no header"),
        (b'{"kind":"sample"}\n', "its first line is no header"),
        (b'{"messages": []}\n', "no line of a tape"),
        (b'{"kind":"header","schema_version":2,"arkdev":"9.9"}\n', "schema version 2, of arkdev 9"),
        (b'{"kind":"header","schema_version":1,"more":1}\n', "it has no arkdev"),
        (encoded_line(header_line(HEADER)) + b"hello}\n", "no line of a tape"),
    ],
)
def test_what_is_no_tape_is_refused(tmp_path: Path, text: bytes, said: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(text)
    with pytest.raises(TapeError, match=said):
        read_tape(path)


HTTP = {
    "kind": "http",
    "of": "0.0",
    "attempt": 0,
    "n": 1,
    "request": {"method": "GET", "url": "http://h", "headers": {}, "body": {"text": ""}},
    "response": {"status": 200, "headers": {}, "body": {"base64": ""}},
}
SAMPLE = {"kind": "sample", "index": 0, "line": "{}", "sampling": {}}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({**SAMPLE, "index": ...}, "it has no index"),
        ({**SAMPLE, "line": "no"}, "line is no JSON object"),
        ({**SAMPLE, "sampling": "x"}, "sampling is not an object"),
        ({"kind": "model"}, "it has no n"),
        ({"kind": "model", "n": 1, "request": {}}, r"it has no request\.body"),
        ({"kind": "model", "n": 1, "request": {"body": {}}}, "none of answer, error and outcome"),
        ({"kind": "clock", "name": "time.time", "value": [1]}, "value is not a number or text"),
        ({"kind": "clock", "name": "a", "value": 1, "attempt": [1]}, "attempt its number"),
        ({**HTTP, "response": {}}, r"it has no response\.status"),
        ({**HTTP, "response": {**HTTP["response"], "body": {}}}, r"response\.body is none"),  # type: ignore[dict-item]
        ({**HTTP, "request": []}, "request is not an object"),
        ({"kind": "what"}, "'what' is no kind of line"),
        ({"kind": []}, "is no kind of line"),
        (header_line(HEADER), "there is a second header: two recordings"),
    ],
)
def test_a_line_that_was_edited_is_named(tmp_path: Path, line: dict[str, Any], said: str) -> None:
    edited = {name: value for name, value in line.items() if value is not ...}
    path = tape_of(tmp_path / "t.jsonl", HTTP, SAMPLE, edited)
    with pytest.raises(TapeError, match=said) as told:
        read_tape(path)
    assert told.value.where == f"{path}:4"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"settings": None}, "settings is not an object"),
        ({"seed": "x"}, "seed is not a whole number"),
        ({"new": 1}, "unexpected keyword argument 'new'"),
    ],
)
def test_a_header_that_was_edited_is_named(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(encoded_line({**header_line(HEADER), **change}))
    with pytest.raises(TapeError, match=said) as told:
        read_tape(path)
    assert told.value.where == f"{path}:1"


SETTINGS = {
    "workspace": "/w",
    "rollout": "a:b",
    "graders": [{"reference": "a:c", "weight": 1.0}],
    "num_generations": 2,
    "endpoint": {"name": "scripted", "base_url": None, "model": "m"},
    "seed": 0,
}


@pytest.mark.parametrize(
    ("settings", "flags", "said"),
    [
        ({"endpoint": ...}, {}, "it has no settings.endpoint"),
        ({"endpoint": {}}, {}, "it has no settings.endpoint.name"),
        ({"num_generations": "x"}, {}, "settings.num_generations is not a whole number"),
        ({"num_generations": 0}, {}, "settings.num_generations is less than 1"),
        ({"graders": ["x"]}, {}, "settings.graders[0] is not an object"),
        ({}, {"sampling": "x"}, "flags.sampling is not an object"),
        ({}, {"seed": 1, "graders": ["a:c"]}, None),
    ],
)
def test_settings_that_were_edited_are_named(
    settings: dict[str, Any], flags: dict[str, Any], said: str | None
) -> None:
    edited = {n: value for n, value in {**SETTINGS, **settings}.items() if value is not ...}
    assert problem_of_settings(edited, flags) == said


def test_two_recordings_do_not_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.touch()
    first, second = TapeWriter(path), TapeWriter(path)
    first.claim()
    with pytest.raises(UsageError, match="there already, and a tape holds one run"):
        second.claim()
    first.write(header_line(HEADER))
    first.close()
    second.close()
    with pytest.raises(UsageError, match="there already"):
        TapeWriter(path).claim()


def test_a_missing_tape_is_named(tmp_path: Path) -> None:
    with pytest.raises(TapeError, match=r"none\.jsonl: the tape cannot be read"):
        read_tape(tmp_path / "none.jsonl")


def test_a_tape_is_never_recorded_over(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    check_free(path)
    path.touch()
    check_free(path)  # an empty file is nobody's tape
    path.write_text(json.dumps({"kind": "header"}), encoding="utf-8")
    with pytest.raises(UsageError, match="there already") as told:
        check_free(path)
    assert "name a new file, or delete this one" in told.value.hint
    with pytest.raises(UsageError, match="there is no folder"):
        check_free(tmp_path / "none" / "t.jsonl")
    with pytest.raises(UsageError, match="there already"):
        check_free(tmp_path)


def test_a_full_disk_fails_no_plugin_but_the_run() -> None:
    writer = TapeWriter(Path("/dev/full"))
    writer.write({"kind": "clock"})
    with pytest.raises(OutputError, match="cannot be written any more: No space left"):
        writer.check()
