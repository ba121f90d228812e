"""An OTLP collector as a process of its own: it decodes what it gets and tells what that was.

``python otlp_server.py [hang|refuse N [STATUS]]`` prints its port. GET gives all spans so far as
JSON, with the headers of the requests that brought them. ``hang`` accepts requests and never
answers them; ``refuse N`` answers the first N with 400, or with STATUS.
"""

from __future__ import annotations

import gzip
import http.server
import json
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_CREDENTIALS = ("authorization", "x-api-key", "x-tls-otel-")


class Collector(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, mode: str, number: int, status: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.mode = mode
        self.num_to_refuse, self.refusal = number, status
        self.spans: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.lock = threading.Lock()


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Collector

    def do_GET(self) -> None:
        with self.server.lock:
            told = {"spans": self.server.spans, "headers": self.server.headers}
        self._answer(200, json.dumps(told).encode())

    def do_POST(self) -> None:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceRequest,
        )

        data = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            data = gzip.decompress(data)
        server = self.server
        if server.mode == "hang":
            threading.Event().wait()
        with server.lock:
            if server.num_to_refuse > 0:
                server.num_to_refuse -= 1
                self._answer(server.refusal, b"no")
                return
            request = ExportTraceServiceRequest.FromString(data)
            own = {k.lower(): v for k, v in self.headers.items()}
            server.headers.append({k: v for k, v in own.items() if k.startswith(_CREDENTIALS)})
            server.spans += [
                _span(span, resource.resource)
                for resource in request.resource_spans
                for scope in resource.scope_spans
                for span in scope.spans
            ]
        self._answer(200, b"")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _span(span: Any, resource: Any) -> dict[str, Any]:
    return {
        "trace_id": span.trace_id.hex(),
        "span_id": span.span_id.hex(),
        "parent_span_id": span.parent_span_id.hex(),
        "name": span.name,
        "kind": span.kind,
        "duration_s": (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
        "attributes": {each.key: _value(each.value) for each in span.attributes},
        "links": [link.trace_id.hex() for link in span.links],
        "status": (span.status.code, span.status.message),
        "resource": {each.key: _value(each.value) for each in resource.attributes},
    }


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    return getattr(value, kind)


@dataclass(frozen=True)
class RunningCollector:
    url: str

    def told(self) -> dict[str, Any]:
        with urllib.request.urlopen(self.url, timeout=60) as answer:
            document: dict[str, Any] = json.load(answer)
        return document

    @property
    def spans(self) -> list[dict[str, Any]]:
        spans: list[dict[str, Any]] = self.told()["spans"]
        return spans


@contextmanager
def collector(*arguments: str) -> Iterator[RunningCollector]:
    """Run a collector for a while."""
    command = [sys.executable, str(Path(__file__)), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield RunningCollector(f"http://127.0.0.1:{int(process.stdout.readline())}")
        finally:
            process.kill()


def main() -> None:
    mode, number, status = [*sys.argv[1:], *("", "0", "400")[len(sys.argv) - 1 :]]
    with Collector(mode, int(number), int(status)) as server:
        print(server.server_port, flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
