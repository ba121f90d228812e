"""Where the spans of a test go: the run folder, and the services that the environment names.

| what                          | when                                                         |
|-------------------------------|--------------------------------------------------------------|
| ``traces.jsonl``              | ``--trace``                                                  |
| any OTLP collector            | OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT |
| ARK Tracing (the log service) | ARK_TRACE_AK, ARK_TRACE_SK and ARKDEV_ARK_TRACE_TOPIC        |
| CozeLoop                      | COZELOOP_WORKSPACE_ID and COZELOOP_API_TOKEN                 |

The variables are the process's and those that the job gives its plugins. Where nothing of this is
set, nothing is recorded.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from importlib.util import find_spec
from typing import Any
from urllib.parse import unquote, urlsplit

from arkdev.errors import MissingExtraError
from arkdev.observe import spans
from arkdev.observe.span_export import (
    CLOSE_S,
    INTERRUPTED_CLOSE_S,
    ExportCounts,
    SpanExport,
    SpanReceiver,
)
from arkdev.observe.values import masked_before_cut
from arkdev.plugin.traffic.exchange import TrafficRule
from arkdev.plugin.traffic.traced_calls import TracedCalls, without_secrets
from arkdev.runs.masking import masked_value, usable_secrets
from arkdev.runs.writer import RunWriter, iso_time

ARK_TOPIC = "ARKDEV_ARK_TRACE_TOPIC"
ARK_ENDPOINT = "ARKDEV_ARK_TRACE_ENDPOINT"
ARK_REGION = "ARKDEV_ARK_TRACE_REGION"
_ARK_KEYS = ("ARK_TRACE_AK", "ARK_TRACE_SK")
_COZELOOP_KEYS = ("COZELOOP_WORKSPACE_ID", "COZELOOP_API_TOKEN")
_OTLP_HEADERS = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
_OTLP_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_DEFAULT_REGION = "cn-beijing"

_OTLP = "opentelemetry.exporter.otlp.proto.http"
_INSTALL_OTLP = 'pip install "arkdev[trace]"'

_Make = Callable[[Mapping[str, str]], SpanReceiver]


@dataclass
class Tracing:
    """The spans of a test: how many there were, and once it has ended what became of them."""

    recording: spans.Recording
    counts: tuple[ExportCounts, ...] = ()
    exports: list[SpanExport] = field(default_factory=list)
    num_open: int = 0
    """Spans that had not ended when the run did."""

    @property
    def num_recorded(self) -> int:
        """Spans that were recorded."""
        return self.recording.num_recorded

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a person must know of spans that are missing, at most one line for each receiver."""
        lines = [
            f"{count.num_lost:,} of {count.num_lost + count.num_sent:,} spans did not reach "
            f"{count.receiver}: {count.reason}"
            for count in self.counts
            if count.num_lost
        ]
        left_out = [
            f"{number:,} {reason}"
            for number, reason in (
                (
                    self.recording.num_foreign,
                    "were made in threads that outlived the attempt that started them, so they "
                    "may be another's",
                ),
                (self.recording.num_late, "began after their attempt had ended"),
                (self.num_open, "had not ended when the run did"),
            )
            if number
        ]
        if left_out:
            lines.append(f"spans are left out: {'; '.join(left_out)}")
        return tuple(lines)


def check_tracing(envs: Mapping[str, str], *, is_asked_for: bool) -> tuple[str, ...]:
    """Return what to say of receivers that are half set up.

    Raises `MissingExtraError` when tracing is asked for, the environment names an OTLP collector,
    and the packages that talk to one are missing.
    """
    given = {**os.environ, **envs}
    if is_asked_for and (_names_a_collector(given) or _has_ark(given)) and not _has(_OTLP):
        raise MissingExtraError(
            "the environment names a collector for traces, and OpenTelemetry's exporter is not "
            "installed",
            hint=_INSTALL_OTLP,
        )
    notes = []
    if all(given.get(name) for name in _ARK_KEYS) and not given.get(ARK_TOPIC):
        notes.append(
            f"ARK_TRACE_AK and ARK_TRACE_SK are set: to send spans there from this machine, set "
            f"{ARK_TOPIC} to the id of a trace topic of the log service"
        )
    return tuple(notes)


@contextmanager
def traced(
    run: RunWriter,
    *,
    writes_file: bool,
    secrets: tuple[str, ...],
    own_url: str,
    warn: Callable[[str], None],
) -> Iterator[Tracing | None]:
    """Record the spans of a test and send them on; yields None where nobody wants them.

    `own_url` is the gateway's. At the end the receivers get a few seconds for the last spans, all
    at once; when the test ends early one second, and `warn` is told what is missing.
    """
    receivers = [make(dict(os.environ)) for make in _receivers(os.environ, run.manifest.versions)]
    if not writes_file and not receivers:
        yield None
        return
    mask = _masking((*secrets, *_secrets_of_collectors(os.environ)))
    exports = [SpanExport(each, mask=mask) for each in receivers]

    def on_end(span: spans.Span) -> None:
        if writes_file:
            run.span(_record(span))
        for export in exports:
            export.add(span)

    with ExitStack() as stack:
        stack.enter_context(masked_before_cut(run.masked))
        recording = stack.enter_context(spans.recording(on_end))
        recording.own_url = own_url
        tracing = Tracing(recording, exports=exports)
        try:
            yield tracing
        except BaseException:
            _close(tracing, timeout_s=INTERRUPTED_CLOSE_S)
            for warning in tracing.warnings:
                warn(warning)
            raise
        _close(tracing, timeout_s=CLOSE_S)


def _close(tracing: Tracing, *, timeout_s: float) -> None:
    """End the recording and all exports at once, and count."""
    tracing.recording.is_on = False
    tracing.num_open = tracing.recording.num_open
    for export in tracing.exports:
        export.begin_closing(timeout_s)
    tracing.counts = tuple(export.closed() for export in tracing.exports)


def traffic_rules(tracing: Tracing | None) -> tuple[TrafficRule, ...]:
    """Return what records the HTTP calls of plugins, where spans are recorded."""
    return (TracedCalls(),) if tracing is not None else ()


def _receivers(envs: Mapping[str, str], versions: Mapping[str, str]) -> Iterator[_Make]:
    """Yield what makes each receiver that `envs` names and that can be talked to."""
    if _names_a_collector(envs) and _has(_OTLP):
        name = without_secrets(next(envs[name] for name in _OTLP_ENDPOINTS if envs.get(name)))
        yield lambda envs: _otlp_module().OtlpReceiver(name, versions=versions)
    if _has_ark(envs) and _has(_OTLP):
        yield lambda envs: _ark_receiver(envs, versions)
    if all(envs.get(name) for name in _COZELOOP_KEYS) and _has("cozeloop"):
        yield lambda envs: import_module("arkdev.observe.cozeloop_spans").CozeLoopReceiver(envs)


def _ark_receiver(envs: Mapping[str, str], versions: Mapping[str, str]) -> SpanReceiver:
    """Return the log service's OTLP receiver, which ARK Tracing stores its spans with.

    The headers are those of Volcengine's own agent kit for its log service.
    """
    region = envs.get(ARK_REGION) or _DEFAULT_REGION
    made: SpanReceiver = _otlp_module().OtlpReceiver(
        "ARK Tracing",
        versions=versions,
        endpoint=envs.get(ARK_ENDPOINT) or f"https://tls-{region}.volces.com:4318/v1/traces",
        headers={
            "x-tls-otel-tracetopic": envs[ARK_TOPIC],
            "x-tls-otel-ak": envs["ARK_TRACE_AK"],
            "x-tls-otel-sk": envs["ARK_TRACE_SK"],
            "x-tls-otel-region": region,
        },
    )
    return made


def _otlp_module() -> Any:
    return import_module("arkdev.observe.otlp")


def _names_a_collector(envs: Mapping[str, str]) -> bool:
    exporters = envs.get("OTEL_TRACES_EXPORTER") or "otlp"
    is_off = envs.get("OTEL_SDK_DISABLED", "").lower() == "true" or "otlp" not in exporters
    return not is_off and any(envs.get(name) for name in _OTLP_ENDPOINTS)


def _has_ark(envs: Mapping[str, str]) -> bool:
    return all(envs.get(name) for name in (*_ARK_KEYS, ARK_TOPIC))


def _has(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _secrets_of_collectors(envs: Mapping[str, str]) -> Iterator[str]:
    """Yield what a collector's own answers or a failed request could repeat of its settings."""
    for name in _OTLP_ENDPOINTS:
        password = _password(envs.get(name) or "")
        yield from (password, unquote(password)) if password else ()
    for name in _OTLP_HEADERS:
        for pair in (envs.get(name) or "").split(","):
            value = pair.partition("=")[2].strip()
            yield from (value, unquote(value))
    yield from (envs[name] for name in (*_ARK_KEYS, _COZELOOP_KEYS[1]) if envs.get(name))


def _password(url: str) -> str:
    try:
        return urlsplit(url).password or ""
    except ValueError:  # no URL: the exporter will say so
        return ""


def _masking(secrets: tuple[str, ...]) -> Callable[[Any], Any]:
    usable = usable_secrets(secrets)
    return lambda value: masked_value(value, secrets=usable)


def _record(span: spans.Span) -> dict[str, Any]:
    """Return the fields of a `SpanRecord`; a dict is written twice as fast."""
    parent_id = span.parent_id
    return {
        "trace_id": f"{span.trace_id:032x}",
        "span_id": f"{span.span_id:016x}",
        "parent_span_id": f"{parent_id:016x}" if parent_id is not None else None,
        "name": span.name,
        "kind": span.kind,
        "started_at": iso_time(datetime.fromtimestamp(span.started_ns / 1e9, UTC)),
        "duration_s": (span.ended_ns - span.started_ns) / 1e9,
        "trajectory_ids": span.trajectory_ids,
        "attempt": span.attempt,
        "error": span.error or None,
        "attributes": span.attributes,
        "links": [
            {"trace_id": f"{trace_id:032x}", "span_id": f"{span_id:016x}"}
            for trace_id, span_id in span.links
        ],
    }
