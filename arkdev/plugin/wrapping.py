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
import weakref
from collections.abc import Callable
from typing import Any

from arkdev.errors import PluginError
from arkdev.plugin.calls import Call, ChatCall, ResponsesCall
from arkdev.plugin.client_settings import has_settings_of_its_own
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


def wrap_own_client(client: Any, proxy: InferenceProxy, *, is_async: bool) -> None:
    """Make all calls of a client belong to `proxy`, which made it for itself."""
    for api in (_CHAT, _RESPONSES):
        _track(client, api, owner=_OneOwner(proxy), is_async=is_async)


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
        tracked = _track(client, api, owner=_Owners(), is_async=is_async)
    tracked.owner.bind(proxy)
    return client


def _track(client: Any, api: _Api, *, owner: _Owners | _OneOwner, is_async: bool) -> _TrackedCreate:
    resource = api.resource(client)
    tracked = _TrackedCreate(client, resource.create, call=api.call, owner=owner)
    resource.create = tracked.async_create() if is_async else tracked.sync_create()
    return tracked


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


class _OneOwner:
    """The proxy of a client that it made for itself."""

    def __init__(self, proxy: InferenceProxy) -> None:
        self._proxy = proxy

    def bind(self, proxy: InferenceProxy) -> None:
        """Refuse any other proxy."""
        if proxy is not self._proxy:
            raise PluginError(
                "this client was handed out by another rollout's proxy",
                where=callers_place(),
                hint="take proxy.rollout_client() in each rollout",
            )

    def current(self) -> InferenceProxy:
        """Return the proxy."""
        return self._proxy


class _Owners:
    """The proxies that wrapped a client; it keeps none of them alive."""

    def __init__(self) -> None:
        self._current: contextvars.ContextVar[InferenceProxy] = contextvars.ContextVar("proxy")
        self._proxies: weakref.WeakSet[InferenceProxy] = weakref.WeakSet()

    def bind(self, proxy: InferenceProxy) -> None:
        """Let the calls of the current task or thread belong to `proxy`."""
        self._current.set(proxy)
        self._proxies.add(proxy)

    def current(self) -> InferenceProxy:
        """Return the proxy of the calling task or thread."""
        try:
            return self._current.get()
        except LookupError:
            if len(self._proxies) == 1:
                return next(iter(self._proxies))
        raise PluginError(
            f"this client is wrapped for {len(self._proxies)} rollouts and the call comes from a "
            "thread or task that belongs to none of them",
            where=callers_place(),
            hint="use a client of its own for each rollout (proxy.rollout_client()), or run the "
            "thread in contextvars.copy_context()",
        )


class _TrackedCreate:
    """The `create` of one client, and whose calls its are."""

    def __init__(
        self,
        client: Any,
        original: Callable[..., Any],
        *,
        call: type[Call],
        owner: _Owners | _OneOwner,
    ) -> None:
        self.owner = owner
        self._client = client
        self._original = original
        self._call_class = call
        self._keeps_own_way = has_settings_of_its_own(client)

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
        return self._call_class(self.owner.current(), kwargs)
