"""Spans by OTLP over HTTP, with OpenTelemetry's own exporter (leaf: imports opentelemetry)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: TID253 (the leaf)
from opentelemetry.sdk.resources import Resource  # noqa: TID253 (the leaf)
from opentelemetry.sdk.trace import ReadableSpan  # noqa: TID253 (the leaf)
from opentelemetry.sdk.trace.export import SpanExportResult  # noqa: TID253 (the leaf)
from opentelemetry.sdk.util.instrumentation import InstrumentationScope  # noqa: TID253 (the leaf)
from opentelemetry.trace import (  # noqa: TID253 (the leaf)
    Link,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
)

from arkdev.observe.gen_ai import as_text
from arkdev.observe.spans import Span

_KINDS = {"internal": SpanKind.INTERNAL, "client": SpanKind.CLIENT}
_FLAGS = TraceFlags(TraceFlags.SAMPLED)
_LOGGER = "opentelemetry.exporter.otlp"
_RETRY = "Transient error %s"


def _resource(versions: Mapping[str, str]) -> Resource:
    """Return who makes the spans; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES come first."""
    own = {"service.name": "arkdev", "service.version": versions.get("arkdev", "")}
    return Resource(own).merge(Resource.create())


class OtlpReceiver:
    """An OTLP collector. Without `endpoint` the standard OTEL_EXPORTER_OTLP_* variables say where.

    A lost connection is tried again by the exporter for OTEL_EXPORTER_OTLP_TIMEOUT (10 s).
    """

    num_unconfirmed = 0

    def __init__(
        self,
        name: str,
        *,
        versions: Mapping[str, str],
        endpoint: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self._resource = _resource(versions)
        self._scope = InstrumentationScope("arkdev", versions.get("arkdev", ""))
        self._problem = ""
        self._sender = 0
        # the exporter says why it failed in its log alone
        self._reasons = _Reasons(self)
        logger = logging.getLogger(_LOGGER)
        logger.propagate = False
        logger.addHandler(self._reasons)
        self._exporter = OTLPSpanExporter(endpoint=endpoint, headers=headers)

    @property
    def trouble(self) -> str:
        """Why the exporter tries again."""
        return self._problem

    def send(self, spans: Sequence[Span]) -> str:
        """Send a batch."""
        self._problem, self._sender = "", threading.get_ident()
        sent = self._exporter.export([self._readable(span) for span in spans])
        problem, self._problem = self._problem, ""
        return "" if sent is SpanExportResult.SUCCESS else problem or "it was refused"

    def close(self, timeout_s: float) -> str:
        """End the exporter; nothing is left in it."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]
        logging.getLogger(_LOGGER).removeHandler(self._reasons)
        return ""

    def note(self, record: logging.LogRecord) -> None:
        """Keep why a request failed, if it was one of this receiver's thread.

        The exporter says what each try ran into, and of the last one only that it was the last.
        """
        if record.thread != self._sender:
            return
        if record.msg.startswith(_RETRY) and isinstance(record.args, tuple) and record.args:
            self._problem = str(record.args[0])
        elif not self._problem:
            self._problem = record.getMessage()

    def _readable(self, span: Span) -> ReadableSpan:
        context = _context(span.trace_id, span.span_id)
        parent = _context(span.trace_id, span.parent_id) if span.parent_id else None
        return ReadableSpan(
            name=span.name,
            context=context,
            parent=parent,
            resource=self._resource,
            attributes={key: _value(value) for key, value in attributes_of(span).items()},
            links=[Link(_context(*ids)) for ids in span.links],
            kind=_KINDS[span.kind],
            status=Status(StatusCode.ERROR, span.error) if span.error else Status(),
            start_time=span.started_ns,
            end_time=span.ended_ns,
            instrumentation_scope=self._scope,
        )


class _Reasons(logging.Handler):
    """Hears why an export failed."""

    def __init__(self, receiver: OtlpReceiver) -> None:
        super().__init__(logging.WARNING)
        self._receiver = receiver

    def emit(self, record: logging.LogRecord) -> None:
        """Hand it on."""
        self._receiver.note(record)


def attributes_of(span: Span) -> dict[str, Any]:
    """Return a span's attributes with those that every span of a run has."""
    ids = span.trajectory_ids
    return {
        **span.attributes,
        "arkdev.trajectory_id": ids[0] if len(ids) == 1 else list(ids),
        "arkdev.attempt": span.attempt,
    }


def _context(trace_id: int, span_id: int) -> SpanContext:
    return SpanContext(trace_id, span_id, is_remote=False, trace_flags=_FLAGS)


def _value(value: Any) -> Any:
    """Return a value as attributes hold it: a scalar, a list of texts, or JSON."""
    if isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return value
    return as_text(value)
