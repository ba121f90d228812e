"""What the tests of plugins' HTTP calls share: a service on loopback, an attempt, and a rule."""

from __future__ import annotations

import gzip
import http.server
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from arkdev.observe.attempt import current_attempt
from arkdev.plugin.traffic.exchange import HttpRequest, HttpResponse, Outcome


class Service(http.server.ThreadingHTTPServer):
    """Answers ``/ok`` (JSON), ``/moved``, ``/gzip``, ``/nogzip``, ``/events``, ``/late``, ``/cut``
    and ``/status/N``."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.seen: list[tuple[str, str, bytes]] = []
        self.may_end = threading.Event()
        """What ``/late`` and ``/events`` wait for, before they answer and before they end."""


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Service
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        while "chunked" in self.headers.get("transfer-encoding", ""):
            size = int(self.rfile.readline(), 16)
            body += self.rfile.read(size + 2)[:size]
            if not size:
                break
        self.server.seen.append((self.command, self.path, body))
        route, _, argument = self.path.partition("?")[0].strip("/").partition("/")
        getattr(self, f"_{route}")(argument)

    do_POST = do_GET

    def _ok(self, _: str) -> None:
        self._send(200, b'{"city": "Oslo"}', ("set-cookie", "a=1"), ("set-cookie", "b=2"))

    def _status(self, status: str) -> None:
        self._send(int(status), b"{}")

    def _moved(self, _: str) -> None:
        self._send(302, b"", ("location", "/ok"))

    def _gzip(self, _: str) -> None:
        self._send(200, gzip.compress(b'{"city": "Oslo"}'), ("content-encoding", "gzip"))

    def _nogzip(self, _: str) -> None:
        self._send(200, b"plain", ("content-encoding", "gzip"))

    def _cut(self, _: str) -> None:
        self._send(200, b'{"city"', length=100)
        self.close_connection = True

    def _late(self, _: str) -> None:
        self.server.may_end.wait(60)
        self._send(200, b"{}")

    def _events(self, _: str) -> None:
        self._send(200, b"data: 1\n\n", length=None, kind="text/event-stream")
        self.wfile.flush()
        self.server.may_end.wait(60)
        self.wfile.write(b"data: 2\n\n")
        self.close_connection = True

    def _send(
        self,
        status: int,
        body: bytes,
        *headers: tuple[str, str],
        length: int | None = -1,
        kind: str = "application/json",
    ) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        if length is not None:
            self.send_header("content-length", str(len(body) if length < 0 else length))
        for header in headers:
            self.send_header(*header)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def serving() -> Iterator[Service]:
    with Service() as service:
        thread = threading.Thread(target=service.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield service
        finally:
            service.may_end.set()
            service.shutdown()
            thread.join()


@dataclass(eq=False)
class AnAttempt:
    """An attempt that keeps its faults."""

    name: str = "0.0"
    faults: list[dict[str, Any]] = field(default_factory=list)
    answered: list[object] = field(default_factory=list)

    def note(self, code: str, detail: str = "") -> None: ...

    def fault(self, side: str, kind: str, target: str, **more: Any) -> object:
        self.faults.append({"side": side, "kind": kind, "target": target, **more})
        return self.faults[-1]

    def answered_later(self, fault: object) -> None:
        self.answered.append(fault)


@contextmanager
def attempted() -> Iterator[AnAttempt]:
    """Be in an attempt for a while."""
    attempt = AnAttempt()
    token = current_attempt.set(attempt)
    try:
        yield attempt
    finally:
        current_attempt.reset(token)


@dataclass
class Rule:
    """A rule of functions; keeps the requests and how they ended."""

    hold: Callable[[HttpRequest], Future[None] | None] = lambda _: None
    reply: Callable[[HttpRequest], Outcome | None] = lambda _: None
    change: Callable[[HttpResponse], HttpResponse] = lambda response: response
    requests: list[HttpRequest] = field(default_factory=list)
    ended: list[tuple[HttpRequest, Outcome, float]] = field(default_factory=list)

    def before(self, request: HttpRequest) -> Future[None] | None:
        self.requests.append(request)
        return self.hold(request)

    def answer(self, request: HttpRequest) -> Outcome | None:
        return self.reply(request)

    def changed(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        return self.change(response)

    def after(self, request: HttpRequest, outcome: Outcome, *, duration_s: float) -> None:
        self.ended.append((request, outcome, duration_s))

    @property
    def outcomes(self) -> list[Outcome]:
        return [outcome for _, outcome, _ in self.ended]


def json_response(status: int, value: Any, **headers: str) -> HttpResponse:
    return HttpResponse(
        status, {"content-type": "application/json", **headers}, json.dumps(value).encode()
    )
