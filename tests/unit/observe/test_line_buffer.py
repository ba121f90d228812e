"""Lines from parts: bounded, in linear time, without half a secret in a piece."""

import time

from arkdev.observe.line_buffer import LineBuffer
from arkdev.observe.log_lines import MAX_CHARS, as_it_is


def masked(text):
    return text.replace("sk-0123456789", "***")


def test_parts_make_lines_whatever_they_are_split_at():
    buffer = LineBuffer(as_it_is)
    found = [line for part in ("a", "b\nc", "\n\n", "d") for line in buffer.add(part)]
    assert (found, buffer.rest(), buffer.is_empty) == (["ab", "c", ""], "d", True)


def test_a_character_that_is_split_between_two_parts_stays_whole():
    buffer = LineBuffer(as_it_is)
    data = "北京\n".encode()
    assert [line for byte in data for line in buffer.add_bytes(bytes([byte]))] == ["北京"]
    assert buffer.add_bytes(data[:2]) == []
    assert (buffer.is_empty, buffer.rest()) == (False, "\ufffd")


def test_a_line_that_does_not_end_comes_in_pieces_and_takes_linear_time():
    buffer, found = LineBuffer(as_it_is), []
    begun = time.process_time()
    for _ in range(100_000):
        found += buffer.add("x" * 10)
    assert time.process_time() - begun < 1
    assert max(map(len, found)) <= MAX_CHARS
    assert "".join(found) + buffer.rest() == "x" * 1_000_000


def test_a_secret_is_never_split_between_two_pieces():
    for size in (1, 7, 1000, 70_000):
        text = "sk-0123456789" * 10_000
        buffer, found = LineBuffer(masked), []
        for begin in range(0, len(text), size):
            found += buffer.add(text[begin : begin + size])
        found.append(masked(buffer.rest()))
        assert "".join(found).strip("*") == ""
