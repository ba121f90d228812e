"""`wrap_inplace_trace`: model calls of a client recorded as spans (SURFACE TRACE-07, Y-33).

A call that the attempt's session answers has a span of the session's, whether its client is wrapped
or goes to the gateway; it is not recorded here again. Calls to other services, a judge's say, are.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from arkdev.observe import spans
from arkdev.observe.gen_ai import OUTPUT_MESSAGES, answer_attributes, request_attributes
from arkdev.plugin.client_settings import base_url_of
from arkdev.plugin.plain import to_plain
from arkdev.plugin.responses import answer_of_response

_APIS = (("chat", "completions"), ("responses",))


def wrap_inplace_trace(client: Any, *, chat_name: str | None = None) -> Any:
    """Record the model calls of an OpenAI, AsyncOpenAI, Ark or AsyncArk client; returns it.

    Before or after wrapping it for a rollout, once or twice: a call is recorded once. `chat_name`
    takes the place of ``chat <model>`` in the spans' names. A client of another kind is left alone.
    """
    for path in _APIS:
        resource = client
        for name in path:
            resource = getattr(resource, name, None)
        create = getattr(resource, "create", None)
        if callable(create) and not getattr(create, "is_traced", False):
            resource.create = _traced(create, client, name=chat_name)
    return client


def _traced(create: Callable[..., Any], client: Any, *, name: str | None) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(inspect.unwrap(create)) or _is_async(client):

        @functools.wraps(create)
        async def traced_async(*args: Any, **kwargs: Any) -> Any:
            span = _opened(create, client, kwargs, name=name)
            if span is None:
                return await create(*args, **kwargs)
            with _Call(span) as call:
                return call.result(await create(*args, **kwargs))

        return _marked(traced_async, create)

    @functools.wraps(create)
    def traced(*args: Any, **kwargs: Any) -> Any:
        span = _opened(create, client, kwargs, name=name)
        if span is None:
            return create(*args, **kwargs)
        with _Call(span) as call:
            return call.result(create(*args, **kwargs))

    return _marked(traced, create)


def _marked(traced: Any, create: Any) -> Callable[..., Any]:
    traced.is_traced = True
    # the class's own function, by which wrapping a client knows the keywords of `create`
    traced.__func__ = getattr(create, "__func__", create)
    return traced  # type: ignore[no-any-return]


def _is_async(client: Any) -> bool:
    return any(base.__name__.startswith("Async") for base in type(client).__mro__)


def _opened(
    create: Any, client: Any, kwargs: dict[str, Any], *, name: str | None
) -> spans.Span | None:
    """Open the span of a call; None where nothing is traced or the session records it."""
    recording = spans.active()
    if recording is None or hasattr(create, "tracked"):
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
    """A call under way: its span ends with the block, or with the stream that it returned."""

    def __init__(self, span: spans.Span) -> None:
        self._span = span
        self._is_stream = False

    def __enter__(self) -> _Call:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None:
            self._span.fail(error)
        if not self._is_stream or error is not None:
            self.end()

    def result(self, answer: Any) -> Any:
        """Keep the answer; return what the caller gets."""
        if hasattr(answer, "model_dump"):
            with suppress(Exception):  # the call must not fail for its trace
                self._keep(to_plain(answer))
        elif hasattr(answer, "__iter__") or hasattr(answer, "__aiter__"):
            self._is_stream = True
            return _Stream(answer, self)
        return answer

    def _keep(self, answer: dict[str, Any]) -> None:
        if answer.get("object") == "response":
            answer = answer_of_response(answer)
        self._span.attributes |= answer_attributes(answer)

    def fail(self, error: BaseException) -> None:
        """Say that the stream broke."""
        self._span.fail(error)

    def end(self) -> None:
        """End the span."""
        recording = spans.active()
        if recording is not None:
            recording.end(self._span)

    def chunk(self, chunk: Any) -> Any:
        """Keep what a chunk of a stream says of the whole; return it."""
        with suppress(Exception):  # as above
            plain = to_plain(chunk)
            whole = plain.get("response")
            if isinstance(whole, dict):
                if whole.get("output"):
                    self._keep(whole)
            elif plain.get("id"):
                attributes = answer_attributes(_without_text(plain))
                del attributes[OUTPUT_MESSAGES]  # a chunk is not the message
                self._span.attributes |= attributes
        return chunk


def _without_text(chunk: dict[str, Any]) -> dict[str, Any]:
    choices = [{"finish_reason": c.get("finish_reason")} for c in chunk.get("choices") or ()]
    return {**chunk, "choices": choices}


class _Stream:
    """Stands for a stream, sync or async, whose call ends when it is read or closed."""

    def __init__(self, stream: Any, call: _Call) -> None:
        self._stream = stream
        self._call = call

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __enter__(self) -> _Stream:
        self._stream.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._call.end()
        self._stream.__exit__(*error)

    async def __aenter__(self) -> _Stream:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        self._call.end()
        await self._stream.__aexit__(*error)

    def __iter__(self) -> Iterator[Any]:
        try:
            for chunk in self._stream:
                yield self._call.chunk(chunk)
        except Exception as error:
            self._call.fail(error)
            raise
        finally:
            self._call.end()

    async def __aiter__(self) -> AsyncIterator[Any]:
        try:
            async for chunk in self._stream:
                yield self._call.chunk(chunk)
        except Exception as error:
            self._call.fail(error)
            raise
        finally:
            self._call.end()
