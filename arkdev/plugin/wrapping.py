"""Making a client training-aware, in place (SURFACE PROXY-22..25, ROLL-39).

By duck typing: whatever has ``chat.completions.create`` or ``responses.create`` can be wrapped, so
OpenAI, AsyncOpenAI, Ark, AsyncArk and arkitect's Context all work, and none of them is imported
here. Wrapping twice changes nothing. One client may be wrapped by the proxies of many concurrent
rollouts: each call belongs to the proxy that the calling task or thread wrapped it with.

A call goes to the attempt's session directly, without HTTP. A client with settings of its own (an
http_client, retries, timeouts), a stream and a raw response keep the client's own way, over HTTP
to the gateway.
"""

from __future__ import annotations

import contextvars
import difflib
import functools
import inspect
import weakref
from collections.abc import Callable
from typing import Any

from arkdev.errors import PluginError
from arkdev.observe.attempt import current_attempt
from arkdev.plugin.calls import REFUSED_PARAMETERS, Call, ChatCall, ResponsesCall
from arkdev.plugin.client_settings import OURS, has_settings_of_its_own
from arkdev.plugin.proxy import InferenceProxy
from arkdev.plugin.source import callers_place


def wrap_client_inplace(client: Any, proxy: InferenceProxy) -> Any:
    """Make the chat calls of a synchronous client belong to `proxy`; returns the client."""
    return _wrap(client, proxy, _CHAT, is_async=False)


def wrap_async_client_inplace(client: Any, proxy: InferenceProxy) -> Any:
    """Make the chat calls of an asynchronous client belong to `proxy`; returns the client."""
    return _wrap(client, proxy, _CHAT, is_async=True)


def wrap_responses_client_inplace(client: Any, proxy: InferenceProxy) -> Any:
    """Make the Responses calls of a synchronous client belong to `proxy`; returns the client."""
    return _wrap(client, proxy, _RESPONSES, is_async=False)


def wrap_responses_async_client_inplace(client: Any, proxy: InferenceProxy) -> Any:
    """Make the Responses calls of an asynchronous client belong to `proxy`; returns the client."""
    return _wrap(client, proxy, _RESPONSES, is_async=True)


class _Api:
    """One of the two APIs of a client: where its `create` is, and what a call of it is."""

    def __init__(self, path: tuple[str, ...], call: type[Call], wrappers: tuple[str, str]) -> None:
        self.path = path
        self.call = call
        self.sync_wrapper, self.async_wrapper = wrappers

    def resource(self, client: Any) -> Any:
        """Return the object that has `create`, or None."""
        for name in self.path:
            client = getattr(client, name, None)
        return client


_CHAT = _Api(
    ("chat", "completions"), ChatCall, ("wrap_client_inplace", "wrap_async_client_inplace")
)
_RESPONSES = _Api(
    ("responses",),
    ResponsesCall,
    ("wrap_responses_client_inplace", "wrap_responses_async_client_inplace"),
)


def _wrap(client: Any, proxy: InferenceProxy, api: _Api, *, is_async: bool) -> Any:
    if not isinstance(proxy, InferenceProxy):
        raise PluginError(
            f"a client is wrapped for {proxy!r:.80}, which is no proxy",
            where=callers_place(),
            hint="pass the proxy that the rollout was given",
        )
    resource = api.resource(client)
    create = getattr(resource, "create", None)
    if resource is None or create is None:
        raise PluginError(
            f"{type(client).__name__} has no {'.'.join(api.path)}.create to wrap",
            where=callers_place(),
            hint="pass an OpenAI, AsyncOpenAI, Ark or AsyncArk client",
        )
    _check_client(client, api, is_async=is_async)
    tracked = getattr(create, "tracked", None)
    if tracked is None:
        tracked = _TrackedCreate(client, create, api.call)
        resource.create = tracked.async_create() if is_async else tracked.sync_create()
        if callable(getattr(resource, "parse", None)):
            resource.parse = tracked.parse(resource.parse, is_async=is_async)
        beta = api.resource(getattr(client, "beta", None))
        if beta is not None and beta is not resource:  # another object with the same methods
            beta.create = resource.create
            if hasattr(resource, "parse"):
                beta.parse = resource.parse
        _wrap_copies(client, tracked, api, is_async=is_async)
    tracked.bind(proxy)
    return client


def _wrap_copies(client: Any, tracked: _TrackedCreate, api: _Api, *, is_async: bool) -> None:
    """Let ``with_options`` and ``copy`` return a client that is wrapped for the same proxy."""
    copy = getattr(client, "with_options", None)
    if not callable(copy):
        return

    def wrapped_copy(*args: Any, **kwargs: Any) -> Any:
        made = copy(*args, **kwargs)
        settings = ("timeout", "max_retries", "_client")
        if getattr(client, OURS, False) and all(
            getattr(made, name, None) == getattr(client, name, None) for name in settings
        ):
            setattr(made, OURS, True)
        return _wrap(made, tracked.proxy(), api, is_async=is_async)

    client.with_options = client.copy = wrapped_copy


def _check_client(client: Any, api: _Api, *, is_async: bool) -> None:
    """Refuse a client of the other sort, where its class tells."""
    bases = [base.__name__ for base in type(client).__mro__]
    if not is_async and any(name.startswith("Async") for name in bases):
        raise PluginError(
            f"{api.sync_wrapper} was given an asynchronous client, {type(client).__name__}",
            where=callers_place(),
            hint=f"use {api.async_wrapper}, and await create()",
        )
    if is_async and any(name in ("OpenAI", "Ark") for name in bases):
        raise PluginError(
            f"{api.async_wrapper} was given a synchronous client, {type(client).__name__}",
            where=callers_place(),
            hint=f"use {api.sync_wrapper}",
        )


class _TrackedCreate:
    """The `create` of one client, and the proxies that it works for."""

    def __init__(self, client: Any, original: Callable[..., Any], call: type[Call]) -> None:
        self._client = client
        self._original = original
        self._call_class = call
        self._keeps_own_way = has_settings_of_its_own(client)
        self._current: contextvars.ContextVar[InferenceProxy] = contextvars.ContextVar("proxy")
        self._proxies: weakref.WeakSet[InferenceProxy] = weakref.WeakSet()

    def bind(self, proxy: InferenceProxy) -> None:
        """Let the calls of the current task or thread belong to `proxy`."""
        self._current.set(proxy)
        self._proxies.add(proxy)

    def sync_create(self) -> Callable[..., Any]:
        """Return the function that replaces a synchronous `create`."""

        def create(*args: Any, **kwargs: Any) -> Any:
            call = self._call(args, kwargs)
            if call.access is None:
                return call.finish_standalone(self._original(**call.standalone_kwargs()))
            if self._keeps_own_way or call.keeps_own_way:
                return self._original(**call.gateway_kwargs(self._client))
            try:
                answer = call.answer_blocking(call.access)
            except Exception as error:
                raise call.translated(error, client=self._client) from error
            return call.convert(answer, client=self._client)

        create.tracked = self  # type: ignore[attr-defined]
        return create

    def async_create(self) -> Callable[..., Any]:
        """Return the coroutine function that replaces an asynchronous `create`."""

        async def create(*args: Any, **kwargs: Any) -> Any:
            call = self._call(args, kwargs)
            await call.prepare(self._client)
            if call.access is None:
                answer = await self._original(**call.standalone_kwargs())
                return call.finish_standalone(answer)
            if self._keeps_own_way or call.keeps_own_way:
                return await self._original(**call.gateway_kwargs(self._client))
            try:
                answer = await call.answer(call.access)
            except Exception as error:
                raise call.translated(error, client=self._client) from error
            return call.convert(answer, client=self._client)

        create.tracked = self  # type: ignore[attr-defined]
        return create

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        if args:
            raise PluginError("create() takes keyword arguments only", where=callers_place())
        _check_keywords(self._original, kwargs)
        return self._call_class(self.proxy(), kwargs)

    def parse(self, original: Callable[..., Any], *, is_async: bool) -> Callable[..., Any]:
        """Return the function that replaces ``parse``: checked like `create`, the client's own way.

        The library makes the format of the answer from a class, so only it can send the call.
        """

        def prepared(kwargs: dict[str, Any]) -> tuple[Call, dict[str, Any]]:
            formats = ("response_format", "text_format")
            plain = {name: value for name, value in kwargs.items() if name not in formats}
            call = self._call_class(self.proxy(), plain)
            own = (
                call.standalone_kwargs()
                if call.access is None
                else call.gateway_kwargs(self._client)
            )
            return call, {**kwargs, **own}

        def finished(call: Call, answer: Any) -> Any:
            return answer if call.access is not None else call.finish_standalone(answer)

        def parse(**kwargs: Any) -> Any:
            call, own = prepared(kwargs)
            return finished(call, original(**own))

        async def async_parse(**kwargs: Any) -> Any:
            call, own = prepared(kwargs)
            return finished(call, await original(**own))

        return async_parse if is_async else parse

    def proxy(self) -> InferenceProxy:
        """Return the proxy that the call belongs to.

        A call of an attempt never counts for another attempt. A thread that knows of no attempt
        may use a client of one proxy.
        """
        attempt: Any = current_attempt.get()
        proxies = list(self._proxies)
        proxy = self._current.get(None) or (proxies[0] if len(proxies) == 1 else None)
        if proxy is not None and (attempt is None or proxy.access in (None, attempt)):
            return proxy
        own = [proxy for proxy in proxies if attempt is not None and proxy.access is attempt]
        if own:  # wrapped in another task or thread of the same attempt
            return own[0]
        if attempt is not None:
            problem = f"a call from {attempt.name} went to a client that it has not wrapped"
        elif proxies:
            problem = (
                f"this client is wrapped for {len(proxies)} rollouts and the call comes "
                "from a thread or task that belongs to none of them"
            )
        else:
            problem = "the rollout that this client was wrapped for is over"
        raise PluginError(
            problem,
            where=callers_place(),
            hint="use a client of its own for each rollout (proxy.rollout_client()), wrap a shared "
            "one in each rollout, or run the thread in contextvars.copy_context()",
        )


def _check_keywords(create: Callable[..., Any], kwargs: dict[str, Any]) -> None:
    """Raise `TypeError` for a keyword that the client's own `create` would refuse as well."""
    known = _keywords(getattr(create, "__func__", create))
    unknown = [] if known is None else [name for name in kwargs if name not in known]
    refused = [name for name in unknown if name not in REFUSED_PARAMETERS]
    if refused:
        near = difflib.get_close_matches(refused[0], known or (), n=1)
        advice = f"; did you mean {near[0]!r}?" if near else "; extra_body takes fields of a server"
        raise TypeError(f"create() got an unexpected keyword argument {refused[0]!r}{advice}")


@functools.lru_cache(maxsize=16)
def _keywords(create: Callable[..., Any]) -> frozenset[str] | None:
    """Return the names of its parameters; None when it takes any."""
    try:
        parameters = inspect.signature(create).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return frozenset(parameter.name for parameter in parameters)
