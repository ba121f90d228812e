"""What a service gave is masked in its answer and in what the plugin makes of it, or in neither."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest

from arkdev.plugin.traffic.exchange import HttpFailure, HttpRequest, HttpResponse, Outcome
from arkdev.tape.format import TapeWriter, read_tape
from arkdev.tape.http_calls import RecordedTraffic, request_document
from arkdev.tape.recording import Recording
from arkdev.tape.redaction import Redaction
from tests.unit.tape.attempts import attempt
from tests.unit.tape.test_format import HEADER

SECRET = "Zq7+abC/9dEf==xy"


def call(body: bytes | str = b"", *, url: str = "http://h/", content_type: str = "") -> HttpRequest:
    data = body.encode() if isinstance(body, str) else body
    return HttpRequest("httpx", "POST", url, {"content-type": content_type}, data)


def answer_of(document: Any) -> HttpResponse:
    return HttpResponse(200, {"x-auth-token": "t-0987654321"}, json.dumps(document).encode())


def recorded(path: Path, *calls: tuple[str, HttpRequest, Outcome]) -> list[dict[str, Any]]:
    """Record calls, each of the attempt named first; return their lines."""
    recording = Recording(TapeWriter(path), seed=7)
    recording.begin(HEADER, secrets=[SECRET])
    traffic = RecordedTraffic(recording)
    for name, request, outcome in calls:
        with attempt(name):
            traffic.after(request, outcome, duration_s=0.0)
    recording.close()
    return [line for stream in read_tape(path).streams.values() for line in stream]


def test_a_key_that_names_something_stays_in_an_answer(tmp_path: Path) -> None:
    document = {"key": "PROJ-17", "token": "hello", "auth": 1234567, "cookie": "oat"}
    (line,) = recorded(tmp_path / "t.jsonl", ("0.0", call(), answer_of(document)))
    assert json.loads(line["response"]["body"]["text"]) == document


@pytest.mark.parametrize("name", ["token", "key", "apiKey", "session_id"])
@pytest.mark.parametrize("asking", ["0.0", "0.0+0.1 judge", "7.0"])
def test_a_token_from_an_answer_is_masked_in_what_is_asked_then(
    tmp_path: Path, name: str, asking: str
) -> None:
    token = "a1b2c3d4e5f6a7b8"
    lines = recorded(
        tmp_path / "t.jsonl",
        ("0.0", call(), answer_of({name: token, "text": json.dumps({name: token})})),
        (asking, call(f"the ticket is {token}"), answer_of({})),
    )
    assert lines[-1]["request"]["body"]["text"] == "the ticket is ***"
    assert token not in (tmp_path / "t.jsonl").read_text(encoding="utf-8")


def test_a_token_in_a_header_of_an_answer_is_masked_in_what_is_asked_then(tmp_path: Path) -> None:
    calls = [("0.0", call(), answer_of({})), ("0.0", call("t-0987654321"), answer_of({}))]
    lines = recorded(tmp_path / "t.jsonl", *calls)
    assert lines[1]["request"]["body"] == {"text": "***"}


@pytest.mark.parametrize(
    "request_",
    [
        call(url=f"http://h/p?q={quote_plus(SECRET)}"),
        call(url=f"http://h/{quote_plus(SECRET)}/p"),
        call(f"q={quote_plus(SECRET)}", content_type="application/x-www-form-urlencoded"),
        call(b"\xff\xfe" + SECRET.encode()),
        call(gzip.compress(SECRET.encode())),
        call(json.dumps({"a": json.dumps({"b": SECRET})})),
    ],
    ids=["query", "path", "form", "bytes", "gzip", "json in json"],
)
def test_a_known_secret_is_masked_however_it_is_written(request_: HttpRequest) -> None:
    document = json.dumps(request_document(request_, Redaction([SECRET])))
    for text in (SECRET, quote_plus(SECRET), "WnE3K2FiQy85ZEVm"):
        assert text not in document


def test_a_known_secret_is_masked_in_packed_and_binary_answers(tmp_path: Path) -> None:
    bodies = (b"\xff" + SECRET.encode(), gzip.compress(b"\xff" + SECRET.encode()))
    calls = [("0.0", call(), HttpResponse(200, {}, body)) for body in bodies]
    first, second = recorded(tmp_path / "t.jsonl", *calls)
    assert first["response"]["body"] == {"base64": "/yoqKg=="}
    assert second["response"]["body"]["base64"].startswith("H4sI")
    recorded(tmp_path / "u.jsonl", ("0.0", call(), HttpFailure("timeout", f"at {SECRET}")))
    assert SECRET not in (tmp_path / "u.jsonl").read_text(encoding="utf-8")


def test_a_packed_request_is_the_same_whenever_it_was_packed() -> None:
    redaction = Redaction(())
    documents = [
        request_document(call(gzip.compress(b"tea", mtime=mtime)), redaction) for mtime in (1, 2)
    ]
    assert documents[0] == documents[1]


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ('{"pwd":"a","signature":"b","bearer":"c"}', {"pwd", "signature", "bearer"}),
        ('{"credentials":{"user":"a","value":"b"}}', {"user", "value"}),
        ('{"tokens":["a1b2c3d4"]}', {"tokens"}),
        ('{"arguments":"{\\"api_key\\":\\"abc\\"}"}', {"api_key"}),
        ('{"q":1}\n{"api_key":"abc"}\n', {"api_key"}),
    ],
)
def test_telling_names_in_bodies_are_masked(text: str, masked: set[str]) -> None:
    redacted = Redaction(()).body(text, content_type="application/json")
    assert redacted.count("***") == len(masked), redacted
    for value in ('"a"', '"b"', '"c"', "abc", "a1b2c3d4"):
        assert value not in redacted


@pytest.mark.parametrize("name", ["X-Amz-Signature", "sig", "sign", "ak", "sk", "pwd", "jwt"])
def test_telling_names_in_queries_are_masked(name: str) -> None:
    assert Redaction(()).url(f"http://h/p?{name}=abc&n=1") == f"http://h/p?{name}=***&n=1"


@pytest.mark.parametrize("name", ["x-session", "x-access", "x-jwt"])
def test_telling_headers_of_sessions_are_masked(name: str) -> None:
    assert Redaction(()).headers({name: "abc", "accept": "a"}) == {name: "***", "accept": "a"}


def test_numbers_and_words_under_telling_names_of_the_wire_stay() -> None:
    document = {"pass": 17, "tokens": ["the", "cat"], "sign": False, "session_id": None}
    assert Redaction(()).named(document) == document
