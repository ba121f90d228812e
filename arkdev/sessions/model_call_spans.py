"""The span of a model call, whichever way it came to its session: wrapped, raw, streamed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from arkdev.observe import spans
from arkdev.observe.gen_ai import answer_attributes, request_attributes
from arkdev.sessions.turns import Call

if TYPE_CHECKING:
    from arkdev.sessions.session import Session

_Record = Callable[..., Coroutine[Any, Any, dict[str, Any]]]


def in_a_span(record: _Record) -> _Record:
    """Return a session's method that answers a call with a span around each call, when on."""

    @functools.wraps(record)
    async def recorded(session: Session, call: Call, **settings: Any) -> dict[str, Any]:
        span = _opened(session, call, settings.get("sampling"))
        if span is None:
            return await record(session, call, **settings)
        with spans.opened(span):
            answer = await record(session, call, **settings)
            span.attributes |= answer_attributes(answer)
            if call.num_retries:
                span.attributes["arkdev.num_retries"] = call.num_retries
            return answer

    return recorded


def _opened(session: Session, call: Call, sampling: Any) -> spans.Span | None:
    """Open the span inside what the plugin is doing, or inside its attempt where that is unknown.

    A call through the gateway comes from another task; a thread of the plugin's may be anybody's.
    """
    recording, attempt = spans.active(), session.span
    if recording is None or attempt is None:
        return None
    around = spans.current()
    if around is None or around.root is not attempt or around.threads:
        around = attempt
    endpoint = session.endpoint
    model = str(endpoint.model or call.body.get("model") or "")
    span = recording.child(f"chat {model}", kind="client", within=around)
    if span is not None:
        span.attributes |= request_attributes(
            call.body,
            sampling={**session.sampling, **(sampling or {}), "seed": call.seed},
            model=model,
            provider=endpoint.name,
        )
        span.attributes["arkdev.via"] = call.via
    return span
