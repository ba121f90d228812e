"""`wrap_inplace_trace`: model calls of a client recorded as spans (SURFACE TRACE-07, Y-33).

A call that the attempt's session answers has a span of the session's, whether its client is wrapped
or goes to the gateway; it is not recorded here again. Calls to other services, a judge's say, are.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from arkdev.observe import spans
from arkdev.observe.gen_ai import OUTPUT_MESSAGES, answer_attributes, request_attributes
from arkdev.observe.read_iterators import is_iterator, recorded_iterator
from arkdev.observe.values import plain
from arkdev.plugin.client_settings import base_url_of
from arkdev.plugin.plain import to_plain
from arkdev.plugin.responses import answer_of_response

_APIS = (("chat", "completions"), ("responses",))


def wrap_inplace_trace(client: Any, *, chat_name: str | None = None) -> Any:
    """Record the model calls of an OpenAI, AsyncOpenAI, Ark or AsyncArk client; returns it.

    Before or after wrapping it for a rollout, once or twice: a call is recorded once. `chat_name`
    takes the place of ``chat <model>`` in the spans' names. A client of another kind is left alone.
    The copies that ``with_options`` and ``copy`` make are recorded as well.
    """
    is_traced = False
    for path in _APIS:
        resource = client
        for name in path:
            resource = getattr(resource, name, None)
        for method in ("create", "parse"):
            send = getattr(resource, method, None)
            if not callable(send) or (method == "parse" and not is_traced):
                continue
            is_traced = True
            if not getattr(send, "is_traced", False):
                setattr(resource, method, _traced(send, resource, client, name=chat_name))
    if is_traced:
        _trace_copies(client, chat_name=chat_name)
    return client


def _trace_copies(client: Any, *, chat_name: str | None) -> None:
    for name in ("with_options", "copy"):
        copy = getattr(client, name, None)
        if callable(copy) and not getattr(copy, "is_traced", False):
            setattr(client, name, _traced_copy(copy, chat_name=chat_name))


def _traced_copy(copy: Callable[..., Any], *, chat_name: str | None) -> Callable[..., Any]:
    @functools.wraps(copy)
    def traced_copy(*args: Any, **kwargs: Any) -> Any:
        return wrap_inplace_trace(copy(*args, **kwargs), chat_name=chat_name)

    return _marked(traced_copy, copy)


def _traced(
    send: Callable[..., Any], resource: Any, client: Any, *, name: str | None
) -> Callable[..., Any]:
    def opened(kwargs: dict[str, Any]) -> spans.Span | None:
        # asked at each call: a client may be wrapped for a rollout later
        is_tracked = hasattr(send, "tracked") or hasattr(resource.create, "tracked")
        return None if is_tracked else _opened(client, kwargs, name=name)

    if inspect.iscoroutinefunction(inspect.unwrap(send)) or _is_async(client):

        @functools.wraps(send)
        async def traced_async(*args: Any, **kwargs: Any) -> Any:
            span = opened(kwargs)
            if span is None:
                return await send(*args, **kwargs)
            with _Call(span) as call:
                return call.result(await send(*args, **kwargs))

        return _marked(traced_async, send)

    @functools.wraps(send)
    def traced(*args: Any, **kwargs: Any) -> Any:
        span = opened(kwargs)
        if span is None:
            return send(*args, **kwargs)
        with _Call(span) as call:
            return call.result(send(*args, **kwargs))

    return _marked(traced, send)


def _marked(traced: Any, create: Any) -> Callable[..., Any]:
    traced.is_traced = True
    # the class's own function, by which wrapping a client knows the keywords of `create`
    traced.__func__ = getattr(create, "__func__", create)
    return traced  # type: ignore[no-any-return]


def _is_async(client: Any) -> bool:
    return any(base.__name__.startswith("Async") for base in type(client).__mro__)


def _opened(client: Any, kwargs: dict[str, Any], *, name: str | None) -> spans.Span | None:
    """Open the span of a call; None where nothing is traced or the session records it."""
    recording = spans.active()
    if recording is None:
        return None
    url = base_url_of(client)
    if url == recording.own_url:
        return None
    model = str(kwargs.get("model") or "")
    span = recording.child(name or f"chat {model}", kind="client")
    if span is not None:
        span.attributes["server.address"] = urlsplit(url).netloc
        with suppress(Exception):  # the call must not fail for its trace
            span.attributes |= request_attributes(
                to_plain({"messages": _messages(kwargs)}),
                sampling=kwargs,
                model=model,
                provider=urlsplit(url).hostname or url,
            )
    return span


def _messages(kwargs: dict[str, Any]) -> Any:
    given = kwargs.get("messages", kwargs.get("input"))
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    items = list(given or ())
    return [item for item in items if not isinstance(item, dict) or "role" in item]


class _Call:
    """A call under way: its span ends with the block, or with the stream that it returned.

    What runs inside the block, and what reads the stream, is in the span.
    """

    def __init__(self, span: spans.Span) -> None:
        self.span: spans.Span | None = span
        self._span = span
        self._is_stream = False
        self._inside = spans.current_is(span)

    def __enter__(self) -> _Call:
        self._inside.__enter__()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._inside.__exit__(None, None, None)
        if error is not None or not self._is_stream:
            self.finish(error)

    def result(self, answer: Any) -> Any:
        """Keep the answer; return what the caller gets."""
        if hasattr(type(answer), "model_dump"):
            with suppress(Exception):  # the call must not fail for its trace
                self._keep(plain(answer))
        elif is_iterator(answer):
            self._is_stream = True
            return recorded_iterator(answer, self)
        return answer

    def _keep(self, answer: dict[str, Any]) -> None:
        if answer.get("object") == "response":
            answer = answer_of_response(answer)
        self._span.attributes |= answer_attributes(answer)

    def add(self, item: Any) -> None:
        """Keep what a chunk of a stream says of the whole."""
        with suppress(Exception):  # as above
            chunk = plain(item)
            whole = chunk.get("response")
            if isinstance(whole, dict):
                if whole.get("output"):
                    self._keep(whole)
            elif chunk.get("id"):
                attributes = answer_attributes(_without_text(chunk))
                del attributes[OUTPUT_MESSAGES]  # a chunk is not the message
                self._span.attributes |= attributes

    def finish(self, error: BaseException | None = None) -> None:
        """End the span, once."""
        if not self._span.is_open:
            return
        if error is not None:
            self._span.fail(error)
        recording = spans.active()
        if recording is not None:
            recording.end(self._span)


def _without_text(chunk: dict[str, Any]) -> dict[str, Any]:
    choices = [{"finish_reason": c.get("finish_reason")} for c in chunk.get("choices") or ()]
    return {**chunk, "choices": choices}
