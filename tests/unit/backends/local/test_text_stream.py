"""Text is given out in whole characters; field case 1.6."""

import random

import pytest

from arkdev.backends.local.text_stream import TextStream


def decode(ids):
    return bytes(ids).decode("utf-8", "replace")


def test_an_emoji_over_four_tokens_comes_out_whole():
    stream = TextStream(decode)
    pieces = [stream.push([byte]) for byte in "a🌧b".encode()]
    assert pieces == ["a", "", "", "", "🌧", "b"]
    assert stream.finish() == ""


def test_half_a_character_at_the_end_is_given_out_when_it_is_over():
    stream = TextStream(decode)
    assert [stream.push([byte]) for byte in b"a\xf0\x9f"] == ["a", "", ""]
    assert stream.finish() == "\ufffd"


def test_bytes_that_are_no_character_do_not_hold_up_the_rest_for_ever():
    stream = TextStream(decode)
    given = "".join(stream.push([0xFF]) for _ in range(50))
    assert len(given) == 49
    assert given + stream.finish() == "\ufffd" * 50


@pytest.mark.parametrize("seed", range(20))
def test_all_that_is_given_out_is_the_text_of_all_ids(seed):
    chance = random.Random(seed)
    text = "".join(chance.choice("aé中🌧\ufffd \n") for _ in range(30)).encode()
    ids = [chance.choice([byte, byte, byte, 0x80 + chance.randrange(128)]) for byte in text]
    stream, given, at = TextStream(decode), "", 0
    while at < len(ids):
        step = chance.randint(1, 4)
        given += stream.push(ids[at : at + step])
        at += step
    assert given + stream.finish() == decode(ids)
