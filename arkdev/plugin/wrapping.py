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
from arkdev.observe.attempt import Attempt, current_attempt
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
        tracked = _track(client, api, owner=_Owners(), is_async=is_async)
    tracked.owner.bind(proxy)
    return client


def _track(client: Any, api: _Api, *, owner: _Owners | _OneOwner, is_async: bool) -> _TrackedCreate:
    resource = api.resource(client)
    tracked = _TrackedCreate(client, resource.create, call=api.call, owner=owner)
    resource.create = tracked.async_create() if is_async else tracked.sync_create()
    if callable(getattr(resource, "parse", None)):
        resource.parse = tracked.parse(resource.parse, is_async=is_async)
    _track_beta(client, api, is_async=is_async)
    _track_copies(client, api, owner=owner, is_async=is_async)
    return tracked


def _track_beta(client: Any, api: _Api, *, is_async: bool) -> None:
    """Let ``client.beta.chat.completions``, another object, have the same methods."""
    descriptor = getattr(type(client), "beta", None)
    if isinstance(descriptor, functools.cached_property):
        if not isinstance(vars(client).get("beta"), _Beta):
            client.beta = _Beta(client, descriptor, is_async=is_async)
        client.beta.apis.append(api)
    elif hasattr(client, "beta"):  # older clients make it at once
        _share_methods(client, client.beta, api, is_async=is_async)


def _share_methods(client: Any, beta: Any, api: _Api, *, is_async: bool) -> None:
    create, resource = api.resource(client).create, api.resource(beta)
    if hasattr(resource, "create"):
        resource.create = create
    if hasattr(resource, "parse"):
        resource.parse = create.tracked.parse(resource.parse, is_async=is_async)


class _Beta:
    """``client.beta`` until its first use: the library takes 0.4 s to import what is in it."""

    def __init__(
        self, client: Any, descriptor: functools.cached_property[Any], *, is_async: bool
    ) -> None:
        self._client = client
        self._descriptor = descriptor
        self._is_async = is_async
        self.apis: list[_Api] = []

    def __getattr__(self, name: str) -> Any:
        beta = self._client.beta = self._descriptor.func(self._client)
        for api in self.apis:
            _share_methods(self._client, beta, api, is_async=self._is_async)
        return getattr(beta, name)


def _track_copies(client: Any, api: _Api, *, owner: _Owners | _OneOwner, is_async: bool) -> None:
    """Let ``with_options`` and ``copy`` return a client that belongs to the same rollout."""
    copy = getattr(client, "with_options", None)
    if not callable(copy):
        return

    def tracked_copy(*args: Any, **kwargs: Any) -> Any:
        made = copy(*args, **kwargs)
        settings = ("timeout", "max_retries", "_client")
        if getattr(client, OURS, False) and all(
            getattr(made, name, None) == getattr(client, name, None) for name in settings
        ):
            setattr(made, OURS, True)
        _track(made, api, owner=owner, is_async=is_async)
        return made

    client.with_options = client.copy = tracked_copy


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
        """Return the proxy; a call of an attempt never counts for another attempt."""
        attempt = current_attempt.get()
        if not _may_use(self._proxy, attempt):
            raise _foreign_call(attempt)
        access = self._proxy.access
        if attempt is None and access is not None and access.is_in_a_run:
            access.note("call_from_unknown_thread")  # whose it is cannot be checked
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
        """Return the proxy of the calling task or thread.

        A call of an attempt never counts for another attempt. A thread that knows of no attempt
        may use a client of one proxy.
        """
        attempt = current_attempt.get()
        proxies = list(self._proxies)
        proxy = self._current.get(None) or (proxies[0] if len(proxies) == 1 else None)
        if proxy is not None and _may_use(proxy, attempt):
            return proxy
        if attempt is not None:
            # wrapped in another task or thread of the same attempt
            own = [proxy for proxy in proxies if proxy.access is not None]
            own = [proxy for proxy in own if _may_use(proxy, attempt)]
            if own:
                return own[0]
            raise _foreign_call(attempt)
        problem = "the rollout that this client was wrapped for is over"
        if proxies:
            problem = (
                f"this client is wrapped for {len(proxies)} rollouts and the call comes from a "
                "thread or task that belongs to none of them"
            )
        raise PluginError(problem, where=callers_place(), hint=_HOW_TO_SHARE)


_HOW_TO_SHARE = (
    "use a client of its own for each rollout (proxy.rollout_client()), wrap a shared one in each "
    "rollout, or run the thread in contextvars.copy_context()"
)


def _may_use(proxy: InferenceProxy, attempt: Any) -> bool:
    return attempt is None or proxy.access is None or proxy.access is attempt


def _foreign_call(attempt: Attempt | None) -> PluginError:
    name = attempt.name if attempt is not None else "outside"
    return PluginError(
        f"a call from {name} went to a client that it has not wrapped",
        where=callers_place(),
        hint=_HOW_TO_SHARE,
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
        _check_keywords(self._original, kwargs)
        proxy = self.owner.current()
        try:
            return self._call_class(proxy, kwargs)
        except PluginError as error:
            if proxy.access is not None:
                proxy.access.refused(f"{type(error).__name__}: {error.message}")
            raise

    def parse(self, original: Callable[..., Any], *, is_async: bool) -> Callable[..., Any]:
        """Return the function that replaces ``parse``: checked like `create`, the client's own way.

        The library makes the format of the answer from a class, so only it can send the call.
        """

        def prepared(kwargs: dict[str, Any]) -> tuple[Call, dict[str, Any]]:
            formats = ("response_format", "text_format")
            plain = {name: value for name, value in kwargs.items() if name not in formats}
            call = self._call_class(self.owner.current(), plain)
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
