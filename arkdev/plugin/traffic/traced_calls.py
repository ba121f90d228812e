"""A span for each HTTP call that a plugin makes for itself, inside what the plugin is doing."""

from __future__ import annotations

from concurrent.futures import Future
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from arkdev.observe import spans
from arkdev.plugin.traffic.exchange import HttpFailure, HttpRequest, HttpResponse, Outcome
from arkdev.runs.masking import MASK, has_secret_name


class TracedCalls:
    """A `TrafficRule` that changes nothing and records each call once it has ended."""

    def before(self, request: HttpRequest) -> Future[None] | None:
        """Hold nothing back."""
        return None

    def answer(self, request: HttpRequest) -> Outcome | None:
        """Answer nothing."""
        return None

    def changed(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        """Change nothing."""
        return response

    def after(self, request: HttpRequest, outcome: Outcome, *, duration_s: float) -> None:
        """Record the call; the names are those of OpenTelemetry's conventions for HTTP."""
        recording = spans.active()
        if recording is None:
            return
        span = recording.child(
            f"{request.method} {request.host}", kind="client", lasted_s=duration_s
        )
        if span is None:
            return
        span.attributes |= {
            "http.request.method": request.method,
            "url.full": without_secrets(request.url),
            "server.address": request.host.partition(":")[0],
            "arkdev.library": request.library,
        }
        if request.body is not None:
            span.attributes["http.request.body.size"] = len(request.body)
        if isinstance(outcome, HttpFailure):
            if outcome.kind != "cancelled":  # which is nobody's failure
                span.fail(outcome.message)
            span.attributes["error.type"] = outcome.kind
        else:
            span.attributes["http.response.status_code"] = outcome.status
            if outcome.body is not None:
                span.attributes["http.response.body.size"] = len(outcome.body)
            if outcome.status >= 400:
                span.fail(f"status {outcome.status}")
                span.attributes["error.type"] = str(outcome.status)
        recording.end(span)


def without_secrets(url: str) -> str:
    """Mask what a URL holds under telling names; leave out user and password before its host."""
    try:
        parts = urlsplit(url)
    except ValueError:  # no URL, and nobody knows what is in it
        return MASK
    query = urlencode(
        [
            (name, MASK if has_secret_name(name) else value)
            for name, value in parse_qsl(parts.query, keep_blank_values=True)
        ],
        safe="*",
    )
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, query, ""))
