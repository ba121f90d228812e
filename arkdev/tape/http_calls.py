"""HTTP calls of plugins on a tape: rules for `arkdev.plugin.traffic`, one for each use of it."""

from __future__ import annotations

import base64
import gzip
import io
import zlib
from collections.abc import Mapping
from concurrent.futures import Future
from contextvars import ContextVar

from arkdev.errors import TapeMismatchError
from arkdev.observe.attempt import attempt_here
from arkdev.plugin.traffic.exchange import HttpFailure, HttpRequest, HttpResponse, Outcome
from arkdev.tape.format import CANCELLED, HTTP, Line
from arkdev.tape.recording import Recording, current_stream
from arkdev.tape.redaction import Redaction
from arkdev.tape.replay import Replay

carries_mcp: ContextVar[bool] = ContextVar("carries_mcp", default=False)
"""Set where HTTP is the transport of an MCP session, whose requests are recorded as such."""

_OF_THE_WIRE = ("content-encoding", "content-length", "transfer-encoding")
"""Headers of a body that is decoded by now."""
_GZIP = b"\x1f\x8b"
_MAX_UNPACKED = 32 * 2**20


class RecordedTraffic:
    """Lets calls pass, and records them when they are over."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    def before(self, request: HttpRequest) -> Future[None] | None:
        """Hold nothing back."""

    def answer(self, request: HttpRequest) -> Outcome | None:
        """Answer nothing."""

    def changed(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        """Change nothing."""
        return response

    def after(self, request: HttpRequest, outcome: Outcome, *, duration_s: float) -> None:
        """Record a call and what the plugin got."""
        if carries_mcp.get():
            return
        if isinstance(outcome, HttpResponse) and outcome.body is None:
            attempt = attempt_here()
            if attempt is not None:
                attempt.note("tape_without_stream", request.host)
        stream = current_stream()
        self._recording.exchange(
            HTTP,
            stream,
            number=self._recording.number(HTTP, stream),
            exchange=lambda redaction: {
                "request": request_document(request, redaction),
                **_outcome_document(outcome, redaction),
                "duration_s": round(duration_s, 6),
            },
        )


class ReplayedTraffic:
    """Answers every call from a tape; nothing reaches the network."""

    def __init__(self, replay: Replay) -> None:
        self._replay = replay
        self._answers: dict[int, Outcome] = {}
        """Of requests that are under way, by their id."""

    def before(self, request: HttpRequest) -> Future[None] | None:
        """Look a request up. One that was given up is never answered, until it is again."""
        if carries_mcp.get():
            return None
        asked = request_document(request, self._replay.redaction)
        line = self._replay.answer(HTTP, current_stream(), asked)
        if line.get("outcome") == CANCELLED:
            return Future()
        self._answers[id(request)] = self._outcome(line)
        return None

    def answer(self, request: HttpRequest) -> Outcome | None:
        """Give what was recorded."""
        return self._answers.get(id(request))

    def changed(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        """Change nothing."""
        return response

    def after(self, request: HttpRequest, outcome: Outcome, *, duration_s: float) -> None:
        """The call is over."""
        self._answers.pop(id(request), None)

    def _outcome(self, line: Line) -> Outcome:
        failure = line.get("failure")
        if failure is not None:
            return HttpFailure(failure["kind"], failure["message"])
        response = line["response"]
        if response["body"] is None:
            request = line["request"]
            raise self._replay.mismatched(
                TapeMismatchError(
                    f"{request['method']} {request['url']} was answered by a stream, which the "
                    "plugin read as it came: a tape does not hold it",
                    hint="ask for a whole answer (stream=False) to be able to replay it",
                )
            )
        return HttpResponse(response["status"], response["headers"], _bytes(response["body"]))


def request_document(request: HttpRequest, redaction: Redaction) -> Line:
    """Return a request as JSON, redacted."""
    return {
        "method": request.method.upper(),
        "url": redaction.url(request.url),
        "headers": redaction.headers(request.headers),
        "body": _body_document(request.body, request.headers, redaction),
    }


def _outcome_document(outcome: Outcome, redaction: Redaction) -> Line:
    if isinstance(outcome, HttpFailure):
        if outcome.kind == CANCELLED:
            return {"outcome": CANCELLED}
        message = redaction.text(outcome.message)
        return {"failure": {"kind": outcome.kind, "message": message}}
    headers = {n: v for n, v in outcome.headers.items() if n not in _OF_THE_WIRE}
    return {
        "response": {
            "status": outcome.status,
            "headers": redaction.headers(headers, is_answer=True),
            "body": _body_document(outcome.body, headers, redaction, is_answer=True),
        }
    }


def _body_document(
    body: bytes | None,
    headers: Mapping[str, str],
    redaction: Redaction,
    *,
    is_answer: bool = False,
) -> Line | None:
    """Return a body as ``{"text": ...}`` or, when it is no text, ``{"base64": ...}``.

    A request that is packed is kept unpacked: packing it again would give other bytes, of another
    time. In an answer, which the plugin unpacks, only what holds a secret is packed again.
    """
    if body is None:
        return None
    content_type = headers.get("content-type", "")
    body = _with_fixed_boundary(body, content_type)
    unpacked = _unpacked(body)
    if unpacked is not None and not is_answer:
        body = unpacked
    elif unpacked is not None and redaction.data(unpacked) != unpacked:
        body = gzip.compress(redaction.data(unpacked), mtime=0)
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(redaction.data(body)).decode()}
    return {"text": redaction.body(text, content_type=content_type, is_answer=is_answer)}


def _unpacked(body: bytes) -> bytes | None:
    """Return what a gzip body holds; None when it is none, or a huge one."""
    if not body.startswith(_GZIP):
        return None
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(body)) as file:
            unpacked = file.read(_MAX_UNPACKED + 1)
    except (OSError, EOFError, zlib.error):
        return None
    return unpacked if len(unpacked) <= _MAX_UNPACKED else None


def _with_fixed_boundary(body: bytes, content_type: str) -> bytes:
    """Name the boundary of a multipart body always the same: libraries draw it at random."""
    kind, _, boundary = content_type.partition("boundary=")
    boundary = boundary.partition(";")[0].strip('" ')
    if not boundary or not kind.lower().startswith("multipart/form-data"):
        return body
    return body.replace(boundary.encode(), b"boundary")


def _bytes(document: Line) -> bytes:
    if "base64" in document:
        return base64.b64decode(document["base64"])
    text: str = document["text"]
    return text.encode("utf-8", "surrogatepass")
