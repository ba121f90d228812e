"""What an instance writes is read back byte for byte, however it is cut on the way."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arkdev.faas_emulator.worker.log_wire import (
    MAX_FRAME_BYTES,
    MAX_LINE_BYTES,
    Failed,
    OutputReader,
    Ready,
    frame,
    text_frames,
)
from arkdev.observe.log_lines import OUTPUT, PRINT


def printed(text, request_id="r"):
    return b"".join(text_frames(text, request_id=request_id, level=PRINT, at=1.5))


def read(*parts, stream="stdout"):
    reader = OutputReader(stream)
    found = [output for part in parts for output in reader.feed(part)]
    return found + reader.close()


def said(*parts):
    return [(line.request_id, line.level, line.data) for line in read(*parts)]


@given(st.binary(max_size=300), st.lists(st.integers(0, 2000), max_size=6))
def test_printed_bytes_come_back_as_they_were_wherever_they_are_cut(data, cuts):
    written = printed(data.decode("utf-8", "surrogateescape"))
    cuts = sorted(min(cut, len(written)) for cut in cuts)
    parts = [written[a:b] for a, b in zip([0, *cuts], [*cuts, len(written)], strict=True)]
    lines = data.split(b"\n")
    expected = [*lines[:-1], *([lines[-1]] if lines[-1] else [])]
    assert [line for _, _, line in said(*parts)] == expected


@pytest.mark.parametrize("text", ["x" * 10_000, "\U0001f600" * 3_000, "\x00" * 3_000])
def test_a_long_text_comes_in_frames_that_a_pipe_takes_in_one_piece(text):
    frames = list(text_frames(text, request_id="r" * 128, level="INFO", at=1.0, logger="l" * 200))
    assert len(frames) > 1
    assert max(map(len, frames)) <= MAX_FRAME_BYTES
    (line,) = read(*frames)
    assert (line.text, line.logger) == (text, "l" * 200)


def test_a_log_record_is_one_line_with_its_traceback_in_it():
    text = "failed\nTraceback ...\nKeyError: 1"
    frames = text_frames(text, request_id="r", level="ERROR", at=2.0, logger="towns")
    (line,) = read(*frames, stream="stderr")
    assert (line.text, line.level, line.logger, line.at) == (text, "ERROR", "towns", 2.0)
    assert line.stream == "stderr"


def test_lines_of_requests_that_print_in_turn_are_put_together():
    parts = [printed("a", "1"), printed("b", "2"), printed("c\n", "1"), printed("d\n", "2")]
    assert said(*parts) == [("1", PRINT, b"ac"), ("2", PRINT, b"bd")]


def test_what_is_written_past_python_belongs_to_the_request_that_is_alone():
    begin, end = (lambda name: frame({"begin": name})), (lambda name: frame({"end": name}))
    found = said(
        b"early\nhalf",
        begin("1"),
        b" a line\n" + printed("mine\n", "1") + b"of ",
        b"1\n",
        begin("2"),
        b"of whom?\n",
        end("1"),
        b"of 2\xff",
        end("2"),
        b"late\n",
    )
    assert found == [
        ("", OUTPUT, b"early"),
        ("", OUTPUT, b"half"),
        ("1", OUTPUT, b" a line"),
        ("1", PRINT, b"mine"),
        ("1", OUTPUT, b"of 1"),
        ("", OUTPUT, b"of whom?"),
        ("2", OUTPUT, b"of 2\xff"),
        ("", OUTPUT, b"late"),
    ]


def test_a_line_that_never_ends_is_there_when_its_request_ends():
    assert said(printed("no end", "1"), frame({"end": "1"})) == [("1", PRINT, b"no end")]


def test_a_line_is_cut_where_it_would_fill_the_memory():
    written = bytes(range(32, 127)) * 25_000
    lines = said(written, b"\n")
    assert len(lines) == 4 and max(len(data) for _, _, data in lines) == MAX_LINE_BYTES
    assert b"".join(data for _, _, data in lines) == written


@pytest.mark.parametrize("num_before", [0, 1, 5, 12])
@pytest.mark.parametrize("piece", [65_536, MAX_LINE_BYTES, 3 * MAX_LINE_BYTES])
def test_a_secret_is_masked_also_where_a_long_line_is_cut(num_before, piece):
    line = b"x" * (MAX_LINE_BYTES - num_before) + b"sentinel-key" + b"y" * MAX_LINE_BYTES
    reader = OutputReader("stdout", mask=lambda data: data.replace(b"sentinel-key", b"***"))
    parts = [line[begin : begin + piece] for begin in range(0, len(line), piece)]
    found = [output.data for part in parts for output in reader.feed(part)]
    found += [output.data for output in reader.close()]
    assert b"".join(found) == line.replace(b"sentinel-key", b"***")
    assert not [data for data in found if b"key" in data or b"sent" in data]


@pytest.mark.parametrize(
    "raw",
    [
        b"\x1enot json\n",
        b'\x1e["a"]\n',
        b'\x1e{"text": 1}\n',
        b'\x1e{"other": 1}\n',
        b"\x1e" + b"x" * (MAX_FRAME_BYTES + 10) + b"\n",
        b"\x1ebegun",
    ],
)
def test_somebody_elses_separator_is_raw_output(raw):
    assert b"\n".join(data for _, _, data in said(raw, b"")) == raw.removesuffix(b"\n")


def test_the_word_of_an_instance_is_told():
    assert read(frame({"ready": {"port": 5, "import_s": 0.5}})) == [Ready(5, 0.5)]
    assert read(frame({"failed": {"message": "no"}})) == [Failed({"message": "no"})]


def test_half_a_character_that_code_made_itself_is_not_lost():
    (line,) = read(printed("\ud83d!\n"))
    assert line.data == b"\xed\xa0\xbd!"
    assert json.loads(printed("\ud83d!")[1:])["text"] == "\ud83d!"
