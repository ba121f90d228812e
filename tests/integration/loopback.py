"""A small HTTP server on loopback that stands for a service of others."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Policy = Callable[[int, dict[str, Any]], tuple[int, Any]]
"""From the number of requests so far and the body to the status and the JSON answer.

Status 0 hangs up without an answer.
"""


class Loopback(http.server.ThreadingHTTPServer):
    """Answers every POST by `policy`; keeps (path, authorization, body) of each."""

    daemon_threads = True

    def __init__(self, policy: Policy) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.policy = policy
        self.requests: list[tuple[str, str | None, dict[str, Any]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Loopback

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.requests.append((self.path, self.headers["authorization"], body))
        status, answer = self.server.policy(len(self.server.requests), body)
        if status == 0:
            self.close_connection = True
            return
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def listening(policy: Policy) -> Iterator[Loopback]:
    """Run a server for a while."""
    with Loopback(policy) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
