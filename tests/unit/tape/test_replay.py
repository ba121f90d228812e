"""What is asked again is found by its content; what differs ends the rollout with a diff."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from arkdev.endpoints.endpoint import ModelRequest
from arkdev.errors import EndpointResponseError, EndpointUnreachableError, TapeMismatchError
from arkdev.tape.callers import Workspace
from arkdev.tape.format import TapeWriter, read_tape
from arkdev.tape.model_calls import RecordedEndpoint, ReplayedEndpoint
from arkdev.tape.recording import Recording
from arkdev.tape.redaction import Redaction
from arkdev.tape.replay import Replay
from tests.running import FakeEndpoint
from tests.unit.tape.attempts import attempt
from tests.unit.tape.test_format import HEADER

STREAM = ("0.0", 0)
Lines = Callable[..., Replay]


def http(url: str, body: str = "", *, of: str = "0.0", n: int = 1, **fields: Any) -> dict[str, Any]:
    request = {"method": "POST", "url": url, "headers": {"x": "1"}, "body": {"text": body}}
    answer = {"status": 200, "headers": {}, "body": {"text": f"{url} {body}"}}
    whose = {"of": of, "attempt": 0} if of else {}
    return {"kind": "http", **whose, "n": n, "request": request, "response": answer, **fields}


def asked(url: str, body: str = "") -> dict[str, Any]:
    return {"method": "POST", "url": url, "headers": {"other": "2"}, "body": {"text": body}}


def replay_of(path: Path, *lines: dict[str, Any]) -> Replay:
    recording = Recording(TapeWriter(path), seed=7)
    recording.begin(HEADER, secrets=())
    for line in lines:
        recording._write(lambda line=line: line)  # type: ignore[misc]
    return Replay(read_tape(path), redaction=Redaction(()), workspace=Workspace(path.parent))


@pytest.fixture
def lines(tmp_path: Path) -> Lines:
    return lambda *lines: replay_of(tmp_path / "t.jsonl", *lines)


def test_concurrent_calls_may_come_in_another_order(lines: Lines) -> None:
    replay = lines(http("http://h/a"), http("http://h/b", n=2))
    for url in ("http://h/b", "http://h/a"):
        answer = replay.answer("http", STREAM, asked(url))
        assert answer["response"]["body"]["text"] == f"{url} "
    assert replay.mismatch is None


def test_equal_requests_get_their_answers_in_order_and_once_each(lines: Lines) -> None:
    replay = lines(http("http://h/a", failure="first"), http("http://h/a", n=2, failure="second"))
    request = asked("http://h/a")
    assert [replay.answer("http", STREAM, request)["failure"] for _ in range(2)] == [
        "first",
        "second",
    ]
    with pytest.raises(TapeMismatchError, match=r"HTTP call 3 of 0\.0 is not on the tape"):
        replay.answer("http", STREAM, request)


def test_the_order_of_keys_and_what_is_masked_do_not_matter(lines: Lines) -> None:
    replay = lines(
        http("http://h/a?key=***", '{"a": 1, "b": [2]}'),
        http("http://h/b", '{"password": "***"}', n=2),
    )
    replay.answer("http", STREAM, asked("http://h/a?key=mine", '{"b":[2],"a":1}'))
    replay.answer("http", STREAM, asked("http://h/b", '{"password": "mine"}'))


def test_a_difference_is_shown_against_the_call_of_the_same_target(lines: Lines) -> None:
    replay = lines(http("http://h/a", '{"q": 1}'), http("http://h/b", '{"q": "tea"}', n=2))
    with pytest.raises(TapeMismatchError) as told:
        replay.answer("http", STREAM, asked("http://h/b", '{"q": "coffee"}'))
    message = told.value.message
    assert '-      "q": "tea"' in message
    assert '+      "q": "coffee"' in message
    assert "record the tape anew" in told.value.hint
    with pytest.raises(TapeMismatchError) as again:  # whatever it does then
        replay.answer("http", STREAM, asked("http://h/a", '{"q": 1}'))
    assert again.value is told.value


def test_what_another_rollout_asked_for_all_is_borrowed_and_told(lines: Lines) -> None:
    replay = lines(http("http://h/token", of="3.1"), http("http://h/login", of=""))
    for _ in range(2):
        replay.answer("http", STREAM, asked("http://h/token"))
        replay.answer("http", STREAM, asked("http://h/login"))
    assert replay.borrowed == ["POST http://h/token of 3.1"] * 2


def test_a_changed_call_does_not_pass_for_one_of_another_rollout(lines: Lines) -> None:
    replay = lines(http("http://h/find", "tea"), http("http://h/find", "coffee", of="3.1"))
    replay.answer("http", STREAM, asked("http://h/find", "coffee"))
    replay.check_borrowed()
    assert replay.mismatch is not None
    assert "differs from the recorded one" in replay.mismatch.message
    assert "coffee" in replay.mismatch.message and "tea" in replay.mismatch.message


def test_a_cached_answer_of_another_rollout_may_be_borrowed_beside_ones_own(lines: Lines) -> None:
    replay = lines(http("http://h/find", "tea"), http("http://h/find", "coffee", of="3.1"))
    replay.answer("http", STREAM, asked("http://h/find", "coffee"))
    replay.answer("http", STREAM, asked("http://h/find", "tea"))
    replay.check_borrowed()
    assert replay.mismatch is None
    assert replay.borrowed == ["POST http://h/find of 3.1"]


def test_what_was_never_asked_again_is_named(lines: Lines) -> None:
    replay = lines(http("http://h/a"), http("http://h/b", n=2), http("http://h/c", of="0.1"))
    replay.answer("http", STREAM, asked("http://h/b"))
    assert replay.left_over(lambda name: name == "0.0") == ["POST http://h/a"]


def test_clocks_go_on_where_the_tape_ends(lines: Lines) -> None:
    whose = {"kind": "clock", "of": "0.0", "attempt": 0}
    replay = lines(
        {"kind": "attempt", "of": "0.0", "attempt": 0, "at": 1000.0},
        {**whose, "name": "time.monotonic", "value": 5.0},
        {**whose, "name": "time.monotonic", "value": 6.0},
        {**whose, "name": "time.time_ns", "value": 10**9},
        {**whose, "name": "datetime.now", "value": "2020-01-01T00:00:00"},
    )
    with attempt():
        assert [replay.reading("time.monotonic", time.monotonic) for _ in range(2)] == [5.0, 6.0]
        assert 6.0 <= replay.reading("time.monotonic", time.monotonic) < 7.0
        assert [replay.reading("time.time_ns", time.time_ns) // 10**9 for _ in range(2)] == [1, 1]
        assert 1000.0 <= replay.reading("time.time", time.time) < 1001.0
        moments = {replay.reading("datetime.now", str) for _ in range(2)}
        assert moments == {"2020-01-01T00:00:00"}
    with attempt("0.1"):
        assert replay.reading("time.monotonic", lambda: "real") == "real"


async def test_model_calls_are_answered_and_fail_as_they_did(tmp_path: Path) -> None:
    refused = EndpointResponseError(
        "busy", status=429, body={"a": 1}, headers={"retry-after": "1"}, is_transient=True
    )
    late = EndpointUnreachableError("late", is_timeout=True)
    path = tmp_path / "t.jsonl"
    recording = Recording(TapeWriter(path), seed=7)
    recording.begin(HEADER, secrets=["sk-123456789"])
    endpoint = RecordedEndpoint(FakeEndpoint([refused, late, "fine"]), recording, STREAM)
    request = ModelRequest({"messages": [{"role": "user", "content": "sk-123456789"}]}, {"n": 1})
    for error in (EndpointResponseError, EndpointUnreachableError):
        with pytest.raises(error):
            await endpoint.complete(request)
    answer = await endpoint.complete(request)
    assert "sk-123456789" not in path.read_text(encoding="utf-8")

    replay = Replay(
        read_tape(path), redaction=Redaction(["sk-123456789"]), workspace=Workspace(tmp_path)
    )
    again = ReplayedEndpoint(replay, STREAM, name="fake", model="m")
    with pytest.raises(EndpointResponseError) as busy:
        await again.complete(request)
    assert vars(busy.value) == vars(refused)
    with pytest.raises(EndpointUnreachableError) as unreachable:
        await again.complete(request)
    assert unreachable.value.is_timeout and unreachable.value.is_transient
    assert await again.complete(request) == answer


def model_call(*contents: str, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": content} for content in contents]
    return {"body": {"model": "m", "messages": messages, **more}, "sampling": {"temperature": 1.0}}


def test_model_calls_differ_message_by_message(lines: Lines) -> None:
    long = "word " * 200
    replay = lines(
        {
            "kind": "model",
            "of": "0.0",
            "attempt": 0,
            "n": 1,
            "request": model_call("same", long + "tea", "gone"),
            "answer": {},
        }
    )
    now = model_call("same", long + "coffee", tools=[])
    now["sampling"] = {"temperature": 0.5}
    with pytest.raises(TapeMismatchError) as told:
        replay.answer("model", STREAM, now)
    message = told.value.message
    assert "model call 1 of 0.0 differs from the recorded one" in message
    assert "messages[1] (user)" in message and "messages[2] (user): gone" in message
    assert "messages[0]" not in message
    assert message.count("word") < 100, "long lines are wrapped, equal ones left out"
    assert '+  "tools": []' in message
    assert '-  "temperature": 1.0' in message and '+  "temperature": 0.5' in message
