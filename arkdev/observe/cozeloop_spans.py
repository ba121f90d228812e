"""Spans to CozeLoop, through its own library (leaf: imports cozeloop)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import cozeloop  # noqa: TID253 (the leaf)
from cozeloop.internal.trace.model.model import (  # noqa: TID253 (the leaf)
    QueueConf,
)

from arkdev.observe.gen_ai import (
    CHAT,
    EXECUTE_TOOL,
    INPUT_MESSAGES,
    INPUT_TOKENS,
    INVOKE_AGENT,
    OPERATION,
    OUTPUT_MESSAGES,
    OUTPUT_TOKENS,
    TOOL_ARGUMENTS,
    TOOL_RESULT,
    as_text,
)
from arkdev.observe.span_export import MAX_WAITING
from arkdev.observe.spans import Span

DEFAULT_USER_ID = "test_service"
"""The contract's user id of local tests (TRACE-15); a job's spans have the job's id."""

_TYPES = {CHAT: "model", EXECUTE_TOOL: "tool", INVOKE_AGENT: "agent"}
_INPUTS = (INPUT_MESSAGES, TOOL_ARGUMENTS, "input")
_OUTPUTS = (OUTPUT_MESSAGES, TOOL_RESULT, "output")
_BATCH_SIZE = 100
"""As the library has it."""
_FLUSHED = "exporter.span_flush.rate"
_QUEUED = "queue_manager.span_entry.rate"


class CozeLoopReceiver:
    """A CozeLoop workspace, by the COZELOOP_* variables in `envs`."""

    name = "cozeloop"

    def __init__(self, envs: Mapping[str, str]) -> None:
        self.num_unconfirmed = 0
        self._reason = ""
        self._lock = threading.Lock()
        # its own log lines would tell each failure; they are counted here
        logging.getLogger("cozeloop").setLevel(logging.CRITICAL)
        self._client: Any = cozeloop.new_client(
            api_base_url=envs.get("COZELOOP_API_BASE_URL", ""),
            workspace_id=envs["COZELOOP_WORKSPACE_ID"],
            api_token=envs["COZELOOP_API_TOKEN"],
            # an object of its own: clients with equal settings are shared, also closed ones
            trace_queue_conf=QueueConf(MAX_WAITING, _BATCH_SIZE),
            trace_finish_event_processor=self._on_event,
        )

    @property
    def trouble(self) -> str:
        """Why the library lost spans; it tries each only once more."""
        return self._reason

    def send(self, spans: Sequence[Span]) -> str:
        """Hand a batch to the library, which sends it from a thread of its own."""
        for span in spans:
            with self._lock:
                self.num_unconfirmed += 1
            self._send_one(span)
        return ""

    def close(self, timeout_s: float) -> str:
        """Send what the library still holds."""
        self._client.close()
        return self._reason

    def _send_one(self, span: Span) -> None:
        attributes = span.attributes
        made = self._client.start_span(
            span.name,
            _TYPES.get(attributes.get(OPERATION, ""), attributes.get("arkdev.span_type", "custom")),
            start_time=_moment(span.started_ns),
            start_new_trace=True,
        )
        made.discard()  # it is not what this thread is in
        made.trace_id, made.span_id = f"{span.trace_id:032x}", f"{span.span_id:016x}"
        made.parent_span_id = f"{span.parent_id:016x}" if span.parent_id else "0"
        made.set_input(as_text(_first(attributes, _INPUTS)))
        made.set_output(as_text(_first(attributes, _OUTPUTS)))
        if INPUT_TOKENS in attributes:
            made.set_input_tokens(attributes[INPUT_TOKENS])
            made.set_output_tokens(attributes.get(OUTPUT_TOKENS, 0))
        made.set_user_id(str(attributes.get("arkdev.job_id") or DEFAULT_USER_ID))
        made.set_tags(_tags(span))
        if span.error:
            made.set_error(span.error)
        made.set_finish_time(_moment(span.ended_ns))
        made.finish()

    def _on_event(self, event: Any) -> None:
        """Count what arrived; called by the library's threads."""
        if event.event_type == _FLUSHED and not event.is_event_fail:
            with self._lock:
                self.num_unconfirmed -= event.item_num
        elif event.event_type in (_FLUSHED, _QUEUED) and event.is_event_fail:
            self._reason = self._reason or event.detail_msg


def _tags(span: Span) -> dict[str, Any]:
    left_out = {*_INPUTS, *_OUTPUTS}
    tags = {key: _tag(value) for key, value in span.attributes.items() if key not in left_out}
    return {**tags, "trajectory_id": ",".join(span.trajectory_ids), "attempt": span.attempt}


def _tag(value: Any) -> Any:
    return value if isinstance(value, (str, bool, int, float)) else as_text(value)


def _first(attributes: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((attributes[name] for name in names if name in attributes), "")


def _moment(nanoseconds: int) -> datetime:
    return datetime.fromtimestamp(nanoseconds / 1e9)
