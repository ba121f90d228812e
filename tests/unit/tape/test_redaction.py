"""Secrets stay off a tape, and what was masked does not stand in the way of a match."""

from __future__ import annotations

import json
from typing import Any

import pytest

from arkdev.tape.redaction import Redaction, same

KEY = "sk-4f6d8e02a7"
REDACTION = Redaction([KEY])


def test_telling_headers_are_masked_whole() -> None:
    headers = {
        "authorization": "Bearer x",
        "cookie": "a=b",
        "set-cookie": "a=b",
        "x-api-key": "1",
        "x-auth-token": "2",
        "x-amz-signature": "3",
        "mcp-session-id": "4",
        "accept": f"a {KEY} b",
    }
    redacted = REDACTION.headers(headers)
    assert redacted.pop("accept") == "a *** b"
    assert set(redacted.values()) == {"***"}


@pytest.mark.parametrize(
    ("url", "redacted"),
    [
        ("http://h:1/p?q=tea&api_key=abc&n=1", "http://h:1/p?q=tea&api_key=***&n=1"),
        ("http://me:secret@h/p", "http://***@h/p"),
        (f"http://h/{KEY}/p", "http://h/***/p"),
        ("http://h/p?q=a%20b+c", "http://h/p?q=a%20b+c"),
    ],
)
def test_urls_keep_no_secret(url: str, redacted: str) -> None:
    assert REDACTION.url(url) == redacted


def test_bodies_are_masked_by_what_they_are() -> None:
    body = {"q": "tea", "auth": {"accessKey": "a", "n": 3}, "items": [{"password": 1234}]}
    masked = json.loads(REDACTION.body(json.dumps(body), content_type="application/json"))
    assert masked == {
        "q": "tea",
        "auth": {"accessKey": "***", "n": 3},
        "items": [{"password": "***"}],
    }
    form = REDACTION.body("q=tea&token=abc", content_type="application/x-www-form-urlencoded")
    assert form == "q=tea&token=***"
    assert REDACTION.body(f"plain {KEY}", content_type="text/plain") == "plain ***"
    odd = '{"a":  1}'
    assert REDACTION.body(odd, content_type="application/json") == odd


def test_what_only_looks_like_a_secret_stays() -> None:
    tools = {"properties": {"token": {"type": "string"}}, "max_tokens": 5, "keys": ["a"]}
    assert REDACTION.named(tools) == tools


@pytest.mark.parametrize(
    ("recorded", "now", "is_same"),
    [
        ("Bearer ***", "Bearer abc", True),
        ("Bearer ***", "Basic abc", False),
        ({"key": "***", "q": 1}, {"key": 7, "q": 1}, True),
        ({"key": "***", "q": 1}, {"key": 7, "q": 2}, False),
        ([1, "a***b***"], [1, "a\nb"], True),
        ([1], [1, 2], False),
        ({"a": 1}, {"b": 1}, False),
        (1, True, False),
        (1.0, 1.0, True),
    ],
)
def test_a_masked_place_equals_anything(recorded: Any, now: Any, is_same: bool) -> None:
    assert same(recorded, now) is is_same
